"""Recorded episodes as what training sees of them: a replay, the statistics of observations, labelled pairs."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2 import replay as replay_
from ubp2.models.normalizer import Normalizer
from ubp2.preference.teachers import Teacher
from ubp2.replay import Replay
from ubp2.types import Episode, Preferences, Segments

__all__ = ["draw", "fill", "observed", "take"]


def fill(episodes: Sequence[Episode]) -> Replay:
    """A replay that holds exactly these episodes."""
    frames = sum(len(episode.obs) for episode in episodes)
    empty = replay_.init(frames, episodes[0].obs.shape[1], episodes[0].action.shape[1])
    return replay_.load(empty, episodes)


def observed(episodes: Sequence[Episode]) -> Normalizer:
    """Statistics of every observation, as taking them in one by one gives them up to rounding."""
    obs = np.concatenate([episode.obs for episode in episodes]).astype(np.float64)
    mean = obs.mean(axis=0)
    sums = (len(obs), mean, ((obs - mean) ** 2).sum(axis=0))
    return Normalizer(*(jnp.asarray(part, jnp.float32) for part in sums))


def draw(
    replay: Replay, episodes: Sequence[Episode], count: int, length: int, teacher: Teacher, key: Array
) -> Preferences:
    """Pairs of segments drawn uniformly over the episodes, with the teacher's answers."""
    k_segments, k_teacher = jax.random.split(key)
    segments, _ = replay_.sample_segments(replay, k_segments, 2 * count, length)
    left, right = (jax.tree.map(lambda x, side=side: x[side::2], segments) for side in (0, 1))
    label, weight = teacher(
        int(jax.random.bits(k_teacher)), _rewards(episodes, left, length), _rewards(episodes, right, length)
    )
    answers = (jnp.asarray(label, jnp.float32), jnp.asarray(weight, jnp.float32))
    return Preferences(left.obs, left.action, right.obs, right.action, *answers, count=jnp.asarray(count, jnp.int32))


def take(pairs: Preferences, count: int) -> Preferences:
    """The first `count` pairs in a buffer of unchanged shape: one compiled fit serves every number of labels."""
    weight = jnp.where(jnp.arange(pairs.weight.shape[-1]) < count, pairs.weight, 0.0)
    return pairs._replace(weight=weight, count=jnp.full_like(pairs.count, count))


def _rewards(episodes: Sequence[Episode], segments: Segments, length: int) -> np.ndarray:
    """True rewards of the segments: [N, L]."""
    where = zip(np.asarray(segments.episode), np.asarray(segments.start), strict=True)
    return np.stack([episodes[episode].true_reward[start : start + length] for episode, start in where])
