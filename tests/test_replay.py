"""The ring of frames against a plain Python list of everything that was added."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import pytest
from scipy.stats import chi2

from tests.conftest import add, quick_jit
from ubp2 import replay as replay_
from ubp2.replay import Replay
from ubp2.types import Episode, Frame

CAPACITY, HORIZON, LENGTH = 23, 4, 3
add_one = quick_jit(add)
sample = quick_jit(replay_.sample, static_argnums=(2, 3))
observations = quick_jit(replay_.observations, static_argnums=2)
sample_segments = quick_jit(replay_.sample_segments, static_argnums=(2, 3))
age_of = quick_jit(replay_.age_of)


class Row(NamedTuple):
    """One frame of the reference; its observation and action spell out which it is."""

    episode: int
    step: int
    terminated: bool
    last: bool

    @property
    def obs(self) -> list[float]:
        return [float(self.episode), float(self.step)]

    @property
    def action(self) -> list[float]:
        return [0.0 if self.last else self.step + 0.5]


def rows(lengths: list[int], cut: int = 0) -> list[Row]:
    """Frames of episodes of so many decisions; every third one terminates; the last `cut` frames are yet to come."""
    frames = [
        Row(number, step, number % 3 == 0 and step == decisions - 1, step == decisions)
        for number, decisions in enumerate(lengths)
        for step in range(decisions + 1)
    ]
    return frames[: len(frames) - cut]


def ring(frames: list[Row], capacity: int = CAPACITY) -> Replay:
    replay = replay_.init(capacity, 2, 1)
    for row in frames:
        obs, action = np.array(row.obs, np.float32), np.array(row.action, np.float32)
        frame = Frame(obs, action, row.terminated, np.int32(row.episode), np.int32(row.step))  # type: ignore[arg-type]
        replay = add_one(replay, frame)
    return replay


def random_lengths(seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    return rng.integers(1, 8, rng.integers(2, 12)).tolist()


def same(a: Replay, b: Replay) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def evenly(counts: list[int]) -> bool:
    """Whether counts are what a uniform draw gives, at a level of one in ten thousand."""
    expected = sum(counts) / len(counts)
    statistic = sum((n - expected) ** 2 / expected for n in counts)
    return len(counts) == 1 or statistic <= float(chi2.ppf(0.9999, len(counts) - 1))


CASES = [(random_lengths(seed), seed % 3) for seed in range(10)] + [([22], 0), ([10, 11], 0), ([10, 11, 1], 1)]


@pytest.mark.parametrize(("lengths", "cut"), CASES)
def test_the_ring_keeps_the_newest_frames_in_their_slots(lengths: list[int], cut: int) -> None:
    """Frame number k lies in slot k mod C until it is overwritten; nothing else is touched."""
    frames = rows(lengths, cut)
    replay = ring(frames)
    assert int(replay.total) == len(frames)
    held = {number % CAPACITY: row for number, row in enumerate(frames)}  # later ones replace earlier ones
    for slot in range(CAPACITY):
        found = jax.tree.map(lambda leaf, slot=slot: np.asarray(leaf[slot]).tolist(), replay.frames)
        row = held.get(slot)
        expected = (row.obs, row.action, row.terminated, row.episode, row.step) if row else ([0, 0], [0], False, -1, 0)
        assert tuple(found) == expected


@pytest.mark.parametrize(("lengths", "cut"), CASES)
def test_a_sample_is_a_window_masked_at_the_end_of_its_episode(lengths: list[int], cut: int) -> None:
    """Every drawn column is a stretch of the list in time order, also across the seam; starts are uniform."""
    frames = rows(lengths, cut)
    replay, held = ring(frames), frames[-CAPACITY:]
    batch = jax.tree.map(np.asarray, sample(replay, jax.random.key(1), 2000, HORIZON))
    starts = max(len(held) - HORIZON, 1)
    where = {(row.episode, row.step): place for place, row in enumerate(held)}
    drawn = [where[tuple(obs.astype(int))] for obs in batch.obs[0]]
    assert set(drawn) == set(range(starts)) and evenly([drawn.count(start) for start in range(starts)])
    for column in range(200):
        window = held[drawn[column] : drawn[column] + HORIZON + 1]
        inside = [row.episode == window[0].episode for row in window[1:]] + [False] * (HORIZON + 1 - len(window))
        assert batch.mask[:, column].tolist() == inside
        assert batch.obs[: len(window), column].tolist() == [row.obs for row in window]
        assert batch.action[: len(window), column].tolist() == [row.action for row in window[:HORIZON]]
        assert batch.terminated[: len(window), column].tolist() == [row.terminated for row in window[:HORIZON]]
        slots = [(len(frames) - len(held) + drawn[column] + t) % CAPACITY for t in range(HORIZON)]
        assert batch.index[:, column].tolist() == slots


@pytest.mark.parametrize(("lengths", "cut"), CASES)
def test_observations_are_each_once_or_drawn_evenly(lengths: list[int], cut: int) -> None:
    """Of a replay that holds no more than are asked for nothing comes twice, and what is missing is infinite."""
    frames = rows(lengths, cut)
    replay, held = ring(frames), [row.obs for row in frames[-CAPACITY:]]
    every, slots = map(np.asarray, observations(replay, jax.random.key(4), CAPACITY))
    np.testing.assert_array_equal(every[: len(held)], held)
    np.testing.assert_array_equal(np.asarray(replay.frames.obs)[slots][: len(held)], held)
    assert np.isinf(every[len(held) :]).all()
    if len(held) < CAPACITY:
        return
    keys = jax.random.split(jax.random.key(5), 200)
    some = np.concatenate([observations(replay, key, 10)[0] for key in keys]).tolist()
    assert evenly([some.count(obs) for obs in held]) and len(some) == sum(some.count(obs) for obs in held)


def test_a_sample_from_too_few_frames_is_masked() -> None:
    """Two frames hold one decision, and none at all hold none: the rest of a window of four is masked."""
    for lengths, first in (([1], 1.0), ([], 0.0)):
        batch = sample(ring(rows(lengths)), jax.random.key(0), 8, HORIZON)
        np.testing.assert_array_equal(batch.mask, np.tile([[first], [0.0], [0.0], [0.0]], (1, 8)))


@pytest.mark.parametrize(("lengths", "cut"), CASES)
def test_segments_are_uniform_over_every_place_that_fits(lengths: list[int], cut: int) -> None:
    """Brute force lists the places where L decisions of one episode fit: all are drawn, evenly, and none besides."""
    frames = rows(lengths, cut)
    held = frames[-CAPACITY:]
    fitting = [i for i in range(len(held) - LENGTH) if held[i].episode == held[i + LENGTH].episode]
    segments, places = sample_segments(ring(frames), jax.random.key(2), 3000, LENGTH)
    assert int(places) == len(fitting)
    if not fitting:
        return
    where = {(row.episode, row.step): place for place, row in enumerate(held)}
    drawn = [where[pair] for pair in zip(segments.episode.tolist(), segments.start.tolist(), strict=True)]
    assert set(drawn) == set(fitting) and evenly([drawn.count(place) for place in fitting])
    np.testing.assert_array_equal(segments.obs, [[row.obs for row in held[i : i + LENGTH]] for i in drawn])
    np.testing.assert_array_equal(segments.action, [[row.action for row in held[i : i + LENGTH]] for i in drawn])


@pytest.mark.parametrize(("lengths", "cut"), CASES)
def test_ages_of_episodes(lengths: list[int], cut: int) -> None:
    """By brute force: the first frame held of each episode or of a later one; after the last, the number of frames."""
    frames = rows(lengths, cut)
    held = [row.episode for row in frames[-CAPACITY:]]
    numbers = np.arange(-1, 25)
    expected = [next((age for age, e in enumerate(held) if e >= number), len(held)) for number in numbers.tolist()]
    assert age_of(ring(frames), numbers).tolist() == expected
    if held:
        assert int(replay_.newest_episode(ring(frames))) == held[-1]


@pytest.mark.parametrize("lengths", [[], [1, 2, 2, 1], [2] * 20])
def test_no_place_for_a_segment_is_said_so(lengths: list[int]) -> None:
    """Episodes shorter than a segment, or none at all, give zero places."""
    assert int(sample_segments(ring(rows(lengths)), jax.random.key(0), 5, LENGTH)[1]) == 0


def episodes(lengths: list[int]) -> list[Episode]:
    """The same frames as `rows` gives, as recorded episodes."""
    made = []
    for number, decisions in enumerate(lengths):
        own = [row for row in rows(lengths) if row.episode == number]
        obs, action = np.array([row.obs for row in own], np.float32), np.array([row.action for row in own[:-1]])
        reward, success = np.full(decisions, np.nan), np.zeros(decisions, bool)
        made.append(Episode(number, 0, obs, action.astype(np.float32), reward, success, number % 3 == 0))
    return made


@pytest.mark.parametrize("lengths", [lengths for lengths, _ in CASES])
def test_load_equals_adding_frame_by_frame(lengths: list[int]) -> None:
    """A resumed run gets the very ring that the uninterrupted one has, overwritten slots included."""
    assert same(replay_.load(replay_.init(CAPACITY, 2, 1), episodes(lengths)), ring(rows(lengths)))


def test_load_refuses_an_episode_that_laps_itself() -> None:
    """23 decisions have 24 observations."""
    with pytest.raises(ValueError, match="does not fit"):
        replay_.load(replay_.init(CAPACITY, 2, 1), episodes([23]))
