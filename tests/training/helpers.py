"""Runs small enough for tests, and what makes two of them equal."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ubp2.config.files import from_dict
from ubp2.config.schema import Config
from ubp2.storage.runs import read_metrics
from ubp2.training import checkpoint

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or ROOT / ".pytest_cache" / "jax")

TINY: dict[str, Any] = {
    "steps": 300,
    "environment": {"in_process": True, "episode_decisions": 20},
    "model": {"width": 16, "depth": 1, "dynamics_members": 2, "reward_members": 2, "value_members": 2},
    "planner": {"horizon": 2, "samples": 8, "elites": 2, "policy_samples": 2, "iterations": 1},
    "preferences": {
        "segment_length": 5,
        "per_session": 4,
        "every": 40,
        "budget": 14,
        "candidates": 20,
        "batch_size": 8,
    },
    # One replay capacity for runs of every length: equal programs are compiled once, in the persistent cache.
    "training": {"batch_size": 8, "warmup": 60, "warmup_updates": 10, "replay_capacity": 2000},
    "evaluation": {"every": 150, "episodes": 1},
    "checkpoint": {"every": 70},
}


def tiny(**changes: Any) -> Config:
    """A run of seconds: sessions at 40, 80, 120 and (cut to two labels) 160, planning from 60 on, policy from 160.

    Checkpoints lie in the middle of episodes. Sections are changed field by field: ``tiny(training={"warmup": 20})``.
    """
    return from_dict(changes, from_dict(TINY))


def trim(folder: Path, most: int = 1 << 30) -> None:
    """Forget the oldest half of the compiled programs once they take more than `most` bytes, or a gigabyte.

    jax's own limit is not used: under it, a process that is killed while it writes spoils the cache for all others.
    """
    files = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process of pytest forgets, too
            files.append((path.stat().st_mtime, path.stat().st_size, path))
    files.sort()
    if sum(size for _, size, _ in files) > most:
        for *_, path in files[: (len(files) + 1) // 2]:
            path.unlink(missing_ok=True)


def keep_compilations() -> None:
    """Let this process and the commands that it starts share compiled programs, also with the next run of pytest."""
    from jax.experimental.compilation_cache import compilation_cache

    CACHE.mkdir(parents=True, exist_ok=True)
    trim(CACHE)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    if jax.config.jax_compilation_cache_dir != str(CACHE):  # type: ignore[attr-defined]
        compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", str(CACHE))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


keep_compilations()


def environment() -> dict[str, str]:
    """The environment of a subprocess that finds this package and these tests."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}


def ubp2(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`ubp2 ...` in a process of its own."""
    command = [sys.executable, "-m", "ubp2", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300, **options)


def rows(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The rows of the metrics, of one kind."""
    return [row for row in read_metrics(folder) if kind in (None, row["kind"])]


def untimed(folder: Path) -> list[dict[str, Any]]:
    """The rows without what the clock measured."""
    return [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows(folder)]


def saved(folder: Path) -> checkpoint.Checkpoint:
    """The newest checkpoint."""
    found = checkpoint.load_latest(folder / "checkpoints")
    assert found is not None
    return found


def agent_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Parameters, optimisers and statistics of the newest checkpoint, by name."""
    return {name: array for name, array in saved(folder).arrays.items() if name.startswith("[0]")}


def table(database: Path, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query, blobs included."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        found = connection.execute(query).fetchall()
    connection.close()
    return found


def labels(folder: Path) -> list[tuple[Any, ...]]:
    """Everything in the label store but the times."""
    asked = table(folder / "labels.sqlite", "SELECT * FROM queries ORDER BY id")
    given = "SELECT id, query, annotator, revision, label, weight FROM answers ORDER BY id"
    return asked + table(folder / "labels.sqlite", given)


def episodes(folder: Path) -> list[tuple[Any, ...]]:
    """Everything in the archive."""
    return table(folder / "episodes.sqlite", "SELECT * FROM episodes ORDER BY number")


def assert_same_arrays(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """The same names, and the same bits under each."""
    assert one.keys() == other.keys()
    assert [name for name in one if one[name].tobytes() != other[name].tobytes()] == []


def assert_same_run(one: Path, other: Path, spec: bool = True) -> None:
    """Bit for bit: the checkpoint (parameters, optimisers, counters, episode in progress), replay, labels, metrics.

    Without `spec`, what the environment says of itself may differ.
    """
    a, b = saved(one), saved(other)
    assert a.decision == b.decision
    assert_same_arrays(a.arrays, b.arrays)
    ignored = {"metrics_position", *([] if spec else ["environment"])}  # rows hold times, of which the length varies
    assert {k: v for k, v in a.meta.items() if k not in ignored} == {
        k: v for k, v in b.meta.items() if k not in ignored
    }
    assert episodes(one) == episodes(other)
    assert labels(one) == labels(other)
    assert untimed(one) == untimed(other)


def longer(config: Config, steps: int) -> Config:
    """The same run with more decisions."""
    return dataclasses.replace(config, steps=steps)


def json_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one JSON object on stdout."""
    assert result.stdout.count("\n") == 1, result.stdout
    return json.loads(result.stdout)
