"""ubp2 bench start: how long a user waits, from the command to the first decision and to the first plan."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ubp2.bench.options import Start
from ubp2.bench.report import Report, Row
from ubp2.bench.subject import base_config
from ubp2.bench.timing import on_gpu
from ubp2.errors import UserError
from ubp2.storage.population import members
from ubp2.storage.runs import read_metrics

__all__ = ["measure"]

EPISODE, WARM_UP = 20, 5  # decisions: a plan comes after the warm-up, and a row with the times ends the episode
TRIES = 3  # of a command that computes nothing


def measure(options: Start) -> Report:
    """The same short run twice: with an empty cache folder, then with the one that the first left behind."""
    base_config(options, options.env)  # refuses what cannot be measured
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        rows = [_train(options, name, cache, Path(folder) / name) for name in ("cold", "warm")]
        commands = [
            {"command": f"ubp2 {word}", "seconds": float(np.median([_seconds([word], cache) for _ in range(TRIES)]))}
            for word in ("--help", "info")
        ]
    return Report("start", {"training": rows, "other commands": commands}, ["cold: nothing compiled yet"])


def _train(options: Start, name: str, cache: Path, out: Path) -> Row:
    flags = ["--preset", options.preset or ("paper" if on_gpu() else "cpu"), "--env", options.env]
    flags += ["--config", str(options.config)] if options.config else []
    small = {
        "steps": EPISODE,
        "seeds": options.seeds,
        "environment.episode-decisions": EPISODE,
        "training.warmup": WARM_UP,
        "training.warmup-updates": 1,
        "preferences.every": EPISODE,
        "preferences.per-session": 1,
        "preferences.budget": 1,
        "preferences.segment-length": min(10, EPISODE),
        "evaluation.every": 0,
        "evaluation.episodes": 1,
        "out": out,
    }
    words = [word for flag, value in small.items() for word in (f"--{flag}", str(value))]
    whole = _seconds(["train", *flags, *words, "--quiet"], cache)
    times = next(row for row in read_metrics(members(out)[0]) if "time/first_plan" in row)
    return {
        "cache": name,
        "seeds": options.seeds,
        "first_decision_s": times["time/first_decision"],
        "first_plan_s": times["time/first_plan"],
        "whole_command_s": whole,
    }


def _seconds(words: list[str], cache: Path) -> float:
    """Wall time of `ubp2 ...` in a process of its own, with this cache folder."""
    own = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    command, start = [sys.executable, "-m", "ubp2", *words], time.perf_counter()
    result = subprocess.run(command, capture_output=True, text=True, env=own | {"XDG_CACHE_HOME": str(cache)})
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
        said = last.removeprefix("ubp2: ")
        raise UserError(f"ubp2 {' '.join(words[:3])} ended with code {result.returncode}: {said}")
    return time.perf_counter() - start
