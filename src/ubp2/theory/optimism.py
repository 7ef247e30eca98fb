"""The lemmas on optimism over random systems: with the proof's coefficients, and with smaller ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from ubp2.theory.algorithm import optimum
from ubp2.theory.findings import Findings
from ubp2.theory.grid import plan, plan_forever
from ubp2.theory.learner import Beliefs, Coefficients, Knowledge, coefficients, optimistic, roll
from ubp2.theory.lemmas import Sides, calibrated, q_error_and_bound, single_episode, sums, sums_forever
from ubp2.theory.options import Optimism
from ubp2.theory.systems import System, random_system

__all__ = ["SCALES", "Draw", "draw", "optimistic_value_forever", "study"]

SCALES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.0)
POLICIES = ("random", "optimal", "planned")
_MOST_EPISODES = 12
_ERROR = 0.2  # of the estimated value, subtracted everywhere: the worst that the assumption allows


class Draw(NamedTuple):
    """One random system after some random episodes."""

    calibrated: bool
    slack: Array  # [policies, scales], optimistic value minus return, over the span of returns
    slack_forever: Array  # the same without end, with the error of the value granted
    off: Array  # [policies, 2], |difference of returns| minus lambda times imagined and real Sigma^d
    q_slack: float  # bound minus error of Q, where they are closest
    sides: Sides


def draw(rng: np.random.Generator, kernel: str) -> Draw:
    """A system, data, three policies, and both sides of every inequality."""
    system = random_system(rng, kernel)
    knowledge = Knowledge(system)
    shape = (system.horizon, len(system.reward))
    for _ in range(int(rng.integers(_MOST_EPISODES))):
        knowledge.learn(*roll(system, system.law, rng.integers(len(system.actions), size=shape), rng))
    beliefs, own = knowledge.beliefs(), coefficients(knowledge)
    hopeful = optimistic(beliefs, own.reward, own.dynamics)
    planned, _ = plan(beliefs.law, hopeful, system.horizon, system.gamma)
    best, _ = plan(system.law, system.reward, system.horizon, system.gamma)
    random = rng.integers(len(system.actions), size=shape)
    slack, off = zip(*(_finite(system, beliefs, own, policy) for policy in (random, best, planned)), strict=True)
    forever = coefficients(knowledge, forever=True)
    endless = (
        random[0],
        plan_forever(system.law, system.reward, system.gamma)[0],
        plan_forever(beliefs.law, optimistic(beliefs, forever.reward, forever.dynamics), system.gamma)[0],
    )
    errors = [q_error_and_bound(system, knowledge, beliefs, policy) for policy in endless]
    return Draw(
        calibrated(system, knowledge),
        np.array(slack),
        np.array([_infinite(system, beliefs, forever, policy) for policy in endless]),
        np.array(off),
        min(bound - error for error, bound in errors),
        single_episode(system, knowledge, beliefs, planned, optimum(system, False)),
    )


def _finite(system: System, beliefs: Beliefs, own: Coefficients, policy: Array) -> tuple[Array, Array]:
    imagined, real = sums(system, beliefs, policy)
    bonus = own.reward * imagined.reward_std + own.dynamics * imagined.dynamics_std
    difference = abs(real.reward - imagined.reward)
    bounds = own.dynamics * np.array([imagined.dynamics_std, real.dynamics_std])
    steps = float(np.sum(system.gamma ** np.arange(system.horizon)))
    return (imagined.mean_reward + np.array(SCALES) * bonus - real.reward) / (steps * system.span), difference - bounds


def _infinite(system: System, beliefs: Beliefs, own: Coefficients, policy: Array) -> Array:
    granted = system.gamma**system.horizon * _ERROR
    real = sums_forever(system, beliefs, policy)[1][system.start, 0]
    values = [
        optimistic_value_forever(system, beliefs, Coefficients(*(scale * np.array(own))), policy, _ERROR)
        for scale in SCALES
    ]
    return (np.array(values) + granted - real) * (1 - system.gamma) / system.span


def optimistic_value_forever(
    system: System, beliefs: Beliefs, own: Coefficients, policy: Array, error: float = 0.0
) -> float:
    """eta^UCB of eq. theory-plan-objective for stationary actions [S]: H steps, then the estimated value and its bonus.

    The estimate of the value is too low by `error`; its uncertainty is the sum of the others (assumption
    q-uncertainty).
    """
    imagined, _ = sums_forever(system, beliefs, policy)
    tail = imagined[:, 1] - error + own.value * (imagined[:, 2] + imagined[:, 3])
    states = np.arange(len(policy))
    step = optimistic(beliefs, own.reward, own.dynamics)[states, policy]
    matrix = beliefs.law.under(policy)
    for _ in range(system.horizon):
        tail = step + system.gamma * matrix @ tail
    return float(tail[system.start])


def study(options: Optimism) -> Findings:
    """Failures of each inequality, by the scale of the coefficients and the kind of policy."""
    draws = [draw(np.random.default_rng([options.seed, i]), options.kernel) for i in range(options.draws)]
    slack, endless = np.array([own.slack for own in draws]), np.array([own.slack_forever for own in draws])
    tables = {
        "optimism, finite horizon": _failures(slack),
        "optimism, without end": _failures(endless),
        "other lemmas": _lemmas(draws),
    }
    share = float(np.mean([own.calibrated for own in draws]))
    notes = [
        f"{options.draws} random systems of one state and one action ({options.kernel}), after 0 to "
        f"{_MOST_EPISODES - 1} random episodes; the intervals of all of them together held in {share:.4g} of the "
        "systems. scale: share of the proof's coefficients. short: mean shortfall where the inequality fails, as a "
        "share of the span of possible returns."
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


def _lemmas(draws: Iterable[Draw]) -> list[dict[str, str | float]]:
    """How often each inequality fails, and the median of how much larger its right side is."""
    known = list(draws)
    sides = [own.sides for own in known]
    off = np.array([own.off for own in known])
    cases: dict[str, list[float] | Array] = {
        "returns differ by at most lambda Sigma~^d": -off[..., 0].ravel(),
        "returns differ by at most lambda Sigma^d": -off[..., 1].ravel(),
        "error of Q below its bound": [own.q_slack for own in known],
        "single episode, as printed": [own.printed - own.regret for own in sides],
        "single episode, corrected": [own.corrected - own.regret for own in sides],
        "its step Sigma~^r - Sigma^r <= a Sigma^r": [-own.spilled for own in sides],
        "that step, corrected: <= lambda_r Sigma^d": [-own.spilled_corrected for own in sides],
    }
    return [
        {"inequality": name, "fails": float((np.array(own) < -1e-9).mean()), "median_slack": float(np.median(own))}
        for name, own in cases.items()
    ]
