"""Where the candidate pairs of a session come from, and what a query strategy gets to see of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ubp2 import replay as replay_
from ubp2.config.schema import ModelConfig, PreferenceConfig, given
from ubp2.models import normalizer
from ubp2.models.normalizer import Normalizer
from ubp2.replay import Replay
from ubp2.types import Preferences, Segments

__all__ = ["describe", "draw", "repeats"]


def draw(preferences: PreferenceConfig, replay: Replay, key: Array) -> tuple[Segments, Array, Array]:
    """Candidate pairs as segments [2N], the two of a pair side by side, how many places there are, and `repeats` [N].

    Each segment is drawn uniformly over the places where one fits, in all of the replay or in the newest episodes. With
    `local` the second comes from the batch of consecutive episodes that the first belongs to. The two never overlap as
    long as there is room: a segment against itself is a sure tie, which `entropy` would ask first.
    """
    length, pairs = preferences.segment_length, max(preferences.candidates, preferences.per_session)
    k_first, k_second = jax.random.split(key)
    before = replay_.places(replay, length + (preferences.compat == "bpref-code"))  # [C + 1]
    low, high = jnp.zeros((), jnp.int32), before[-1]
    if preferences.candidates_from == "recent":
        newest = replay_.newest_episode(replay)
        low = before[replay_.age_of(replay, newest - given(preferences.candidate_episodes) + 1)]
    places = high - low
    start = jnp.full(pairs, low)
    since = before[jnp.maximum(replay_.size(replay) - preferences.every, 0)]
    newest_first = jnp.arange(pairs) < jnp.round(preferences.recent * pairs)
    start = jnp.where(newest_first & (since < high), since, start)
    first = jax.random.randint(k_first, (pairs,), start, jnp.maximum(high, start + 1))
    if preferences.candidates_from == "local":
        batch = given(preferences.candidate_episodes)
        oldest = replay_.segments_at(replay, before, first, length).episode // batch * batch  # [N]
        low, high = (before[replay_.age_of(replay, episode)] for episode in (oldest, oldest + batch))
    second = _apart(k_second, first, low, high, length)
    both = jnp.stack([first, second], axis=1).reshape(-1)
    return replay_.segments_at(replay, before, both, length), places, repeats(first, second)


def _apart(key: Array, place: Array, low: Array, high: Array, length: int) -> Array:
    """Another place [N] from low to high, uniform over those that are at least `length` away on a circle of them.

    On a circle, so that the other place is as uniform as the first one.
    """
    around = jnp.maximum(high - low, 1)
    gap = jnp.minimum(length, around // 2)
    offset = jax.random.randint(key, place.shape, gap, around - gap + 1)
    return low + (place - low + offset) % around


def repeats(first: Array, second: Array) -> Array:
    """Which of the pairs [N] of these places have come before, in either order: [N] bool.

    Draws do not know of each other, so where there are few places, pairs come several times. Sorted, equal pairs stand
    side by side in the order they came in.
    """
    low, high, index = jax.lax.sort(
        (jnp.minimum(first, second), jnp.maximum(first, second), jnp.arange(len(first))), num_keys=2
    )
    as_before = (low[1:] == low[:-1]) & (high[1:] == high[:-1])
    return jnp.zeros(len(first), bool).at[index[1:]].set(as_before)


def describe(segments: Segments, answered: Preferences) -> tuple[Array, Array, Array]:
    """Features of the pairs [N, F], of those answered so far [P, F], and which of the latter there are [P].

    The observations of both segments, flattened, in units of the candidates' own mean and deviation: coordinates then
    count alike. (B-Pref takes them raw, so that those with the largest numbers decide.)
    """
    seen = segments.obs.reshape(-1, segments.obs.shape[-1])
    mean = jnp.mean(seen, axis=0)
    stats = Normalizer(jnp.asarray(len(seen), jnp.float32), mean, jnp.sum((seen - mean[None]) ** 2, axis=0))

    def flat(*sides: Array) -> Array:
        return jnp.concatenate(
            [normalizer.normalize(ModelConfig(), stats, obs).reshape(len(obs), -1) for obs in sides], axis=1
        )

    mask = jnp.arange(len(answered.label)) < answered.count
    return flat(segments.obs[::2], segments.obs[1::2]), flat(answered.left_obs, answered.right_obs), mask
