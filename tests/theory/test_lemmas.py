"""The inequalities of the proofs, wherever the intervals hold; and the step of a proof that does not hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ubp2.theory.algorithm import optimum
from ubp2.theory.bounds import return_coefficient
from ubp2.theory.functions import Member, nearest
from ubp2.theory.grid import Transitions, evaluate, plan, plan_forever
from ubp2.theory.kernels import Kernel
from ubp2.theory.learner import Coefficients, Knowledge, coefficients, optimistic, roll
from ubp2.theory.lemmas import (
    calibrated,
    case_of,
    drift,
    optimistic_value_forever,
    single_episode,
    single_episode_forever,
    sums,
    sums_forever,
)
from ubp2.theory.noise import Noise
from ubp2.theory.optimism import PRINTED, SCALES, _infinite, draw, study
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
    """Optimism for all policies, finite and infinite; returns; the error of Q; single episodes and their steps."""
    found = draw(np.random.default_rng(seed), kernel)
    if not found.calibrated:
        return
    assert found.slack[:, 0].min() >= -1e-9 and found.slack_forever[:, 0].min() >= -1e-9
    for name, check in found.checks:
        assert name in PRINTED or check.left <= check.right + 1e-9, name


def test_with_the_true_error_the_inequalities_say_something() -> None:
    """The proof's right sides are above what bounded rewards say; those with the true error are mostly below."""
    rows = {row["inequality"]: row for row in study(Optimism(draws=20)).tables["other lemmas"]}
    for name in ("D.3, true error, sums in the model", "D.3, true error, sums in truth", "D.8, true error"):
        assert rows[name]["fails"] == 0 and rows[name]["below_trivial"] > 0.5 and rows[name]["tightest"] > 0.1
    assert rows["D.3: returns differ by at most lambda Sigma^d"]["below_trivial"] < 0.5


def test_the_bound_with_the_true_error_is_attained() -> None:
    """One law leads to the first state, the other to the last, which alone is worth something: both sides are gamma."""
    system, knowledge, _ = informed(0, "rbf", 1)
    case, states = case_of(system, knowledge), np.arange(len(system.reward))
    policy = np.zeros((2, len(states)), int)
    first, last = (Transitions((np.tile(1.0 * (states == end), (*system.reward.shape, 1)),)) for end in (0, states[-1]))
    signal = np.tile(1.0 * (states == states[-1])[:, None], system.reward.shape[1])
    start = evaluate(last, policy, signal[..., None], system.gamma)[system.start, 0]
    assert start - signal[system.start, 0] == pytest.approx(system.gamma)
    for apart, bound in ((1.0, system.gamma), (0.0, 0.0)):
        wrong = case._replace(apart=np.full_like(case.apart, apart))
        assert drift(wrong, signal, policy, first, last) == pytest.approx(bound)


@given(SEEDS, KERNELS, st.integers(0, 6), st.sampled_from([0.0, 0.2, -0.2]), st.booleans())
@settings(max_examples=25)
def test_regret_without_end_decomposes_as_in_the_proof(
    seed: int, kernel: str, episodes: int, error: float, exact: bool
) -> None:
    """Lemmas D.9 (the best plan) and D.15 (any other): what the objective sums, and every step."""
    system, knowledge, rng = informed(seed, kernel, episodes)
    if not calibrated(system, knowledge):
        return
    case = case_of(system, knowledge)
    beliefs, (a, b, c), gamma = case.beliefs, case.forever, system.gamma
    tail, worth = plan_forever(beliefs.law, optimistic(beliefs, c, c), gamma)
    policy, values = plan(beliefs.law, optimistic(beliefs, a, b), system.horizon, gamma, worth.max(axis=1) - error)
    promised = float(values[0, system.start].max())
    if not exact:
        tail = rng.integers(len(system.actions), size=tail.shape)
        policy = rng.integers(len(system.actions), size=policy.shape)
    value = optimistic_value_forever(case, case.forever, policy, tail, error)
    assert value <= promised + 1e-9 and (not exact or value == pytest.approx(promised))
    whole, first = sums(system, beliefs, policy, tail)[0], sums(system, beliefs, policy)[0]
    bonus = a * first.reward_std + b * first.dynamics_std
    bonus += c * (whole.reward_std - first.reward_std + whole.dynamics_std - first.dynamics_std)
    assert value == pytest.approx(whole.mean_reward + bonus - gamma**system.horizon * error)
    checks = single_episode_forever(case, policy, tail, optimum(system, True), error, promised)
    for name, check in checks.items():
        assert check.left <= check.right + 1e-9, name
    real = sums(system, beliefs, policy, tail)[1]
    spilled_r, spilled_d = (checks[f"D.9, step: Sigma~^{x} - Sigma^{x} <= lambda_{x} Sigma^d"].right for x in "rd")
    steps = (a + c) * (real.reward_std + spilled_r) + c * (real.dynamics_std + spilled_d) + b * real.dynamics_std
    together = steps + (promised - value) + 2 * gamma**system.horizon * abs(error)
    assert checks["D.9, corrected"].right == pytest.approx(together)


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
    checks, (a, b, _) = single_episode(case_of(system, knowledge), policy, optimum(system, False)), own
    reward_std = real.reward_std + checks["D.6, step corrected: <= lambda_r Sigma^d"].right
    span, width = float(np.ptp(beliefs.dynamics_std)), knowledge.betas()[0]
    lambda_d = return_coefficient(width, span, system.noise.scale, system.gamma, system.horizon)
    together = 2 * a * reward_std + b * (1 + lambda_d) * real.dynamics_std + b * real.dynamics_std
    assert checks["D.6, corrected"].right == pytest.approx(together)


