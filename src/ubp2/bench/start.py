"""ubp2 bench start: how long a user waits, from the command to the first decision and to the first plan."""

from __future__ import annotations

import json
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
_TWICE = """
import json, sys, time
from ubp2 import api
from ubp2.terminal.cli import main

seconds = []
for words in json.loads(sys.argv[1]):
    start = time.perf_counter()
    if code := main(words):
        sys.exit(code)
    seconds.append(time.perf_counter() - start)
with open(sys.argv[2], "w", encoding="utf-8") as stream:
    json.dump(seconds, stream)
"""


def measure(options: Start) -> Report:
    """The same short run twice: with an empty cache folder, then with the one that the first left behind.

    And twice more in one process, with that cache: the second has the programs of the first.
    """
    base_config(options, options.env)  # refuses what cannot be measured
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        rows = [_train(options, name, cache, Path(folder) / name) for name in ("cold", "warm")]
        together = _in_one_process(options, cache, Path(folder))
        commands = [
            {"command": f"ubp2 {word}", "seconds": float(np.median([_seconds([word], cache) for _ in range(TRIES)]))}
            for word in ("--help", "info")
        ]
    tables = {"training": rows, "one process": [together], "other commands": commands}
    return Report("start", tables, ["cold: nothing compiled yet"])


def _command(options: Start, out: Path) -> list[str]:
    """The words of a short run after `ubp2`."""
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
        "preferences.segment-length": 10,
        "evaluation.every": 0,
        "evaluation.episodes": 1,
        "out": out,
    }
    words = [word for flag, value in small.items() for word in (f"--{flag}", str(value))]
    return ["train", *flags, *words, "--quiet"]


def _train(options: Start, name: str, cache: Path, out: Path) -> Row:
    whole = _seconds(_command(options, out), cache)
    times = next(row for row in read_metrics(members(out)[0]) if "time/first_plan" in row)
    return {
        "cache": name,
        "seeds": options.seeds,
        "first_decision_s": times["time/first_decision"],
        "first_plan_s": times["time/first_plan"],
        "whole_command_s": whole,
    }


def _in_one_process(options: Start, cache: Path, folder: Path) -> Row:
    """Wall times of two runs one after the other, without the imports before the first."""
    runs = [_command(options, folder / name) for name in ("first", "second")]
    _run([sys.executable, "-c", _TWICE, json.dumps(runs), str(folder / "seconds.json")], cache, "train, twice,")
    first, second = json.loads((folder / "seconds.json").read_text(encoding="utf-8"))
    return {"seeds": options.seeds, "first_s": first, "second_s": second, "second_over_first": second / first}


def _seconds(words: list[str], cache: Path) -> float:
    """Wall time of `ubp2 ...` in a process of its own, with this cache folder."""
    start = time.perf_counter()
    _run([sys.executable, "-m", "ubp2", *words], cache, " ".join(words[:3]))
    return time.perf_counter() - start


def _run(command: list[str], cache: Path, name: str) -> None:
    """Run a command with this cache folder; an error says what `ubp2 NAME` said last."""
    own = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    result = subprocess.run(command, capture_output=True, text=True, env=own | {"XDG_CACHE_HOME": str(cache)})
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
        raise UserError(f"ubp2 {name} ended with code {result.returncode}: {last.removeprefix('ubp2: ')}")
