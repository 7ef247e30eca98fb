"""Decision processes on a grid, where planning and evaluation are exact sums.

The state moves to mean + noise and is rounded to the nearest point of the grid; what is observed is the state before
rounding. So the noise of the observations is that of the theory, and the law of the next state is a finite table: true
and learned dynamics are rounded alike, and whatever holds for distances between their laws before rounding holds after.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from ubp2.theory.noise import Noise

__all__ = [
    "Grid",
    "Transitions",
    "evaluate",
    "evaluate_forever",
    "plan",
    "plan_forever",
    "transitions",
]


class Grid(NamedTuple):
    """A product of axes, each ascending in [-1, 1]."""

    axes: tuple[Array, ...]

    @property
    def points(self) -> Array:
        """All states [S, d], the last axis fastest."""
        return np.stack([axis.ravel() for axis in np.meshgrid(*self.axes, indexing="ij")], axis=1)

    def nearest(self, state: Array) -> int:
        """Number of the point that a state [d] is rounded to."""
        index = 0
        for axis, value in zip(self.axes, state, strict=True):
            index = index * len(axis) + int(np.searchsorted((axis[1:] + axis[:-1]) / 2, value))
        return index


class Transitions(NamedTuple):
    """P(next state | state, action) as a product over axes: [S, A, n] for each axis."""

    factors: tuple[Array, ...]

    def expect(self, values: Array) -> Array:
        """Expectation of values [S, k] at the next state: [S, A, k]."""
        first, *rest = self.factors
        states, actions, size = first.shape
        if not rest:
            return (first.reshape(-1, size) @ values).reshape(states, actions, -1)
        (second,) = rest
        table = values.reshape(size, second.shape[2], -1)
        inner = np.tensordot(first, table, axes=(2, 0))  # [S, A, n2, k]
        return np.einsum("sajk,saj->sak", inner, second)

    def under(self, policy: Array) -> Array:
        """The matrix [S, S] of a stationary policy [S]."""
        rows = [factor[np.arange(len(policy)), policy] for factor in self.factors]
        joint = rows[0]
        for row in rows[1:]:
            joint = (joint[:, :, None] * row[:, None, :]).reshape(len(policy), -1)
        return joint


def transitions(grid: Grid, mean: Array, noise: Noise) -> Transitions:
    """The law of the rounded next state for means [S, A, d]; what leaves the grid stops at its edge."""
    factors = []
    for i, axis in enumerate(grid.axes):
        below = noise.below((axis[1:] + axis[:-1]) / 2 - mean[..., i, None])
        ends = (*below.shape[:-1], 1)
        factors.append(np.diff(np.concatenate([np.zeros(ends), below, np.ones(ends)], axis=-1), axis=-1))
    return Transitions(tuple(factors))


def plan(law: Transitions, reward: Array, horizon: int, gamma: float, last: Array | None = None) -> tuple[Array, Array]:
    """The best actions [H, S] for a reward [S, A] and a terminal value [S], and the values [H, S, A] of all actions."""
    value = np.zeros(reward.shape[0]) if last is None else last
    worth = np.empty((horizon, *reward.shape))
    for t in reversed(range(horizon)):
        worth[t] = reward + gamma * law.expect(value[:, None])[..., 0]
        value = worth[t].max(axis=1)
    return worth.argmax(axis=2), worth


def plan_forever(law: Transitions, reward: Array, gamma: float) -> tuple[Array, Array]:
    """The best stationary actions [S] and the values [S, A], by policy iteration."""
    policy = reward.argmax(axis=1)
    while True:
        value = evaluate_forever(law, policy, reward[..., None], gamma)
        worth = reward + gamma * law.expect(value)[..., 0]
        better = worth.max(axis=1) > np.take_along_axis(worth, policy[:, None], axis=1)[:, 0] + 1e-9
        if not better.any():
            return policy, worth
        policy = np.where(better, worth.argmax(axis=1), policy)


def evaluate(law: Transitions, policy: Array, signals: Array, gamma: float, last: Array | None = None) -> Array:
    """Discounted sums [S, k] of signals [S, A, k] under actions [H, S], plus a terminal value [S, k]."""
    total = np.zeros((signals.shape[0], signals.shape[2])) if last is None else last
    states = np.arange(signals.shape[0])
    for actions in policy[::-1]:
        chosen = Transitions(tuple(factor[states, actions][:, None] for factor in law.factors))
        total = signals[states, actions] + gamma * chosen.expect(total)[:, 0]
    return total


def evaluate_forever(law: Transitions, policy: Array, signals: Array, gamma: float) -> Array:
    """Discounted sums [S, k] of signals [S, A, k] under stationary actions [S], without end."""
    matrix = np.eye(len(policy)) - gamma * law.under(policy)
    return np.linalg.solve(matrix, signals[np.arange(len(policy)), policy])
