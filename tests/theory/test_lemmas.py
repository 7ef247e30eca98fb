"""The inequalities of the proofs, wherever the intervals hold; and the step of a proof that does not hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ubp2.theory.algorithm import optimum
from ubp2.theory.grid import plan
from ubp2.theory.kernels import Kernel
from ubp2.theory.learner import Coefficients, Knowledge, coefficients, optimistic, roll
from ubp2.theory.lemmas import calibrated, single_episode, sums, sums_forever
from ubp2.theory.noise import Noise
from ubp2.theory.optimism import SCALES, draw, optimistic_value_forever, study
from ubp2.theory.options import Optimism, Simulation
from ubp2.theory.simulation import draw as draw_path
from ubp2.theory.simulation import study as study_paths
from ubp2.theory.simulation import value_slope
from ubp2.theory.systems import System, make_system, random_system

SEEDS = st.integers(0, 2**32 - 1)
KERNELS = st.sampled_from(["rbf", "matern"])


def informed(seed: int, kernel: str, episodes: int) -> tuple[System, Knowledge, np.random.Generator]:
    """A random system and what random episodes told about it."""
    rng = np.random.default_rng(seed)
    system = random_system(rng, kernel)
    knowledge = Knowledge(system)
    for _ in range(episodes):
        policy = rng.integers(len(system.actions), size=(system.horizon, len(system.reward)))
        knowledge.learn(*roll(system, system.law, policy, rng))
    return system, knowledge, rng


@given(SEEDS, KERNELS)
def test_every_lemma_holds_where_the_intervals_do(seed: int, kernel: str) -> None:
    """Optimism for all policies, finite and infinite; returns; the error of Q; the corrected single episode."""
    found = draw(np.random.default_rng(seed), kernel)
    if not found.calibrated:
        return
    assert found.slack[:, 0].min() >= -1e-9 and found.slack_forever[:, 0].min() >= -1e-9
    assert found.off.max() <= 1e-9
    assert found.q_slack >= -1e-9
    assert found.sides.regret <= found.sides.corrected + 1e-9
    assert found.sides.spilled_corrected <= 1e-9


@given(SEEDS, KERNELS, st.integers(0, 6))
def test_regret_decomposes_as_in_the_proof(seed: int, kernel: str, episodes: int) -> None:
    """r_n <= UCB(pi_n) - eta(pi_n) = (mu^r - r in the model) + (model - truth) + bonuses, each within its bound."""
    system, knowledge, _ = informed(seed, kernel, episodes)
    if not calibrated(system, knowledge):
        return
    beliefs, own = knowledge.beliefs(), coefficients(knowledge)
    policy, worth = plan(beliefs.law, optimistic(beliefs, own.reward, own.dynamics), system.horizon, system.gamma)
    imagined, real = sums(system, beliefs, policy)
    bonus = own.reward * imagined.reward_std + own.dynamics * imagined.dynamics_std
    promised = float(worth[0, system.start].max())
    assert promised == pytest.approx(imagined.mean_reward + bonus)
    off = imagined.mean_reward - imagined.reward, imagined.reward - real.reward
    assert promised - real.reward == pytest.approx(sum(off) + bonus)
    assert optimum(system, False) - real.reward <= sum(off) + bonus + 1e-9
    assert off[0] <= own.reward * imagined.reward_std + 1e-9
    assert off[1] <= own.dynamics * real.dynamics_std + 1e-9


@given(SEEDS)
def test_no_optimism_is_left_without_coefficients(seed: int) -> None:
    """With no bonus and no error of the value, the objective is the return in the mean model."""
    system, knowledge, rng = informed(seed, "rbf", 2)
    policy = rng.integers(len(system.actions), size=len(system.reward))
    beliefs = knowledge.beliefs()
    value = optimistic_value_forever(system, beliefs, Coefficients(0, 0, 0), policy)
    assert value == pytest.approx(sums_forever(system, beliefs, policy)[0][system.start, 1])


def test_the_printed_step_on_reward_deviations_fails() -> None:
    """Sigma~^r - Sigma^r <= a Sigma^r bounds an error of the dynamics by knowledge of the reward.

    A start from which the true dynamics lead, at once, to a place where everything is known; the model, which has never
    seen the start, stays there. The deviation at the start is counted once in truth and in every step of the model.
    """
    narrow = Kernel("rbf", length=0.15)
    system = make_system("lq", "rbf")._replace(dynamics_kernel=narrow, reward_kernel=narrow, horizon=120, gamma=0.999)
    state = system.grid.points[:, 0]
    change = np.where(state > 0.5, -1.2, -0.3 - state)[:, None, None] + np.zeros_like(system.change)
    system = system._replace(change=change, noise=Noise("gaussian", 0.02))
    knowledge = Knowledge(system)
    known = np.flatnonzero((np.abs(system.inputs[:, 0] + 0.3) < 0.12) & (system.inputs[:, 1] == 0))
    for _ in range(3):
        knowledge.learn(known, change.reshape(-1, 1)[known], system.reward.ravel()[known])
    policy = np.full((system.horizon, len(system.reward)), 5)
    sides = single_episode(system, knowledge, knowledge.beliefs(), policy, 0.0)
    assert sides.spilled > 1
    assert sides.spilled_corrected < 0


def test_the_study_counts_failures() -> None:
    found = study(Optimism(draws=6))
    finite = found.tables["optimism, finite horizon"]
    assert [row["scale"] for row in finite] == list(SCALES)
    assert finite[0]["optimal:_fails"] == 0 < finite[-1]["optimal:_fails"]


def test_the_slope_of_the_value_by_hand() -> None:
    assert value_slope(0.5, 2.0, 1.0, 0.9) == pytest.approx(2 * 2 / (1 - 0.9 * 0.5 * 2))


@given(SEEDS)
@settings(max_examples=20)
def test_the_simulation_lemma_holds_on_every_path(seed: int) -> None:
    found = draw_path(np.random.default_rng(seed))
    assert found.difference <= min(found.imagined, found.real) + 1e-9
    assert found.slope <= value_slope(0.6, 2.0, 0.5, 0.9)


def test_the_study_of_paths_has_three_inequalities() -> None:
    found = study_paths(Simulation(draws=3))
    assert [row["fails"] for row in found.tables["sub-Gaussian simulation lemma"]] == [0, 0, 0]
