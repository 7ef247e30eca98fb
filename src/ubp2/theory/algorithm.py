"""The algorithm of the theory: plan optimistically and exactly, act for an episode, learn, and count the regret.

The regret of an episode is not sampled: it is the difference of two expected returns, each computed from the law of the
true system.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy import ndarray as Array

from ubp2.theory.grid import evaluate, evaluate_forever, plan, plan_forever
from ubp2.theory.learner import Beliefs, Coefficients, Knowledge, coefficients, optimistic, roll
from ubp2.theory.systems import System

__all__ = ["PLAN_HORIZON", "Episode", "Method", "induced", "optimum", "run"]

PLAN_HORIZON = 5  # steps that the planner looks ahead before its terminal value, in the infinite case
_TIES = 1e-7  # what the order of actions that are equally good is drawn from


class Method(NamedTuple):
    """How episodes are planned.

    `scale` multiplies the coefficients of the proof; without one (None) each bonus is one posterior deviation, a = b =
    c = 1, and nothing is tuned. `bonuses` switches those of reward, dynamics and value. The planner loses up to `slack`
    / n^`decay` of the objective a step in episode n; with a `budget` it looks at that many actions a state, drawn at
    random, and at `more` further ones an episode.
    """

    name: Literal["ucb", "greedy", "random"] = "ucb"
    scale: float | None = 1.0
    bonuses: tuple[bool, bool, bool] = (True, True, True)
    forever: bool = False
    slack: float = 0.0
    decay: float = 0.0
    budget: int | None = None
    more: float = 0.0


class Episode(NamedTuple):
    """What one episode cost and what the planner believed."""

    regret: float
    lost: float  # of the optimistic value at the start, by the policy that was executed
    promised: float  # the optimistic value of the best plan


def optimum(system: System, forever: bool) -> float:
    """The best expected return, with the true dynamics and the true reward: of the horizon, or without end."""
    if forever:
        worth = plan_forever(system.law, system.reward, system.gamma)[1]
    else:
        worth = plan(system.law, system.reward, system.horizon, system.gamma)[1][0]
    return float(worth[system.start].max())


def run(system: System, method: Method, episodes: int, rng: np.random.Generator) -> list[Episode]:
    """Episodes of one agent that starts with nothing."""
    knowledge, best, law = Knowledge(system), optimum(system, method.forever), system.law
    done = []
    for n in range(1, episodes + 1):
        beliefs = knowledge.beliefs()
        policy, lost, promised = induced(system, beliefs, coefficients_of(knowledge, method), method, n, rng)
        if method.forever:
            own = evaluate_forever(law, policy[0], system.reward[..., None], system.gamma)
        else:
            own = evaluate(law, policy, system.reward[..., None], system.gamma)
        done.append(Episode(best - float(own[system.start, 0]), lost, promised))
        seen = roll(system, law, policy, rng)
        if method.name != "random":  # who does not care
            knowledge.learn(*seen)
    return done


def coefficients_of(knowledge: Knowledge, method: Method) -> Coefficients:
    """The coefficients of the method: none for a greedy one, and none where a bonus is switched off."""
    if method.name != "ucb":
        return Coefficients(0.0, 0.0, 0.0)
    full = Coefficients(1.0, 1.0, 1.0)
    if method.scale is not None:
        full = coefficients(knowledge, method.scale, forever=method.forever)
    return Coefficients(*(value * on for value, on in zip(full, method.bonuses, strict=True)))


def induced(
    system: System, beliefs: Beliefs, own: Coefficients, method: Method, episode: int, rng: np.random.Generator
) -> tuple[Array, float, float]:
    """The policy of an episode [T, S], what its planner lost at the start, and what the best plan was worth there.

    In the infinite case the tail is worth what the best policy expects of it, with the bonus c_n (sigma^r +
    |sigma^d|) on every step, and the first action of a plan of `PLAN_HORIZON` steps is taken in each state, as in
    model-predictive control. That is not quite the policy that maximises the objective, and what it loses is counted
    too.
    """
    shape = (system.horizon, len(system.reward))
    if method.name == "random":
        policy = rng.integers(len(system.actions), size=shape)
        return (np.tile(policy[0], (len(policy), 1)) if method.forever else policy), 0.0, 0.0
    reward = optimistic(beliefs, own.reward, own.dynamics) + _TIES * rng.random(system.reward.shape)
    tail = optimistic(beliefs, own.value, own.value) + _TIES * rng.random(system.reward.shape)
    steps, last = system.horizon, None
    if method.forever:
        steps, last = PLAN_HORIZON, plan_forever(beliefs.law, tail, system.gamma)[1].max(axis=1)
    policy, worth = plan(beliefs.law, reward, steps, system.gamma, last)
    promised = float(worth[0, system.start].max())
    policy = _worsened(policy, worth, method, episode, rng)
    end = None
    if method.forever:
        end = evaluate_forever(beliefs.law, policy[0], tail[..., None], system.gamma)
        policy = np.tile(policy[0], (steps, 1))
    got = evaluate(beliefs.law, policy, reward[..., None], system.gamma, end)
    lost = promised - float(got[system.start, 0])
    return (np.tile(policy[0], (system.horizon, 1)) if method.forever else policy), lost, promised


def _worsened(policy: Array, worth: Array, method: Method, episode: int, rng: np.random.Generator) -> Array:
    """What an imperfect planner finds: actions within its slack of the best, or the best of those it looked at."""
    if method.budget is not None:
        looked = int(method.budget + method.more * (episode - 1))
        seen = rng.integers(worth.shape[2], size=(*worth.shape[:2], looked))
        best = np.take_along_axis(worth, seen, axis=2).argmax(axis=2)
        return np.take_along_axis(seen, best[..., None], axis=2)[..., 0]
    if method.slack > 0:  # the worst that is allowed
        allowed = worth >= worth.max(axis=2, keepdims=True) - method.slack / episode**method.decay
        return np.where(allowed, worth, np.inf).argmin(axis=2)
    return policy
