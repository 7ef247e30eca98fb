"""A sweep of runs as small as runs can be, its commands, and what tests read of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

SETTINGS = {
    "model.width": 16,
    "model.depth": 1,
    "planner": {"horizon": 2, "samples": 16, "elites": 4, "policy_samples": 4, "iterations": 1},
    "training": {"batch_size": 16, "warmup": 100, "warmup_updates": 10},
    "preferences": {"every": 100, "per_session": 4, "candidates": 16},
    "evaluation.episodes": 1,
    "checkpoint.every": 50,
}
TINY = {
    "name": "tiny",
    "tasks": ["toy/reach"],
    "methods": ["ubp2", "mbp"],
    "steps": 600,
    "settings": SETTINGS,
}

# Environments of a user's own, for `gym/twins:<id>`: one as large as toy/reach, one larger, one that breaks.
TWINS = """
import gymnasium
import numpy as np
from ubp2.envs.toy import DECISIONS, Reach


class Slow(Reach):
    def step(self, action):
        return super().step(0.5 * np.asarray(action))


class Wide(Reach):
    def __init__(self):
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(-2.0, 2.0, (5,), np.float32)

    def _observe(self):
        return np.append(super()._observe(), np.float32(0.0))


class Broken(Reach):
    # Its third episode has no reward that is a number.
    episodes = 0

    def reset(self, **options):
        self.episodes += 1
        return super().reset(**options)

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, float("nan") if self.episodes > 2 else reward, *rest


for kind in (Slow, Wide, Broken):
    gymnasium.register(f"{kind.__name__}-v0", kind, max_episode_steps=DECISIONS)
"""


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump({**TINY, **changes}, sort_keys=False), encoding="utf-8")
    return path


def twins(folder: Path) -> Path:
    """A folder in which `gym/twins:Slow-v0` and `gym/twins:Wide-v0` are environments."""
    (folder / "twins.py").write_text(TWINS, encoding="utf-8")
    return folder


def sweep(*words: Path | str) -> list[str]:
    return [sys.executable, "-m", "ubp2", "sweep", *map(str, words)]


def ran(*words: Path | str, seconds: float = 600, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(sweep(*words), capture_output=True, text=True, timeout=seconds, cwd=cwd)


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process whose output is read at its end; nothing that it started is left, also where a test gives up."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with subprocess.Popen(command, text=True, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def waited(true: Callable[[], Any], seconds: float = 300.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.1)
    return False


def evaluations(out: Path) -> dict[str, list[dict[str, Any]]]:
    """The evaluations of every run, without what measures the clock."""
    found = {}
    for path in sorted(out.rglob("metrics.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        found[str(path.parent.relative_to(out))] = [
            {name: value for name, value in row.items() if not name.startswith("time/")}
            for row in rows
            if row["kind"] == "eval"
        ]
    return found


def resumed(out: Path) -> int:
    """How often runs went on from a checkpoint."""
    return sum(len(json.loads(path.read_text(encoding="utf-8"))["resumed"]) for path in out.rglob("info.json"))


def training(out: Path) -> dict[Path, int]:
    """Runs below a folder that train now and have a checkpoint, each with its process. On Linux."""
    found = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        words = command(int(process))
        if "ubp2.experiments.child" in words and "train" in words:
            flag = next(flag for flag in ("--out", "--resume", "--population") if flag in words)
            folder = Path(words[words.index(flag) + 1])
            folder = folder.parents[1] if flag == "--population" else folder
            if folder.is_relative_to(out) and any(folder.rglob("checkpoints/*/manifest.json")):
                found[folder] = int(process)
    return found


def command(process: int) -> list[str]:
    """The words of a process; none if it has ended."""
    try:
        return Path("/proc", str(process), "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def parent(process: int) -> int:
    """The process that started another; 0 if that has ended."""
    try:
        return int(Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
