"""Beyond the paper: the algorithm with a reward learned from comparisons in place of observed rewards.

The paper assumes a calibrated posterior of a proxy reward. Here the posterior comes from the comparisons themselves, so
that what the assumption hides can be seen: a constant is never identified, and whether the bonus may know that.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy import ndarray as Array
from scipy.special import expit

from ubp2.theory.algorithm import optimum
from ubp2.theory.comparisons import ComparisonGP
from ubp2.theory.findings import Findings
from ubp2.theory.grid import evaluate, plan
from ubp2.theory.growth import few
from ubp2.theory.learner import Beliefs, Knowledge, optimistic, roll
from ubp2.theory.options import Preferences
from ubp2.theory.regret import row
from ubp2.theory.systems import System, make_system

__all__ = ["AGENTS", "Agent", "run", "study"]

_SEGMENT = 5  # steps that are compared, half of an episode
_RANDOM_EPISODES = 1  # before it there is nothing to compare


class Agent(NamedTuple):
    """Where the reward comes from and what its bonus is made of; coefficients in posterior deviations."""

    reward: Literal["observed", "absolute", "relative"]
    a: float
    b: float


AGENTS = {
    "rewards observed": Agent("observed", 1.0, 1.0),
    "comparisons, bonus of differences": Agent("relative", 1.0, 1.0),
    "comparisons, bonus of the reward itself": Agent("absolute", 1.0, 1.0),
    "comparisons, dynamics bonus alone": Agent("relative", 0.0, 1.0),
    "comparisons, greedy": Agent("relative", 0.0, 0.0),
}


class _Trace(NamedTuple):
    regret: Array  # [N]
    bonus: Array  # [N], mean deviation of the reward along the episode that was just done, before learning from it
    covered: tuple[float, float]  # differences within two deviations at the end, at visited pairs and at all
    correlation: float  # of mean and true reward, over all pairs


def run(system: System, agent: Agent, episodes: int, labels: int, rng: np.random.Generator) -> _Trace:
    """Episodes of one agent; after each, `labels` segments of it are compared with segments of earlier ones."""
    knowledge, compared = Knowledge(system), ComparisonGP(system.reward_kernel, system.inputs)
    best, law, pairs = optimum(system, False), system.law, []
    regret, bonus = np.empty(episodes), np.empty(episodes)
    visited = np.zeros(system.reward.size)
    for n in range(episodes):
        beliefs = _beliefs(system, knowledge, compared, agent, visited)
        hopeful = optimistic(beliefs, agent.a, agent.b) + 1e-7 * rng.random(system.reward.shape)
        policy, _ = plan(beliefs.law, hopeful, system.horizon, system.gamma)
        if n < _RANDOM_EPISODES:
            policy = rng.integers(len(system.actions), size=policy.shape)
        regret[n] = best - evaluate(law, policy, system.reward[..., None], system.gamma)[system.start, 0]
        own, changes, rewards = roll(system, law, policy, rng)
        bonus[n] = beliefs.reward_std.ravel()[own].mean()
        knowledge.learn(own, changes, rewards if agent.reward == "observed" else None)
        np.add.at(visited, own, 1)
        pairs.append(own)
        if agent.reward != "observed" and len(pairs) > 1:
            compared.add(*_ask(system, pairs, labels, rng))
    last = _beliefs(system, knowledge, compared, agent, visited)
    return _Trace(regret, bonus, *_judged(system, last, visited))


def _beliefs(system: System, knowledge: Knowledge, compared: ComparisonGP, agent: Agent, visited: Array) -> Beliefs:
    beliefs = knowledge.beliefs()
    if agent.reward == "observed":
        return beliefs
    reference = visited / visited.sum() if agent.reward == "relative" and visited.any() else None
    mean, std = compared.posterior(reference)
    return beliefs._replace(reward=mean.reshape(system.reward.shape), reward_std=std.reshape(system.reward.shape))


def _ask(system: System, pairs: list[Array], labels: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Compare segments of the newest episode with segments of earlier ones; who answers follows Bradley-Terry."""
    visits = np.zeros((labels, system.reward.size))
    for row_ in visits:
        for sign, episode in ((1, pairs[-1]), (-1, pairs[int(rng.integers(len(pairs) - 1))])):
            begin = int(rng.integers(len(episode) - _SEGMENT + 1))
            np.add.at(row_, episode[begin : begin + _SEGMENT], sign)
    return visits, (rng.random(labels) < expit(visits @ system.reward.ravel())).astype(float)


def _judged(system: System, beliefs: Beliefs, visited: Array) -> tuple[tuple[float, float], float]:
    """Coverage of differences to the mean reward over visits, and correlation with the true reward."""
    weights = visited / visited.sum()
    true, mean = (own.ravel() - own.ravel() @ weights for own in (system.reward, beliefs.reward))
    held = np.abs(true - mean) <= 2 * beliefs.reward_std.ravel()
    return (float(held[visited > 0].mean()), float(held.mean())), float(np.corrcoef(true, mean)[0, 1])


def study(options: Preferences) -> Findings:
    """A row and a curve an agent."""
    system = make_system("hills", "rbf")
    rows, curves, bonuses = [], {}, {}
    for label, agent in AGENTS.items():
        traces = [
            run(system, agent, options.episodes, options.labels, np.random.default_rng([options.seed, i]))
            for i in range(options.repeats)
        ]
        regret, bonus = (np.array([getattr(own, name) for own in traces]) for name in ("regret", "bonus"))
        rows.append(
            row(label, regret)
            | {"bonus_first": float(bonus[:, 1].mean()), "bonus_last": float(bonus[:, -1].mean())}
            | dict(
                zip(("covered_visited", "covered_all"), np.mean([own.covered for own in traces], axis=0), strict=True)
            )
            | {"correlation": float(np.mean([own.correlation for own in traces]))}
        )
        curves[label], bonuses[label] = regret.cumsum(axis=1).tolist(), bonus.mean(axis=0).tolist()
    notes = [
        *few(options.repeats),
        f"hills, RBF kernel, {options.repeats} agents a row, {options.labels} comparisons of {_SEGMENT} steps an "
        "episode; coefficients of one posterior deviation. bonus: deviation of the reward along the second and the "
        "last episode. covered: share of pairs whose reward, relative to the mean over visits, lies within two "
        "deviations.",
    ]
    title = "Reward from comparisons"
    return Findings(
        "preferences", {title: rows}, {"title": title, "cumulative": curves, "reward deviation": bonuses}, notes
    )
