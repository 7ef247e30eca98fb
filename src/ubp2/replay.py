"""The agent's memory: a ring of frames on the device, as pure functions. It has no reward field.

A slot holds an observation and the action taken there. The last observation of an episode takes a slot of its own
with a zero action, so the observation after slot i is slot i + 1 whenever both belong to the same episode.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from ubp2.types import Batch, Episode, Frame, Segments

__all__ = [
    "Replay",
    "age_of",
    "extend",
    "init",
    "load",
    "newest_episode",
    "observations",
    "places",
    "sample",
    "sample_segments",
    "segments_at",
    "size",
]


class Replay(NamedTuple):
    """Frames in the order they came; slot `total % capacity` is written next."""

    frames: Frame  # each leaf [C, ...]
    total: Array  # [] int32, frames ever added


def init(capacity: int, obs_dim: int, action_dim: int, obs_type: DTypeLike = jnp.float32) -> Replay:
    """An empty ring of `capacity` frames. Whatever the type of its observations, those drawn from it are float32."""
    frames = Frame(
        obs=jnp.zeros((capacity, obs_dim), obs_type),
        action=jnp.zeros((capacity, action_dim), jnp.float32),
        terminated=jnp.zeros((capacity,), bool),
        episode=jnp.full((capacity,), -1, jnp.int32),
        step=jnp.zeros((capacity,), jnp.int32),
    )
    return Replay(frames, jnp.zeros((), jnp.int32))


def extend(replay: Replay, frames: Frame, count: Array) -> Replay:
    """Write the first `count` of these frames [N, ...] over the oldest.

    All in one scatter, which drops what lies out of bounds: XLA copies a ring that is written to twice in a program, or
    that is selected from two.
    """
    capacity, number = replay.frames.episode.shape[0], jnp.arange(frames.episode.shape[0])
    slot = jnp.where(number < count, (replay.total + number) % capacity, capacity)
    rings = jax.tree.map(lambda ring, x: ring.at[slot].set(x.astype(ring.dtype), mode="drop"), replay.frames, frames)
    return Replay(rings, replay.total + count)


def _slots(replay: Replay, age: Array) -> Array:
    """Slot of the frame that is `age` places after the oldest."""
    capacity = replay.frames.episode.shape[0]
    oldest = jnp.where(replay.total > capacity, replay.total % capacity, 0)
    return (oldest + age) % capacity


def size(replay: Replay) -> Array:
    """Frames that it holds."""
    return jnp.minimum(replay.total, replay.frames.episode.shape[0])


def sample(replay: Replay, key: Array, batch_size: int, horizon: int) -> Batch:
    """Sub-sequences of `horizon` decisions that start uniformly over the replay; masked beyond the episode's end."""
    last_start = jnp.maximum(size(replay) - horizon, 1)
    start = jax.random.randint(key, (batch_size,), 0, last_start)
    slots = _slots(replay, start[None] + jnp.arange(horizon + 1)[:, None])  # [H+1, N]
    frames = jax.tree.map(lambda ring: ring[slots], replay.frames)
    inside = (frames.episode[1:] == frames.episode[:1]) & (frames.episode[:1] >= 0)  # slots never written have -1
    mask = inside.astype(jnp.float32)
    return Batch(frames.obs.astype(jnp.float32), frames.action[:-1], frames.terminated[:-1], mask, slots[:-1])


def observations(replay: Replay, key: Array, count: int) -> tuple[Array, Array]:
    """Observations [count, D] of frames drawn uniformly, and their slots [count].

    Of a replay that holds no more, each once, then infinity.
    """
    held = size(replay)
    drawn = jax.random.randint(key, (count,), 0, jnp.maximum(held, 1))
    age = jnp.where(held <= count, jnp.arange(count), drawn)
    slots = _slots(replay, age)
    obs = replay.frames.obs[slots].astype(jnp.float32)
    return jnp.where((age < held)[:, None], obs, jnp.inf), slots


def sample_segments(replay: Replay, key: Array, count: int, length: int) -> tuple[Segments, Array]:
    """`count` segments drawn uniformly over every place where `length` decisions of one episode fit.

    Also returns how many such places there are: with none, the segments mean nothing.
    """
    before = places(replay, length)
    pick = jax.random.randint(key, (count,), 0, jnp.maximum(before[-1], 1))
    return segments_at(replay, before, pick, length), before[-1]


def places(replay: Replay, length: int) -> Array:
    """How many segments of `length` decisions start before each age (0: the oldest frame): [C + 1], at the end all."""
    age = jnp.arange(replay.frames.episode.shape[0])
    first, last = _slots(replay, age), _slots(replay, age + length)
    same = replay.frames.episode[first] == replay.frames.episode[last]
    fits = same & (age + length < size(replay))
    return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(fits, dtype=jnp.int32)])


def segments_at(replay: Replay, before: Array, place: Array, length: int) -> Segments:
    """The segments at these of the `places` [N], counted from the oldest."""
    start = jnp.searchsorted(before[1:], place + 1)  # place k is where the count first reaches k + 1
    slots = _slots(replay, start[:, None] + jnp.arange(length))  # [N, L]
    frames = jax.tree.map(lambda ring: ring[slots], replay.frames)
    return Segments(frames.obs.astype(jnp.float32), frames.action, frames.episode[:, 0], frames.step[:, 0])


def newest_episode(replay: Replay) -> Array:
    """Number of the episode that the last frame belongs to."""
    return replay.frames.episode[_slots(replay, size(replay) - 1)]


def age_of(replay: Replay, episode: Array) -> Array:
    """Age of the first frame of this episode or, if it is no longer there, of a later one."""
    age = jnp.arange(replay.frames.episode.shape[0])
    numbers = jnp.where(age < size(replay), replay.frames.episode[_slots(replay, age)], jnp.iinfo(jnp.int32).max)
    return jnp.searchsorted(numbers, episode)


def load(replay: Replay, episodes: Iterable[Episode]) -> Replay:
    """The replay that adding these episodes frame by frame to an empty one gives (used when a run is resumed).

    They may come from the disk one at a time. One without its last observation is an episode in progress.
    """
    ring = jax.tree.map(np.array, replay.frames)
    capacity, total = ring.episode.shape[0], int(replay.total)
    for episode in episodes:
        decisions = len(episode.action)
        slots = (total + np.arange(len(episode.obs))) % capacity
        if len(slots) > capacity:
            raise ValueError(f"an episode of {decisions} decisions does not fit into a replay of {capacity} frames")
        ring.obs[slots] = episode.obs
        ring.action[slots] = np.concatenate([episode.action, np.zeros_like(episode.action[:1])])[: len(slots)]
        ring.terminated[slots] = False
        if episode.terminated:
            ring.terminated[slots[decisions - 1]] = True
        ring.episode[slots] = episode.index
        ring.step[slots] = np.arange(len(slots))
        total += len(slots)
    return Replay(jax.tree.map(jnp.asarray, ring), jnp.asarray(total, jnp.int32))
