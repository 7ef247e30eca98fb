"""What an agent of the theory knows after some episodes, the optimistic objective, and the episodes themselves."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from ubp2.theory.bounds import beta, return_coefficient
from ubp2.theory.gp import GP
from ubp2.theory.grid import Transitions
from ubp2.theory.systems import System

__all__ = ["DELTA", "Beliefs", "Coefficients", "Knowledge", "coefficients", "optimistic", "roll"]

DELTA = 0.1  # probability with which any interval may fail


class Beliefs(NamedTuple):
    """Posterior of a model on all pairs of states and actions."""

    law: Transitions  # of the mean dynamics, with the process noise of the true ones
    reward: Array  # [S, A], the mean
    reward_std: Array  # [S, A]
    dynamics_std: Array  # [S, A], norm over coordinates


class Coefficients(NamedTuple):
    """a_n, b_n and c_n of the optimistic objective: what a unit of each uncertainty is paid."""

    reward: float
    dynamics: float
    value: float


class Knowledge:
    """The two Gaussian processes and the data that they have seen."""

    def __init__(self, system: System) -> None:
        self.system, self.inputs = system, system.inputs
        self.dynamics = GP(system.dynamics_kernel, system.noise.scale**2, self.inputs, outputs=system.change.shape[2])
        self.reward = GP(system.reward_kernel, system.reward_noise.scale**2, self.inputs)

    def learn(self, pairs: Array, changes: Array, rewards: Array | None) -> None:
        """Take in an episode: numbers of pairs [T], observed changes [T, d] and rewards [T] (None: unobserved)."""
        self.dynamics.add(self.inputs[pairs], changes)
        if rewards is not None:
            self.reward.add(self.inputs[pairs], rewards[:, None])

    def beliefs(self) -> Beliefs:
        system = self.system
        change, deviation = self.dynamics.posterior()
        worth, worth_deviation = self.reward.posterior()
        shape = system.reward.shape
        return Beliefs(
            system.law_of(change.reshape(system.change.shape)),
            worth.reshape(shape),
            worth_deviation.reshape(shape),
            math.sqrt(system.change.shape[2]) * deviation.reshape(shape),
        )

    def betas(self, delta: float = DELTA) -> tuple[float, float]:
        """Widths of the confidence intervals of dynamics and reward, which hold together with probability 1 - delta."""
        system = self.system
        share = delta / (system.change.shape[2] + 1)  # every coordinate and the reward may fail

        def width(gp: GP, norm: float, scale: float) -> float:
            return beta(norm, gp.gain(), share, scale, math.sqrt(gp.variance))

        return (
            width(self.dynamics, system.dynamics_norm, system.noise.scale),
            width(self.reward, system.reward_norm, system.reward_noise.scale),
        )


def coefficients(knowledge: Knowledge, scale: float = 1.0, *, forever: bool = False) -> Coefficients:
    """`scale` times the coefficients with which the objective is proved to be optimistic under Gaussian noise.

    The value's uncertainty is the discounted sum of both others (alpha_r = alpha_d = 1), so that c_n is their maximum.
    """
    system = knowledge.system
    dynamics, reward = knowledge.betas()
    horizon = None if forever else system.horizon
    b = scale * return_coefficient(dynamics, system.span, system.noise.scale, system.gamma, horizon)
    a = scale * reward
    return Coefficients(a, b, max(a, b))


def optimistic(beliefs: Beliefs, a: float, b: float) -> Array:
    """mu^r + a sigma^r + b |sigma^d| for every pair [S, A]."""
    return beliefs.reward + a * beliefs.reward_std + b * beliefs.dynamics_std


def roll(system: System, law: Transitions, policy: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """One episode of actions [T, S]: numbers of pairs [T], and changes [T, d] and rewards [T] as they are observed."""
    many = len(system.actions)
    noise = system.noise.draw(rng, (len(policy), system.change.shape[2]))
    points, state, pairs = system.grid.points, system.start, []
    for actions, own in zip(policy, noise, strict=True):
        action = int(actions[state])
        pairs.append(state * many + action)
        state = system.grid.nearest(points[state] + system.change[state, action] + own)
    visited = np.array(pairs)
    changes = system.change.reshape(-1, system.change.shape[2])[visited] + noise
    rewards = system.reward.ravel()[visited] + system.reward_noise.draw(rng, visited.shape)
    return visited, changes, rewards
