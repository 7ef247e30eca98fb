"""Where candidate pairs come from, on a replay small enough to list every place."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from tests.conftest import quick_jit
from ubp2 import replay as replay_
from ubp2.config.schema import PreferenceConfig
from ubp2.preference import buffer, candidates
from ubp2.replay import Replay
from ubp2.types import Episode, Segments

LENGTH, PAIRS = 3, 2000
LENGTHS = [9, 7, 2, 12, 8, 10]  # decisions an episode; the third has no place for a segment
PREFERENCES = PreferenceConfig(segment_length=LENGTH, per_session=4, every=12, candidates=PAIRS)


def episode(number: int, decisions: int) -> Episode:
    """Observations say where they are."""
    obs = np.stack([np.full(decisions + 1, number), np.arange(decisions + 1)], axis=1).astype(np.float32)
    empty = np.zeros(decisions)
    return Episode(number, 0, obs, np.zeros((decisions, 1), np.float32), empty, empty.astype(bool), False)


def filled(capacity: int = 64) -> Replay:
    """A replay of these episodes; a smaller one has lost the first frames."""
    return replay_.load(replay_.init(capacity, 2, 1), (episode(*numbered) for numbered in enumerate(LENGTHS)))


def draw(replay: Replay, **changes: Any) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """(episode, start) of the first and of the second segments of all pairs, and the number of places."""
    preferences = replace(PREFERENCES, **changes)
    segments, places, _ = quick_jit(lambda replay, key: candidates.draw(preferences, replay, key))(
        replay, jax.random.key(0)
    )
    where = list(zip(segments.episode.tolist(), segments.start.tolist(), strict=True))
    np.testing.assert_array_equal(segments.obs[:, 0], np.array(where, np.float32))
    return where[::2], where[1::2], int(places)


def places(episodes: Any = range(6)) -> set[tuple[int, int]]:
    """Where a segment fits, in these episodes or in all."""
    return {(e, start) for e in episodes for start in range(LENGTHS[e] - LENGTH + 1)}


def evenly(drawn: list[tuple[int, int]], among: set[tuple[int, int]]) -> bool:
    """Whether all of these, and no others, come as often as each other, at a level of one in ten thousand."""
    counts, expected = Counter(drawn), len(drawn) / len(among)
    statistic = sum((n - expected) ** 2 / expected for n in counts.values())
    return set(counts) == among and statistic <= float(chi2.ppf(0.9999, len(among) - 1))


def overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] == second[0] and abs(first[1] - second[1]) < LENGTH


def test_from_the_whole_replay() -> None:
    first, second, count = draw(filled())
    assert count == len(places()) and evenly(first, places()) and evenly(second, places())
    assert not any(map(overlap, first, second))


def test_from_a_ring_that_has_lapped_itself() -> None:
    """40 of 54 frames are left: episode 0 is gone, and of episode 1 the first four are."""
    held = {place for place in places() if place >= (1, 4)}
    first, second, count = draw(filled(40))
    assert count == len(held) and evenly(first, held) and evenly(second, held)


@pytest.mark.parametrize(("episodes", "newest"), [(2, [4, 5]), (4, [2, 3, 4, 5]), (100, range(6))])
def test_from_the_newest_episodes(episodes: int, newest: Any) -> None:
    first, second, count = draw(filled(), candidates_from="recent", candidate_episodes=episodes)
    assert count == len(places(newest)) and evenly(first, places(newest)) and evenly(second, places(newest))
    assert not any(map(overlap, first, second))


@pytest.mark.parametrize(("episodes", "batches"), [(1, [[e] for e in range(6)]), (2, [[0, 1], [2, 3], [4, 5]])])
def test_from_one_batch_of_episodes_a_pair(episodes: int, batches: list[list[int]]) -> None:
    first, second, count = draw(filled(), candidates_from="local", candidate_episodes=episodes)
    assert count == len(places()) and evenly(first, places()) and evenly(second, places())
    assert {a[0] // episodes - b[0] // episodes for a, b in zip(first, second, strict=True)} == {0}
    for batch in batches:
        own = [b for a, b in zip(first, second, strict=True) if a[0] in batch]
        assert evenly(own, places(batch)) if own else not places(batch)
    overlaps = {pair for pair in zip(first, second, strict=True) if overlap(*pair)}
    assert {a[0] for a, _ in overlaps} <= ({1} if episodes == 1 else set())  # five places have no room for two apart


def test_a_share_of_new_segments() -> None:
    """Half of the pairs begin with one of the last twelve frames, all of episode 5: starts 0 to 7 fit."""
    first, second, count = draw(filled(), recent=0.5)
    assert count == len(places())
    assert evenly(first[: PAIRS // 2], places([5])) and evenly(first[PAIRS // 2 :], places())
    assert set(second[: PAIRS // 2]) == places() and not any(map(overlap, first, second))
    # Nothing is new where no episode since has room for a segment.
    assert evenly(draw(filled(), recent=1.0, every=2)[0], places())


def test_segments_of_the_published_code_never_end_with_their_episode() -> None:
    first, second, count = draw(filled(), compat="bpref-code")
    among = {(e, start) for e in range(6) for start in range(LENGTHS[e] - LENGTH)}
    assert evenly(first, among) and evenly(second, among) and count == len(among)


def test_no_place_is_said_so() -> None:
    empty = replay_.init(64, 2, 1)
    for source in ("replay", "recent", "local"):
        assert draw_count(empty, source) == 0
    assert draw_count(replay_.load(empty, [episode(0, 9), episode(1, 2)]), "recent") == 0


def draw_count(replay: Replay, source: Any) -> int:
    episodes = None if source == "replay" else 1
    preferences = replace(PREFERENCES, candidates=4, candidates_from=source, candidate_episodes=episodes)
    return int(candidates.draw(preferences, replay, jax.random.key(0))[1])


def test_features_are_normalised_observations_of_both_segments() -> None:
    """By hand: two pairs of segments of two decisions, two coordinates, the second a thousand times the first."""
    unit = np.array([1.0, 1000.0], np.float32)
    numbers = np.array([[-3, -1], [1, 3], [-1, 1], [3, -3]], np.float32)[..., None]  # mean 0, variance 5
    segments = Segments(jnp.array(7 + numbers * unit), jnp.zeros((4, 2, 1)), jnp.arange(4), jnp.arange(4))
    rows = buffer.init(3, 2, 2, 1)
    obs = jnp.broadcast_to(7 + unit, (3, 2, 2))
    answered = rows._replace(left_obs=obs, right_obs=2 * obs - 7, count=jnp.array(1))  # one and two units off the mean
    features, labelled, mask = candidates.describe(segments, answered)
    np.testing.assert_allclose(features, np.repeat(numbers.reshape(2, 4), 2, axis=1) / np.sqrt(5), rtol=1e-4)
    np.testing.assert_allclose(labelled, np.tile([1, 1, 1, 1, 2, 2, 2, 2], (3, 1)) / np.sqrt(5), rtol=1e-4)
    assert mask.tolist() == [True, False, False]
