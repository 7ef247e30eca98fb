"""The algorithm as a whole: regret that stops, an agent that gets stuck, planners that lose what they may."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray as Array

from ubp2.theory.algorithm import PLAN_HORIZON, Episode, Method, induced, optimum, run
from ubp2.theory.grid import evaluate, evaluate_forever, plan_forever
from ubp2.theory.learner import Knowledge, coefficients, optimistic, roll
from ubp2.theory.options import Regret, Suboptimality
from ubp2.theory.regret import SCALES, UNTUNED, _promises, column, study
from ubp2.theory.suboptimality import study as study_planners
from ubp2.theory.systems import make_system

SEEDS = st.integers(0, 2**32 - 1)
METHODS = st.sampled_from(
    [Method(), Method("greedy"), Method("random"), Method(forever=True), Method("random", forever=True)]
)


@given(SEEDS, METHODS)
@settings(max_examples=15)
def test_no_policy_is_better_than_the_best(seed: int, method: Method) -> None:
    episodes = run(make_system("hills", "rbf"), method, 3, np.random.default_rng(seed))
    assert min(episode.regret for episode in episodes) >= -1e-6
    assert min(episode.lost for episode in episodes) >= -1e-6


@given(SEEDS, st.booleans())
@settings(max_examples=10)
def test_the_first_plan_promises_more_than_the_best_return(seed: int, forever: bool) -> None:
    """Optimism as the agent has it: without data the intervals hold by the norm alone."""
    system = make_system("hills", "rbf")
    (first,) = run(system, Method(forever=forever), 1, np.random.default_rng(seed))
    assert first.promised >= optimum(system, forever)


def test_the_same_seed_gives_the_same_episodes() -> None:
    system = make_system("lq", "linear")
    first, second = (run(system, Method("ucb", 0.1), 5, np.random.default_rng(7)) for _ in range(2))
    assert first == second


def test_greedy_is_stuck_where_the_optimist_is_not() -> None:
    system = make_system("hills", "rbf")

    def last(method: Method) -> float:
        runs = [run(system, method, 40, np.random.default_rng(i)) for i in range(4)]
        return float(column(runs, "regret")[:, -5:].mean())

    assert last(Method("ucb", scale=None)) < 0.3
    assert last(Method("greedy")) > 1.0


@pytest.mark.slow
def test_regret_is_sublinear_for_the_linear_kernel_with_the_proof_s_coefficients() -> None:
    """No share of them: late episodes cost less than early ones, which an agent that is stuck cannot show."""
    found = study(Regret(kernel="linear", episodes=60, repeats=4, scale=(1.0,)))
    curve = np.mean(found.curves["cumulative"]["optimistic, scale 1"], axis=0)
    assert curve[59] - curve[29] < 0.9 * 2 * (curve[29] - curve[14])
    assert found.tables.popitem()[1][0]["to"] < 1


@given(SEEDS, st.sampled_from([0.02, 0.1, 0.5]), st.sampled_from([0.0, 0.5]), st.integers(1, 50))
@settings(max_examples=20)
def test_a_planner_loses_no_more_than_it_may(seed: int, slack: float, decay: float, episode: int) -> None:
    system = make_system("lq", "linear")
    knowledge = Knowledge(system)
    method = Method("ucb", 0.1, slack=slack, decay=decay)
    own = coefficients(knowledge, 0.1)
    _, lost, _ = induced(system, knowledge.beliefs(), own, method, episode, np.random.default_rng(seed))
    steps = (1 - system.gamma**system.horizon) / (1 - system.gamma)
    assert -1e-9 <= lost <= steps * slack / episode**decay + 1e-6


def test_a_planner_that_looks_at_everything_is_exact() -> None:
    system = make_system("lq", "linear")
    knowledge = Knowledge(system)
    method = Method("ucb", 0.1, budget=2000)
    own = coefficients(knowledge, 0.1)
    _, lost, _ = induced(system, knowledge.beliefs(), own, method, 1, np.random.default_rng(0))
    assert lost == pytest.approx(0, abs=1e-9)


def test_replanning_at_every_step_does_not_maximise_the_objective() -> None:
    """Assumption 5.6: in the agent's own model the best policy of the tail is worth far more than what it executes."""
    system, method, rng = make_system("lq", "linear"), Method(scale=0.1, forever=True), np.random.default_rng(0)
    knowledge = Knowledge(system)

    def planned() -> tuple[Array, float, float]:
        return induced(system, knowledge.beliefs(), coefficients(knowledge, 0.1, forever=True), method, 1, rng)

    for _ in range(4):
        knowledge.learn(*roll(system, system.law, planned()[0], rng))
    beliefs, own = knowledge.beliefs(), coefficients(knowledge, 0.1, forever=True)
    _, lost, promised = planned()
    reward, tail = optimistic(beliefs, own.reward, own.dynamics), optimistic(beliefs, own.value, own.value)
    other = plan_forever(beliefs.law, tail, system.gamma)[0]
    end = evaluate_forever(beliefs.law, other, tail[..., None], system.gamma)
    head = np.tile(other, (PLAN_HORIZON, 1))
    worth = evaluate(beliefs.law, head, reward[..., None], system.gamma, end)[system.start, 0]
    assert promised - lost < worth / 2 and worth <= promised + 1e-6


def test_switched_off_bonuses_are_those_of_the_table() -> None:
    rows = study(Regret(episodes=4, repeats=1, infinite=True, ablation=True)).tables.popitem()[1]
    assert next(row["agent"] for row in rows) == "all three" and len(rows) == 10


def test_every_system_gets_the_same_shares_and_an_agent_that_is_not_tuned() -> None:
    rows = study(Regret(kernel="linear", episodes=4, repeats=1)).tables.popitem()[1]
    shares = [f"optimistic, scale {scale:g}" for scale in SCALES]
    assert [row["agent"] for row in rows] == [*shares, UNTUNED, "greedy", "random"]


def test_promises_by_hand() -> None:
    """Of a best return of 2 one agent loses a twentieth at the end and one a quarter; early episodes do not count."""
    runs = [[Episode(1.0, 3.0, 10.0)] * 9 + [Episode(lost, 1.0, 5.0)] for lost in (0.1, 0.5)]
    found = _promises(runs, 2.0)
    assert found == {"stuck": 0.5, "promised_first": 10.0, "and_last": 5.0, "lost": pytest.approx(28 / 95)}


def test_notes_say_what_the_bonuses_are_and_what_the_theorem_does_not_cover() -> None:
    few = {"episodes": 4, "repeats": 1, "kernel": "linear"}
    switched = " ".join(study(Regret(**few, infinite=True, ablation=True, scale=(0.3,))).notes)
    assert "0.3 times the proof's coefficients" in switched and "fixed length" in switched
    assert "does not test it" in " ".join(study(Regret(**few, noise="rademacher")).notes)
    assert "does not test it" not in " ".join(study(Regret(**few)).notes)


def test_the_study_of_planners_has_the_theorem_s_allowance() -> None:
    rows = study_planners(Suboptimality(episodes=4, repeats=1, epsilon=(0.1,))).tables.popitem()[1]
    steps = (1 - 0.9**10) / (1 - 0.9)
    assert rows[1]["may_lose"] == pytest.approx(4 * steps * 0.1)
    assert all(row["lost"] <= row["may_lose"] + 1e-6 for row in rows if row["may_lose"] is not None)
