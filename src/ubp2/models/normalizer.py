"""Running mean and variance of the observations (Welford), so that the model sees numbers of order one."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

__all__ = ["LIMIT", "Normalizer", "init", "normalize", "observe", "units"]

FLOOR = 1e-2  # a coordinate that hardly moves must not have its noise blown up
LIMIT = 10.0  # nor may a rare outlier dominate a loss


class Normalizer(NamedTuple):
    """Sufficient statistics of what was seen."""

    count: Array  # []
    mean: Array  # [D]
    square: Array  # [D] sum of squared deviations


def init(obs_dim: int) -> Normalizer:
    """Nothing seen."""
    return Normalizer(jnp.zeros(()), jnp.zeros(obs_dim), jnp.zeros(obs_dim))


def observe(stats: Normalizer, obs: Array) -> Normalizer:
    """Take one observation [D] into account."""
    count = stats.count + 1
    delta = obs - stats.mean
    mean = stats.mean + delta / count
    return Normalizer(count, mean, stats.square + delta * (obs - mean))


def units(stats: Normalizer) -> tuple[Array, Array]:
    """Zero and one of each coordinate: the mean [D], and the standard deviation [D] where it is not too small."""
    std = jnp.sqrt(stats.square / jnp.maximum(stats.count, 1.0))
    return stats.mean, jnp.maximum(std, FLOOR)


def normalize(stats: Normalizer, obs: Array) -> Array:
    """Observations [..., D] in units of their standard deviation."""
    mean, scale = (jnp.broadcast_to(part, obs.shape) for part in units(stats))
    return jnp.clip((obs - mean) / scale, -LIMIT, LIMIT)
