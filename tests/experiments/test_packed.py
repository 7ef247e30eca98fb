"""Cells of two tasks in one process, as a user has them: killed, broken, out of time, and begun by earlier versions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.experiments.sweeps import evaluations, ran, resumed, started, sweep, twins, waited, write

TASKS = ["toy/reach", "gym/twins:Slow-v0"]


@pytest.mark.slow
def test_a_packed_program_that_is_killed_goes_on_exactly(tmp_path: Path) -> None:
    """Two tasks and two methods in one process: SIGKILL, then SIGTERM, then to the end."""
    twins(tmp_path)
    write(tmp_path, tasks=TASKS, together=8, steps=800)
    killed, quiet = tmp_path / "killed", tmp_path / "quiet"

    def saved() -> bool:
        return len(list(killed.glob("*/*/seeds-0/checkpoints/*/manifest.json"))) >= 4

    with started(sweep("tiny.yaml", "--out", killed), cwd=tmp_path) as first:
        assert waited(saved)
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    for folder in killed.glob("*/*/seeds-0/checkpoints"):
        shutil.copytree(folder, tmp_path / "before" / folder.relative_to(killed))
    with started(sweep("resume", killed), cwd=tmp_path) as second:
        resuming = [killed / task / method / "seeds-0" for task in ("toy-reach",) for method in ("ubp2", "mbp")]
        assert waited(lambda: all(json.loads((own / "info.json").read_text())["resumed"] for own in resuming))
        time.sleep(2)
        second.terminate()
        text, errors = second.communicate(timeout=300)
    assert second.returncode in (0, 75), text + errors
    done = ran("resume", killed, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert {(own["state"], own["program"]) for own in data["groups"]} == {("finished", 0)}
    assert resumed(killed) >= 4
    assert ran("tiny.yaml", "--out", quiet, cwd=tmp_path).returncode == 0
    assert evaluations(killed) == evaluations(quiet)


@pytest.mark.slow
def test_a_run_that_breaks_leaves_the_others_of_its_program_running(tmp_path: Path) -> None:
    twins(tmp_path)
    write(tmp_path, tasks=["toy/reach", "gym/twins:Broken-v0"], methods=["ubp2"], together=8, steps=300, retries=1)
    done = ran("tiny.yaml", "--out", "out", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    good, bad = json.loads(done.stdout)["groups"]
    assert (good["state"], bad["state"], good["program"], bad["program"]) == ("finished", "failed", 0, 0)
    assert "NaN" in bad["reason"] or "nan" in bad["reason"]
    assert (tmp_path / "out" / "report" / "scores.csv").exists()


@pytest.mark.slow
def test_a_sweep_of_before_goes_on_as_it_was_begun(tmp_path: Path) -> None:
    """A folder of seeds of one cell, with the population.json of earlier versions, beside cells that are new."""
    twins(tmp_path)
    out = tmp_path / "out"
    write(tmp_path, tasks=TASKS[:1], methods=["ubp2"], seeds=2, together=2, steps=600)
    with started(sweep("tiny.yaml", "--out", out), cwd=tmp_path) as first:
        old = out / "toy-reach" / "ubp2" / "seeds-0-1"
        assert waited(lambda: len(list(old.glob("s*/checkpoints/*/manifest.json"))) >= 2)
        first.terminate()
        first.communicate(timeout=300)
    (old / "population.json").write_text('{"seeds": [0, 1]}', encoding="utf-8")
    shutil.rmtree(out / "programs")
    write(tmp_path, tasks=TASKS, methods=["ubp2"], seeds=2, together=4, steps=600)
    done = ran("tiny.yaml", "--out", out, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    groups = json.loads(done.stdout)["groups"]
    assert [(own["state"], own["program"]) for own in groups] == [("finished", 0), ("finished", 1)]
    assert json.loads((old / "population.json").read_text(encoding="utf-8")) == {"seeds": [0, 1]}


@pytest.mark.slow
def test_a_table_ends_in_its_minutes_with_a_report_and_goes_on(tmp_path: Path) -> None:
    settings = [word for line in TABLE for word in ("--set", line)]
    words = [sys.executable, "-m", "ubp2", "reproduce", "table1", "--tasks", "toy/reach", "--methods", "ubp2", "mbp"]
    words += ["--preset", "cpu", "--seeds", "1", "--steps", "6000", "--together", "2", "--no-clips", "--out", "out"]
    began = time.monotonic()
    first = subprocess.run([*words, *settings, "--minutes", "1"], cwd=tmp_path, capture_output=True, text=True)
    assert time.monotonic() - began < 60
    assert first.returncode == 75, first.stdout + first.stderr
    assert "the time (1 min) is over; the same command goes on" in first.stdout
    assert (tmp_path / "out" / "report" / "scores.csv").exists()
    done = subprocess.run([*words, *settings, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert {group["state"] for group in json.loads(done.stdout)["groups"]} == {"finished"}
    assert resumed(tmp_path / "out") >= 2


TABLE = (
    "model.width: 16",
    "planner: {samples: 16, elites: 4, policy_samples: 4, iterations: 1}",
    "training: {batch_size: 16, warmup: 100}",
    "preferences.every: 100",
    "evaluation: {episodes: 1, every: 300}",
    "checkpoint.every: 500",
)
