"""The simulation lemma for sub-Gaussian noise and the Lipschitz constant of the value, with every path of the noise.

Noise of +-R has 2^T paths in T steps, so that returns and sums of deviations are exact without a grid: states stay real
numbers. Dynamics, reward and policy are Lipschitz as the assumption asks, with constants that are known: a function of
norm B in the space of an RBF kernel of length l is B / l-Lipschitz. Sums stop after T steps on both sides; the proof
goes through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from ubp2.theory.bounds import beta
from ubp2.theory.findings import Findings
from ubp2.theory.functions import Member, random_member
from ubp2.theory.gp import GP
from ubp2.theory.growth import interval
from ubp2.theory.kernels import Kernel
from ubp2.theory.learner import DELTA
from ubp2.theory.options import Simulation

__all__ = ["Draw", "draw", "study", "value_slope"]

_KERNEL, _NOISE, _STEPS, _GAMMA = Kernel("rbf", 0.5), 0.1, 9, 0.9
_NORM, _REWARD_NORM, _POLICY = 0.3, 1.0, 0.5  # L_g = 0.6, L_r = 2, L_pi
_MOST_POINTS = 30
_POWERS = _GAMMA ** np.arange(_STEPS)


class Draw(NamedTuple):
    """Both sides of the lemma and of the corollary for one system."""

    difference: float  # of the returns under true and mean dynamics
    imagined: float  # lambda_SG times the sum of deviations in the mean model
    real: float  # the same in the true system
    imagined_error: float  # gamma L_V times the sum of |mu - g*| in the mean model
    real_error: float  # the same in the true system
    trivial: float  # what the span of the reward alone says of the difference
    slope: float  # steepest of the value, measured
    model_slope: float  # gamma L (1 + L_pi) of the mean dynamics, which the assumption does not bound


def value_slope(lipschitz: float, reward: float, policy: float, gamma: float) -> float:
    """Corollary D.11: L_V <= L_r (1 + L_pi) / (1 - gamma L_g (1 + L_pi))."""
    return reward * (1 + policy) / (1 - gamma * lipschitz * (1 + policy))


def _with_actions(states: Array, phase: float) -> Array:
    """States [n] and the actions of a policy that is 0.5-Lipschitz: [n, 2]."""
    return np.column_stack([states, _POLICY * np.sin(states + phase)])


def _paths(step: Callable[[Array], Array], phase: float, starts: Array) -> list[Array]:
    """Inputs [starts 2^t, 2] after each number of steps, over all signs of the noise."""
    states, seen = starts, []
    for _ in range(_STEPS):
        seen.append(_with_actions(states, phase))
        after = step(seen[-1])
        states = np.concatenate([after + _NOISE, after - _NOISE])
    return seen


def _sums(paths: list[Array], signal: Callable[[Array], Array], starts: int) -> Array:
    """Discounted sum of a signal, mean over paths, for each start."""
    means = [signal(inputs).reshape(-1, starts).mean(axis=0) for inputs in paths]
    return _POWERS @ np.array(means)


def draw(rng: np.random.Generator) -> Draw:
    """A random system, a posterior from some observations, and a random policy."""
    dynamics = random_member(rng, _KERNEL, 2, _NORM)
    reward = random_member(rng, _KERNEL, 2, _REWARD_NORM)
    points = int(rng.integers(_MOST_POINTS)) + 1
    inputs = rng.uniform(-1, 1, (points, 2))
    gp = GP(_KERNEL, _NOISE**2, inputs)
    gp.add(inputs, dynamics(inputs) + _NOISE * (2.0 * rng.integers(0, 2, (points, 1)) - 1))
    start, phase = rng.uniform(-1, 1, 1), float(rng.uniform(0, 2 * np.pi))
    slope = _GAMMA * value_slope(_NORM / _KERNEL.length, _REWARD_NORM / _KERNEL.length, _POLICY, _GAMMA)
    width = beta(_NORM, gp.gain(), DELTA, _NOISE, _NOISE)
    real = _paths(lambda x: dynamics(x)[:, 0], phase, start)
    imagined = _paths(lambda x: gp.predict(x)[0][:, 0], phase, start)
    returns = [_sums(paths, lambda x: reward(x)[:, 0], 1)[0] for paths in (real, imagined)]
    inside, outside = (slope * width * _sums(paths, lambda x: gp.predict(x)[1], 1)[0] for paths in (imagined, real))
    errors = [
        slope * _sums(paths, lambda x: np.abs(gp.predict(x)[0] - dynamics(x))[:, 0], 1)[0] for paths in (imagined, real)
    ]
    seen = reward(np.concatenate([*real, *imagined]))
    steep = _GAMMA * (1 + _POLICY) * _steepest(lambda x: gp.predict(x)[0][:, 0])
    return Draw(
        abs(returns[0] - returns[1]),
        inside,
        outside,
        errors[0],
        errors[1],
        float(np.ptp(seen)) * float(_POWERS.sum()),
        _measured_slope(dynamics, reward, phase),
        steep,
    )


def _measured_slope(dynamics: Member, reward: Member, phase: float) -> float:
    """Steepest secant of the value over starts."""
    starts = np.linspace(-1, 1, 41)
    values = _sums(_paths(lambda x: dynamics(x)[:, 0], phase, starts), lambda x: reward(x)[:, 0], len(starts))
    return float(np.max(np.abs(np.diff(values)) / np.diff(starts)))


def _steepest(function: Callable[[Array], Array]) -> float:
    """Largest gradient of a function on the square, by differences."""
    axis = np.linspace(-1, 1, 41)
    values = function(np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)).reshape(41, 41)
    return float(np.max(np.hypot(*np.gradient(values, axis, axis))))


def study(options: Simulation) -> Findings:
    """How often each side fails, and how wide it is."""
    draws = [draw(np.random.default_rng([options.seed, i])) for i in range(options.draws)]
    difference, imagined, real, inside, outside, trivial, slope, model = (
        np.array(column) for column in zip(*draws, strict=True)
    )
    limit = value_slope(_NORM / _KERNEL.length, _REWARD_NORM / _KERNEL.length, _POLICY, _GAMMA)
    cases = {
        "returns, sums in the mean model": (difference, imagined),
        "returns, sums in the true system": (difference, real),
        "returns, true error, sums in the mean model": (difference, inside),
        "returns, true error, sums in the true system": (difference, outside),
        "slope of the value (corollary)": (slope, np.full_like(slope, limit)),
    }
    rows = [
        {"inequality": name, "fails": float((left > right + 1e-9).mean())}
        | {"left": interval(left).mean, "right": interval(right).mean, "tightest": float(np.max(left / right))}
        | {"below_trivial": None if left is slope else float((right < trivial).mean())}
        for name, (left, right) in cases.items()
    ]
    notes = [
        f"{options.draws} systems with noise of +-{_NOISE:g}, all {2**_STEPS} paths of {_STEPS} steps. left and "
        "right: means of both sides; tightest: largest left over right; below trivial: share of systems where the "
        "right side is below what the span of the reward alone says of the left one. true error: |mu - g*| in place of "
        "beta sigma.",
        "gamma L (1 + L_pi) of the mean dynamics, which the second inequality's proof needs below 1 and no "
        f"assumption bounds: {float((model >= 1).mean()):.3g} of the systems have it at 1 or above (largest "
        f"{model.max():.3g}).",
    ]
    curves = {"difference": difference.tolist(), "imagined": imagined.tolist(), "real": real.tolist()}
    return Findings("simulation", {"sub-Gaussian simulation lemma": rows}, curves, notes)
