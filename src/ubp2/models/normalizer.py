"""Running mean and variance of the observations (Welford), so that the model sees numbers of order one."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ubp2.config.schema import ModelConfig

__all__ = ["Normalizer", "init", "normalize", "observe", "units"]

FARTHEST = 1e30  # infinity normalises to a finite number: `agents/pebble.py` takes distances to it


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


def units(config: ModelConfig, stats: Normalizer) -> tuple[Array, Array]:
    """Zero and one of each coordinate: the mean [D], and the standard deviation [D], at least `obs_floor`."""
    std = jnp.sqrt(stats.square / jnp.maximum(stats.count, 1.0))
    return stats.mean, jnp.maximum(std, config.obs_floor)


def normalize(config: ModelConfig, stats: Normalizer, obs: Array) -> Array:
    """Observations [..., D] in units x of their standard deviation, bent where |x| exceeds `obs_limit`.

    sign(x) (min(|x|, limit) + tail log(1 + max(|x| - limit, 0))). An outlier cannot dominate a loss, and a coordinate
    that rested so far still shows how far it moves. `obs_tail` 0 clips. The three settings may be traced numbers.
    """
    mean, scale = (jnp.broadcast_to(part, obs.shape) for part in units(config, stats))
    x = (obs - mean) / scale
    size = jnp.abs(x)
    beyond = jnp.clip(size - config.obs_limit, 0.0, FARTHEST)
    return jnp.sign(x) * (jnp.minimum(size, config.obs_limit) + config.obs_tail * jnp.log1p(beyond))
