"""Answered comparisons on the device: a buffer of fixed capacity, as pure functions. The label store owns the truth."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2.types import Preferences, Query

__all__ = ["append", "init", "sample"]


def init(capacity: int, length: int, obs_dim: int, action_dim: int) -> Preferences:
    """An empty buffer."""
    obs, action = jnp.zeros((capacity, length, obs_dim)), jnp.zeros((capacity, length, action_dim))
    zeros = jnp.zeros(capacity)
    # Every field is an array of its own: the buffers are donated when a label is appended.
    return Preferences(
        obs, action, jnp.copy(obs), jnp.copy(action), zeros, jnp.copy(zeros), jnp.zeros((), jnp.int32)
    )


@jax.jit
def _set(buffer: Preferences, row: Preferences) -> Preferences:
    filled = jax.tree.map(lambda all_rows, x: all_rows.at[buffer.count].set(x), buffer[:-1], row[:-1])
    return Preferences(*filled, buffer.count + 1)


def append(buffer: Preferences, query: Query, label: float, weight: float) -> Preferences:
    """Add one answer; beyond the capacity nothing is written."""
    row = Preferences(
        query.left_obs,
        query.left_action,
        query.right_obs,
        query.right_action,
        np.float32(label),
        np.float32(weight),
        np.int32(0),
    )
    return _set(buffer, row)


def sample(buffer: Preferences, key: Array, count: int) -> Preferences:
    """A minibatch drawn uniformly with replacement; from an empty buffer its weights are zero."""
    index = jax.random.randint(key, (count,), 0, jnp.maximum(buffer.count, 1))
    rows = jax.tree.map(lambda all_rows: all_rows[index], buffer[:-1])
    batch = Preferences(*rows, jnp.minimum(buffer.count, count))
    return batch._replace(weight=jnp.where(buffer.count > 0, batch.weight, 0.0))
