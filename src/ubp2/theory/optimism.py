"""The lemmas on optimism over random systems: with the proof's coefficients, and with smaller ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from ubp2.theory.algorithm import optimum
from ubp2.theory.findings import Findings
from ubp2.theory.grid import plan, plan_forever
from ubp2.theory.learner import Coefficients, Knowledge, optimistic, roll
from ubp2.theory.lemmas import (
    Case,
    Check,
    calibrated,
    case_of,
    optimistic_value_forever,
    potential,
    q_error,
    returns,
    single_episode,
    single_episode_forever,
    sums,
)
from ubp2.theory.options import Optimism
from ubp2.theory.systems import random_system

__all__ = ["PRINTED", "SCALES", "Draw", "draw", "study"]

SCALES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.0)
POLICIES = ("random", "optimal", "planned")
PRINTED = ("D.6, as printed", "D.6, step as printed: Sigma~^r - Sigma^r <= a Sigma^r")  # which need not hold
_MOST_EPISODES = 12
_ERROR = 0.2  # of the estimated value, subtracted everywhere: the worst that the assumption allows


class Draw(NamedTuple):
    """One random system after some random episodes."""

    calibrated: bool
    slack: Array  # [policies, scales], optimistic value minus return, over the span of returns
    slack_forever: Array  # the same without end, with the error of the value granted
    checks: list[tuple[str, Check]]  # both sides of every other inequality, for one policy or for each


def draw(rng: np.random.Generator, kernel: str) -> Draw:
    """A system, data, three policies, and both sides of every inequality."""
    system = random_system(rng, kernel)
    knowledge = Knowledge(system)
    shape = (system.horizon, len(system.reward))
    deviations = np.zeros((int(rng.integers(_MOST_EPISODES)), system.horizon))
    for row in deviations:
        pairs, *seen = roll(system, system.law, rng.integers(len(system.actions), size=shape), rng)
        row[:] = knowledge.dynamics.posterior()[1][pairs]
        knowledge.learn(pairs, *seen)
    case = case_of(system, knowledge)
    hopeful = optimistic(case.beliefs, case.own.reward, case.own.dynamics)
    planned, _ = plan(case.beliefs.law, hopeful, system.horizon, system.gamma)
    best, _ = plan(system.law, system.reward, system.horizon, system.gamma)
    random = rng.integers(len(system.actions), size=shape)
    finite = (random, best, planned)
    endless = (
        random[0],
        plan_forever(system.law, system.reward, system.gamma)[0],
        plan_forever(case.beliefs.law, optimistic(case.beliefs, *case.forever[:2]), system.gamma)[0],
    )
    found = [returns(case, policy) for policy in finite] + [q_error(case, policy) for policy in endless]
    found += [single_episode(case, planned, optimum(system, False)), *_episodes_forever(case, random)]
    checks = [each for own in found for each in own.items()]
    checks.append(("lemma 17 of Curi et al.: squared deviations", potential(knowledge.dynamics, deviations)))
    return Draw(
        calibrated(system, knowledge),
        np.array([_finite(case, policy) for policy in finite]),
        np.array([_infinite(case, policy) for policy in endless]),
        checks,
    )


def _finite(case: Case, policy: Array) -> Array:
    system = case.system
    imagined, real = sums(system, case.beliefs, policy)
    bonus = case.own.reward * imagined.reward_std + case.own.dynamics * imagined.dynamics_std
    steps = float(np.sum(system.gamma ** np.arange(system.horizon)))
    return (imagined.mean_reward + np.array(SCALES) * bonus - real.reward) / (steps * system.span)


def _infinite(case: Case, policy: Array) -> Array:
    system = case.system
    head = np.tile(policy, (system.horizon, 1))
    granted = system.gamma**system.horizon * _ERROR
    real = sums(system, case.beliefs, head, policy)[1].reward
    scaled = (Coefficients(*(scale * np.array(case.forever))) for scale in SCALES)
    values = [optimistic_value_forever(case, own, head, policy, _ERROR) for own in scaled]
    return (np.array(values) + granted - real) * (1 - system.gamma) / system.span


def _episodes_forever(case: Case, random: Array) -> list[dict[str, Check]]:
    """An episode without end of the policy that maximises the optimistic objective, and one of a random policy."""
    system, beliefs, own = case.system, case.beliefs, case.forever
    tail, worth = plan_forever(beliefs.law, optimistic(beliefs, own.value, own.value), system.gamma)
    step = optimistic(beliefs, own.reward, own.dynamics)
    policy, values = plan(beliefs.law, step, system.horizon, system.gamma, worth.max(axis=1) - _ERROR)
    best, promised = optimum(system, True), float(values[0, system.start].max())
    lossy = single_episode_forever(case, random, random[0], best, _ERROR, promised)
    return [
        single_episode_forever(case, policy, tail, best, _ERROR, promised),
        {"D.15, corrected, for a random planner": lossy["D.9, corrected"]},
    ]


def study(options: Optimism) -> Findings:
    """Failures of each inequality, by the scale of the coefficients and the kind of policy."""
    draws = [draw(np.random.default_rng([options.seed, i]), options.kernel) for i in range(options.draws)]
    slack, endless = np.array([own.slack for own in draws]), np.array([own.slack_forever for own in draws])
    tables = {
        "optimism, finite horizon": _failures(slack),
        "optimism, infinite horizon": _failures(endless),
        "other lemmas": _lemmas(draws),
    }
    share = float(np.mean([own.calibrated for own in draws]))
    notes = [
        f"{options.draws} random systems of one state and one action ({options.kernel}), after 0 to "
        f"{_MOST_EPISODES - 1} random episodes; the intervals of all of them together held in {share:.2%} of the "
        "systems. scale: share of the proof's coefficients. short: mean shortfall where the inequality fails, as a "
        "share of the span of possible returns.",
        "Other lemmas: left and right are medians of both sides; below trivial: share of systems where the right side "
        "is below what bounded rewards (or deviations) alone say of the left one, so that the inequality could fail; "
        "tightest: largest left over right. true error: |mu - p*| in place of its bound beta sigma.",
    ]
    curves = {"scales": SCALES, "policies": POLICIES}
    curves |= {
        name: (array < -1e-9).mean(axis=0).T.tolist() for name, array in (("finite", slack), ("endless", endless))
    }
    return Findings("optimism", tables, curves, notes)


def _failures(slack: Array) -> list[dict[str, float]]:
    rows = []
    for i, scale in enumerate(SCALES):
        row: dict[str, float] = {"scale": scale}
        for j, policy in enumerate(POLICIES):
            failed = slack[:, j, i] < -1e-9
            row[f"{policy}:_fails"] = float(failed.mean())
            row[f"{policy}:_short"] = float(-slack[failed, j, i].mean()) if failed.any() else 0.0
        rows.append(row)
    return rows


def _lemmas(draws: Iterable[Draw]) -> list[dict[str, str | float | None]]:
    """How often each inequality fails, the medians of its sides, and how often it says more than bounded returns do."""
    groups: dict[str, list[Check]] = {}
    for own in draws:
        for name, check in own.checks:
            groups.setdefault(name, []).append(check)
    rows: list[dict[str, str | float | None]] = []
    for name, checks in groups.items():
        left, right, trivial = np.array(checks).T
        some = right > 1e-9
        rows.append(
            {"inequality": name, "fails": float((left > right + 1e-9).mean())}
            | {"left": float(np.median(left)), "right": float(np.median(right))}
            | {"below_trivial": float((right < trivial).mean()) if np.isfinite(trivial).all() else None}
            | {"tightest": float((left[some] / right[some]).max()) if some.any() else 0.0}
        )
    return rows