@given(SEEDS)
def test_no_optimism_is_left_without_coefficients(seed: int) -> None:
    """With no bonus and no error of the value, the objective is the return in the mean model.

    And where the error is granted, as lemma 5.7 does, it makes no difference.
    """
    system, knowledge, rng = informed(seed, "rbf", 2)
    policy = rng.integers(len(system.actions), size=len(system.reward))
    case = case_of(system, knowledge)
    value = optimistic_value_forever(case, Coefficients(0, 0, 0), np.tile(policy, (system.horizon, 1)), policy)
    imagined, real = (own[system.start] for own in sums_forever(system, case.beliefs, policy))
    assert value == pytest.approx(imagined[1])
    assert _infinite(case, policy)[-1] == pytest.approx((imagined[1] - real[0]) * (1 - system.gamma) / system.span)


def test_the_printed_step_on_reward_deviations_fails() -> None:
    """Sigma~^r - Sigma^r <= a Sigma^r bounds an error of the dynamics by knowledge of the reward.

    A start from which the true dynamics lead, at once, to a place where everything is known; the model, which has never
    seen the start, stays there. The deviation at the start is counted once in truth and in every step of the model.
    Dynamics and reward lie in the space of the kernel, and the intervals hold: all that the lemma assumes.
    """
    narrow = Kernel("rbf", length=0.15)
    system = make_system("lq", "rbf")._replace(dynamics_kernel=narrow, reward_kernel=narrow, horizon=120, gamma=0.999)
    inputs = system.inputs
    away = nearest(narrow, inputs, np.where(inputs[:, :1] > 0.5, -1.2, -0.3 - inputs[:, :1]))
    hill = Member(narrow, np.array([[-0.3, 0.0]]), np.ones((1, 1)))
    change, reward = away(inputs).reshape(system.change.shape), hill(inputs).reshape(system.reward.shape)
    system = system._replace(change=change, reward=reward, noise=Noise("gaussian", 0.02))
    system = system._replace(dynamics_norm=away.norm, reward_norm=hill.norm)
    knowledge = Knowledge(system)
    known = np.flatnonzero((np.abs(system.inputs[:, 0] + 0.3) < 0.12) & (system.inputs[:, 1] == 0))
    for _ in range(3):
        knowledge.learn(known, change.reshape(-1, 1)[known], system.reward.ravel()[known])
    assert calibrated(system, knowledge)
    policy = np.full((system.horizon, len(system.reward)), 5)
    sides = single_episode(case_of(system, knowledge), policy, 0.0)
    printed = sides["D.6, step as printed: Sigma~^r - Sigma^r <= a Sigma^r"]
    assert printed.left > printed.right + 1
    for name in ("D.6, step corrected: <= lambda_r Sigma^d", "D.6, step, true error"):
        assert sides[name].left < sides[name].right


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
    assert found.difference <= min(found.imagined_error, found.real_error) + 1e-9
    assert found.slope <= value_slope(0.6, 2.0, 0.5, 0.9)


def test_the_study_of_paths_has_five_inequalities() -> None:
    found = study_paths(Simulation(draws=3))
    assert [row["fails"] for row in found.tables["sub-Gaussian simulation lemma"]] == 5 * [0]
