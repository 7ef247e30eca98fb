"""The episode archive: every finished episode of a run, with the true reward that the device never sees.

It is an append-only SQLite file in the run folder. The device replay is rebuilt from it when a run resumes, and the
scripted teacher, the diagnostics and the clips read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ubp2.storage.database import Database
from ubp2.types import Episode

__all__ = ["EpisodeArchive", "digest"]

_APPLICATION_ID = 0x75627065  # "ubpe"
_MIGRATIONS = (
    (
        # The reward stands before the observations: SQLite then reads a slice of it without walking over them.
        """CREATE TABLE episodes (
            number INTEGER PRIMARY KEY, -- 0, 1, 2, ... without a gap
            seed INTEGER NOT NULL,
            length INTEGER NOT NULL,
            obs_dim INTEGER NOT NULL,
            action_dim INTEGER NOT NULL,
            terminated INTEGER NOT NULL CHECK (terminated IN (0, 1)),
            digest BLOB NOT NULL, -- sha256 of the four arrays
            true_reward BLOB NOT NULL, -- float64 [T], little-endian
            success BLOB NOT NULL, -- bool [T], one byte each
            action BLOB NOT NULL, -- float32 [T, A], little-endian
            obs BLOB NOT NULL -- float32 [T+1, D], little-endian
        ) STRICT""",
    ),
)
_COUNT = "SELECT coalesce(max(number) + 1, 0) FROM episodes"
_REWARD_BYTES = 8


class EpisodeArchive:
    """The episodes of a run in the file at `path`, numbered from 0; what comes out has the bits that went in."""

    def __init__(self, path: Path | str) -> None:
        self._database = Database(path, _APPLICATION_ID, _MIGRATIONS)

    def append(self, episode: Episode) -> None:
        """Store the next episode, on the disk when this returns; its index must be the number of those before."""
        sizes, blobs = _check(episode), _blobs(episode)
        with self._database.write() as connection:
            count = connection.execute(_COUNT).fetchone()[0]
            if episode.index != count:
                raise ValueError(f"the archive expects episode {count} next, got {episode.index}")
            connection.execute(
                "INSERT INTO episodes (number, seed, length, obs_dim, action_dim, terminated, digest, true_reward, "
                "success, action, obs) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (count, int(episode.seed), *sizes, bool(episode.terminated), _digest(blobs), *blobs),
            )

    def read(self, index: int) -> Episode:
        """Return one episode."""
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT seed, length, obs_dim, action_dim, terminated, digest, true_reward, success, action, obs "
                "FROM episodes WHERE number = ?",
                (int(index),),
            ).fetchone()
        if row is None:
            raise IndexError(f"episode {index} is not among the {len(self)} in {self._database.path}")
        seed, length, obs_dim, action_dim, terminated, digest, *blobs = row
        if _digest(blobs) != digest:
            raise self._database.damaged(f"episode {index} does not match its checksum")
        reward, success, action, obs = blobs
        # astype copies: a view of the blob would be read-only and of a fixed byte order
        return Episode(
            index=int(index),
            seed=seed,
            obs=np.frombuffer(obs, "<f4").reshape(length + 1, obs_dim).astype(np.float32),
            action=np.frombuffer(action, "<f4").reshape(length, action_dim).astype(np.float32),
            true_reward=np.frombuffer(reward, "<f8").astype(np.float64),
            success=np.frombuffer(success, "?").astype(np.bool_),
            terminated=bool(terminated),
        )

    def iterate(self, first: int = 0) -> Iterator[Episode]:
        """Yield the episodes from `first` on, one in memory at a time."""
        for index in range(first, len(self)):
            yield self.read(index)

    def rewards(self, index: int, start: int, length: int) -> np.ndarray:
        """Return the true rewards of the decisions [start, start + length) of one episode."""
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT length, substr(true_reward, ?, ?) FROM episodes WHERE number = ?",
                (int(start) * _REWARD_BYTES + 1, int(length) * _REWARD_BYTES, int(index)),
            ).fetchone()
        if row is None:
            raise IndexError(f"episode {index} is not among the {len(self)} in {self._database.path}")
        if not (start >= 0 and length >= 0 and start + length <= row[0]):
            raise IndexError(f"episode {index} has {row[0]} decisions, asked for [{start}, {start + length})")
        return np.frombuffer(row[1], "<f8").astype(np.float64)

    def returns(self, last: int) -> np.ndarray:
        """Return the true returns of the newest `last` episodes, or of all if there are fewer, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT true_reward FROM episodes ORDER BY number DESC LIMIT ?", (int(last),)
            ).fetchall()
        return np.array([np.frombuffer(reward, "<f8").sum() for (reward,) in reversed(rows)], np.float64)

    def digests(self) -> list[bytes]:
        """Return what identifies the content of each episode; see `digest`."""
        with self._database.read() as connection:
            return [own for (own,) in connection.execute("SELECT digest FROM episodes ORDER BY number").fetchall()]

    def truncate(self, count: int) -> None:
        """Drop the episodes with index >= `count`: a resumed run makes them again."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM episodes WHERE number >= ?", (int(count),))

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self._database.close()

    def __len__(self) -> int:
        with self._database.read() as connection:
            return connection.execute(_COUNT).fetchone()[0]

    def __enter__(self) -> EpisodeArchive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check(episode: Episode) -> tuple[int, int, int]:
    """Return T, D and A, and refuse arrays whose types or shapes an exact round trip would change."""
    (_, obs_dim), (length, action_dim) = np.shape(episode.obs), np.shape(episode.action)
    expected = {
        "obs": (np.float32, (length + 1, obs_dim)),
        "action": (np.float32, (length, action_dim)),
        "true_reward": (np.float64, (length,)),
        "success": (np.bool_, (length,)),
    }
    for name, (dtype, shape) in expected.items():
        array = np.asarray(getattr(episode, name))
        if array.dtype != dtype or array.shape != shape:
            raise ValueError(
                f"episode {episode.index}: {name} must be {np.dtype(dtype)} {list(shape)}, "
                f"got {array.dtype} {list(array.shape)}"
            )
    return length, obs_dim, action_dim


def digest(episode: Episode) -> bytes:
    """What identifies the content of an episode, rewards included."""
    return _digest(_blobs(episode))


def _blobs(episode: Episode) -> list[bytes]:
    """The arrays in the order of the columns."""
    arrays = ((episode.true_reward, "<f8"), (episode.success, "?"), (episode.action, "<f4"), (episode.obs, "<f4"))
    return [np.asarray(array).astype(dtype).tobytes() for array, dtype in arrays]


def _digest(blobs: list[bytes]) -> bytes:
    digest = hashlib.sha256()
    for blob in blobs:
        digest.update(blob)
    return digest.digest()
