"""Answered comparisons on the device: a buffer of fixed capacity, as pure functions. The label store owns the truth."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from ubp2.types import Preferences

__all__ = ["crops", "extend", "init", "sample", "shuffled"]


def init(capacity: int, length: int, obs_dim: int, action_dim: int, obs_type: DTypeLike = jnp.float32) -> Preferences:
    """An empty buffer."""
    obs, action = jnp.zeros((capacity, length, obs_dim), obs_type), jnp.zeros((capacity, length, action_dim))
    zeros = jnp.zeros(capacity)
    # Every field is an array of its own: a donated buffer must not occur twice.
    return Preferences(obs, action, jnp.copy(obs), jnp.copy(action), zeros, jnp.copy(zeros), jnp.zeros((), jnp.int32))


def extend(buffer: Preferences, rows: Preferences) -> Preferences:
    """Add the first `rows.count` of these rows; beyond the capacity nothing is written."""
    capacity, width = buffer.label.shape[0], rows.label.shape[0]
    slot = buffer.count + jnp.arange(width)
    slot = jnp.where(jnp.arange(width) < rows.count, slot, capacity)  # out of bounds, and dropped
    filled = (
        kept.at[slot].set(new.astype(kept.dtype), mode="drop") for kept, new in zip(buffer[:6], rows[:6], strict=True)
    )
    return Preferences(*filled, count=jnp.minimum(buffer.count + rows.count, capacity))


def sample(buffer: Preferences, key: Array, count: int, bootstrap: int | None = None) -> Preferences:
    """A minibatch drawn uniformly with replacement; from an empty buffer its weights are zero.

    bootstrap: the number of members, each of which has its own half of the labels; weights are then [E, P].
    """
    index = jax.random.randint(key, (count,), 0, jnp.maximum(buffer.count, 1))
    batch = Preferences(
        *(rows[index].astype(jnp.float32) for rows in buffer[:6]), count=jnp.minimum(buffer.count, count)
    )
    weight = jnp.where(buffer.count > 0, batch.weight, 0.0)
    return batch._replace(weight=weight if bootstrap is None else weight * _halves(index, bootstrap))


def shuffled(buffer: Preferences, key: Array) -> Array:
    """The numbers of all rows in random order, those that are not filled last: [P]."""
    filled = jnp.arange(len(buffer.label)) < buffer.count
    return jnp.argsort(jnp.where(filled, jax.random.uniform(key, filled.shape), 2.0))


def crops(key: Array, shape: tuple[int, ...], shortest: int) -> tuple[Array, Array]:
    """Which decisions of both sides count, [..., L] each: of a pair as many on each side, with starts of their own."""
    k_size, *k_sides = jax.random.split(key, 3)
    size = jax.random.randint(k_size, shape[:-1], shortest, shape[-1] + 1)[..., None]
    step = jnp.arange(shape[-1])

    def stretch(key: Array) -> Array:
        start = jax.random.randint(key, size.shape, 0, shape[-1] - size + 1)
        return ((step >= start) & (step < start + size)).astype(jnp.float32)

    left, right = map(stretch, k_sides)
    return left, right


def _halves(index: Array, members: int) -> Array:
    """Double or nothing [E, P]: whether a member has a label depends on the two alone, and never changes."""
    keys = jax.vmap(partial(jax.random.fold_in, jax.random.key(0)))(index)
    return 2.0 * jax.vmap(lambda key: jax.random.bernoulli(key, shape=(members,)), out_axes=1)(keys)
