"""The episode archive: the bits that went in come out, whatever happens to the process or the disk."""

from __future__ import annotations

import os
import sqlite3
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.storage.killing import killed, run_alone
from ubp2.errors import UserError
from ubp2.preference.store import LabelStore
from ubp2.storage.archive import EpisodeArchive
from ubp2.types import Episode


def episode(index: int, length: int = 7, obs_dim: int = 5) -> Episode:
    rng = np.random.default_rng(index)
    return Episode(
        index=index,
        seed=2**40 + index,
        obs=rng.normal(size=(length + 1, obs_dim)).astype(np.float32),
        action=rng.uniform(-1, 1, size=(length, 2)).astype(np.float32),
        true_reward=rng.normal(size=length),
        success=rng.random(length) < 0.5,
        terminated=bool(index % 2),
    )


def same(a: Episode, b: Episode) -> bool:
    scalars = (a.index, a.seed, a.terminated) == (b.index, b.seed, b.terminated)
    return scalars and all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        for x, y in zip(a[2:6], b[2:6], strict=True)
    )


@pytest.fixture
def archive(tmp_path: Path):
    with EpisodeArchive(tmp_path / "episodes.sqlite") as archive:
        yield archive


def test_exact_round_trip(tmp_path: Path):
    odd = episode(1)
    odd.obs[0] = [np.nan, np.inf, -0.0, 1e-45, -np.inf]
    odd.true_reward[:2] = [np.nan, 5e-324]
    with EpisodeArchive(tmp_path / "episodes.sqlite") as archive:
        archive.append(episode(0, length=1))
        archive.append(odd)
    with EpisodeArchive(tmp_path / "episodes.sqlite") as archive:
        assert len(archive) == 2
        assert same(archive.read(0), episode(0, length=1)) and same(archive.read(1), odd)
        assert [e.index for e in archive.iterate()] == [0, 1] and [e.index for e in archive.iterate(1)] == [1]
        assert archive.read(1).obs.flags.writeable


def test_rewards_are_the_slice_asked_for(archive: EpisodeArchive):
    archive.append(episode(0, length=100))
    assert np.array_equal(archive.rewards(0, 90, 10), episode(0, length=100).true_reward[90:])
    assert archive.rewards(0, 0, 1).dtype == np.float64
    assert len(archive.rewards(np.int32(0), np.int32(5), np.int64(3))) == 3  # type: ignore[arg-type]
    for index, start, length in ((0, 91, 10), (0, -1, 2), (1, 0, 1)):
        with pytest.raises(IndexError, match="episode"):
            archive.rewards(index, start, length)


def test_returns_are_those_of_the_newest_episodes(archive: EpisodeArchive):
    assert archive.returns(3).tolist() == []
    for index in range(5):
        archive.append(episode(index))
    expected = [episode(index).true_reward.sum() for index in range(5)]
    np.testing.assert_allclose(archive.returns(3), expected[-3:], rtol=1e-15)
    np.testing.assert_allclose(archive.returns(10), expected, rtol=1e-15)


def test_truncate_drops_what_will_be_made_again(archive: EpisodeArchive):
    for index in range(4):
        archive.append(episode(index))
    archive.truncate(2)
    assert len(archive) == 2
    with pytest.raises(IndexError, match="not among the 2"):
        archive.read(2)
    archive.append(episode(2))
    archive.truncate(9)
    assert len(archive) == 3
    archive.truncate(0)
    assert len(archive) == 0


def test_wrong_episodes_are_refused(archive: EpisodeArchive):
    with pytest.raises(ValueError, match="expects episode 0 next, got 1"):
        archive.append(episode(1))
    good = episode(0)
    with pytest.raises(ValueError, match=r"obs must be float32 \[8, 5\], got float64"):
        archive.append(good._replace(obs=good.obs.astype(np.float64)))
    with pytest.raises(ValueError, match=r"true_reward must be float64 \[7\]"):
        archive.append(good._replace(true_reward=good.true_reward[1:]))
    assert len(archive) == 0


@pytest.mark.parametrize(
    ("pragma", "sentence"), [("max_page_count=1", "the disk is full"), ("query_only=1", "it is read-only")]
)
def test_a_failing_disk_is_told_in_one_sentence_and_loses_nothing(archive: EpisodeArchive, pragma: str, sentence: str):
    archive.append(episode(0))
    connection = archive._database._connection
    connection.execute(f"PRAGMA {pragma}")
    with pytest.raises(UserError, match=f"episodes.sqlite: {sentence}; nothing written so far is lost"):
        archive.append(episode(1, length=5000))
    connection.execute("PRAGMA query_only=0")
    connection.execute("PRAGMA max_page_count=100000")
    archive.append(episode(1))
    assert same(archive.read(0), episode(0)) and same(archive.read(1), episode(1))


def test_changed_bytes_and_other_files_are_noticed(tmp_path: Path):
    path = tmp_path / "episodes.sqlite"
    with EpisodeArchive(path) as archive:
        archive.append(episode(0, length=1000))
    with pytest.raises(UserError, match="another kind"):
        LabelStore(path)
    content = bytearray(path.read_bytes())
    content[content.index(episode(0, length=1000).obs[500:520].tobytes())] ^= 1
    path.write_bytes(content)
    with EpisodeArchive(path) as archive, pytest.raises(UserError, match="episode 0 does not match its checksum"):
        archive.read(0)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="damaged"):
        EpisodeArchive(path)


def test_a_reader_waits_for_a_writer(tmp_path: Path):
    path = tmp_path / "episodes.sqlite"
    with EpisodeArchive(path) as archive, EpisodeArchive(path) as other:
        archive.append(episode(0))
        assert same(other.read(0), episode(0))
        with sqlite3.connect(path, isolation_level=None) as holder:
            holder.execute("BEGIN IMMEDIATE")
            assert len(other) == 1  # a writer that has not committed yet does not stop readers
            holder.execute("COMMIT")


def test_nothing_acknowledged_is_lost_to_a_kill(tmp_path: Path):
    run_alone(__file__, tmp_path / "episodes.sqlite")


def _append_for_ever(path: Path, acknowledge: int) -> None:
    with EpisodeArchive(path) as archive:
        while True:
            index = len(archive)
            archive.append(episode(index, length=200))
            os.write(acknowledge, f"{index}\n".encode())


def _kill_many(path: Path, kills: int = 24) -> None:
    """Kill a writing child again and again, and look for each episode it had acknowledged."""
    for _ in range(kills):
        acknowledged = killed(partial(_append_for_ever, path))
        with EpisodeArchive(path) as archive:
            assert acknowledged[-1] < len(archive) <= acknowledged[-1] + 2  # and perhaps one in flight
            for index in (acknowledged[0], len(archive) - 1):
                assert same(archive.read(index), episode(index, length=200))


if __name__ == "__main__":
    _kill_many(Path(sys.argv[1]))
