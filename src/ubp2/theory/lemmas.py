"""Both sides of the paper's inequalities for one system, one state of knowledge and one policy.

Names follow the paper: a tilde there is a rollout in the mean model, `imagined` here; without one it is `real`. Rows of
sums are (r, mu^r, sigma^r, |sigma^d|).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from ubp2.theory.bounds import return_coefficient
from ubp2.theory.grid import evaluate, evaluate_forever
from ubp2.theory.learner import Beliefs, Knowledge, coefficients
from ubp2.theory.systems import System

__all__ = ["Sides", "Sums", "calibrated", "q_error_and_bound", "single_episode", "sums", "sums_forever"]


class Sums(NamedTuple):
    """Discounted sums under a policy from the start: of r, mu^r, sigma^r and |sigma^d|."""

    reward: float
    mean_reward: float
    reward_std: float
    dynamics_std: float


class Sides(NamedTuple):
    """What the lemma on a single episode says: regret, and bounds of it."""

    regret: float
    printed: float  # (b'^2 + 2 b') Sigma^d + (a^2 + a) Sigma^r
    corrected: float  # see `single_episode`
    spilled: float  # the step (tilde Sigma^r - Sigma^r) - a Sigma^r, which the paper has below 0
    spilled_corrected: float  # the same, against lambda_sigma Sigma^d


def _signals(system: System, beliefs: Beliefs) -> Array:
    return np.stack([system.reward, beliefs.reward, beliefs.reward_std, beliefs.dynamics_std], axis=-1)


def sums(system: System, beliefs: Beliefs, policy: Array) -> tuple[Sums, Sums]:
    """Imagined and real sums over the horizon under actions [H, S]."""
    signals = _signals(system, beliefs)
    imagined, real = (evaluate(law, policy, signals, system.gamma)[system.start] for law in (beliefs.law, system.law))
    return Sums(*imagined), Sums(*real)


def sums_forever(system: System, beliefs: Beliefs, policy: Array) -> tuple[Array, Array]:
    """Imagined and real sums [S, 4] without end under stationary actions [S], from every state."""
    signals = _signals(system, beliefs)
    imagined, real = (evaluate_forever(law, policy, signals, system.gamma) for law in (beliefs.law, system.law))
    return imagined, real


def calibrated(system: System, knowledge: Knowledge) -> bool:
    """Whether the intervals of dynamics and reward hold at all pairs: what every lemma assumes."""
    wide, wide_reward = knowledge.betas()
    mean, std = knowledge.dynamics.posterior()
    off = np.abs(mean - system.change.reshape(mean.shape)) - wide * std[:, None]
    worth, worth_std = knowledge.reward.posterior()
    off_reward = np.abs(worth[:, 0] - system.reward.ravel()) - wide_reward * worth_std
    return bool(max(off.max(), off_reward.max()) <= 1e-9)


def q_error_and_bound(system: System, knowledge: Knowledge, beliefs: Beliefs, policy: Array) -> tuple[float, float]:
    """Lemma q-estimation-bound: |Q bar - Q|, and its bound where the two are closest.

    The Lipschitz constant times the distance of the means is replaced by what it bounds under Gaussian noise, the
    span of the value times the distance in total variation.
    """
    own = coefficients(knowledge, forever=True)
    imagined, real = sums_forever(system, beliefs, policy)
    error = np.abs(imagined[:, 1] - real[:, 0])
    bound = own.reward * imagined[:, 2] + own.dynamics * imagined[:, 3]
    closest = int((bound - error).argmin())
    return float(error[closest]), float(bound[closest])


def single_episode(system: System, knowledge: Knowledge, beliefs: Beliefs, policy: Array, best: float) -> Sides:
    """Lemma single_regret_bound for the policy that maximises the optimistic objective, as printed and corrected.

    The optimistic objective sums mu^r, not r: going from one to the other costs a tilde Sigma^r once more. And tilde
    Sigma^r - Sigma^r comes from rolling out the same deviations under other dynamics: it is bounded by lambda times
    Sigma^d, where lambda has the span of sigma^r in place of that of the reward. Together
    r_n <= 2 a Sigma^r + (2 a lambda_r + b lambda_d + b + lambda) Sigma^d.
    """
    own = coefficients(knowledge)
    wide, _ = knowledge.betas()
    a, b = own.reward, own.dynamics

    def slope(signal: Array) -> float:
        return return_coefficient(wide, float(np.ptp(signal)), system.noise.scale, system.gamma, system.horizon)

    slope_reward, slope_dynamics = slope(beliefs.reward_std), slope(beliefs.dynamics_std)
    imagined, real = sums(system, beliefs, policy)
    spilled = imagined.reward_std - real.reward_std
    return Sides(
        best - real.reward,
        (b * b + 2 * b) * real.dynamics_std + (a * a + a) * real.reward_std,
        2 * a * real.reward_std + (2 * a * slope_reward + b * slope_dynamics + 2 * b) * real.dynamics_std,
        spilled - a * real.reward_std,
        spilled - slope_reward * real.dynamics_std,
    )
