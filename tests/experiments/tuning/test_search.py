"""`ubp2 tune` as a user has it: Ray Tune, ASHA, runs in processes, and kills of all of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.sweeps import started, waited
from ubp2.config.files import load_yaml
from ubp2.experiments.tuning.study import written
from ubp2.storage.runs import read_metrics

pytest.importorskip("ray.tune")

SMALL = """
model: {width: 16, depth: 1}
planner: {horizon: 2, samples: 16, elites: 4, policy_samples: 4, iterations: 1}
training: {batch_size: 16, warmup: 100, warmup_updates: 10}
preferences: {every: 100, per_session: 5, candidates: 20}
evaluation: {episodes: 1, controllers: [policy]}
"""
SPACE = "training.learning_rate: {log: [1e-4, 1e-2]}\npreferences.segment_length: [5, 10]\n"
RAY = ["--address", "local", "--cpus", "1"]
PATIENCE = 300.0  # seconds until a test gives up


def tune(folder: Path, *more: str) -> list[str]:
    """The command, with its files beside the folder."""
    (folder / "small.yaml").write_text(SMALL, encoding="utf-8")
    (folder / "space.yaml").write_text(SPACE, encoding="utf-8")
    files = {"config": folder / "small.yaml", "space": folder / "space.yaml", "out": folder / "out"}
    flags = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    return [sys.executable, "-m", "ubp2", "tune", "--env", "toy/reach", *flags, *RAY, *more]


def answer(command: list[str], code: int = 0) -> dict[str, Any]:
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def checkpointed(folder: Path) -> bool:
    return any(folder.glob("trial-*/seeds-0/checkpoints/*/manifest.json"))


@pytest.mark.slow  # a whole search on Ray; test_study.py has the small ones
def test_trials_are_tried_and_the_best_settings_train(tmp_path: Path) -> None:
    """Both trials end, and the same command has nothing left to do."""
    command = tune(tmp_path, "--steps", "300", "--grace", "150", "--reduction", "2")
    found = answer([*command, "--trials", "2"])
    assert {trial["state"] for trial in found["trials"]} <= {"finished", "stopped early"}
    assert (found["metric"], found["trials"][0]["state"], found["stopped"]) == ("success", "finished", False)
    best = load_yaml(Path(found["best"]))
    learned = found["trials"][0]["settings"].get("training.learning_rate", best.training.learning_rate)
    assert (best.training.learning_rate, best.env, best.model.width) == (learned, "toy/reach", 16)
    before = {path: path.read_bytes() for path in (tmp_path / "out").glob("trial-*/seeds-0/metrics.jsonl")}
    assert answer([*command, "--trials", "2"]) == found
    assert all(path.read_bytes() == content for path, content in before.items()), "what has ended is left alone"


@pytest.mark.slow
def test_a_search_goes_on_after_every_kill(tmp_path: Path) -> None:
    """SIGKILL of a worker, SIGKILL of the command, SIGTERM, then --resume: four trials, the scores of whole runs."""
    out = tmp_path / "out"
    command = tune(tmp_path, "--steps", "1200", "--grace", "400", "--trials", "4")
    with started(command, stdout=subprocess.DEVNULL) as killed:
        assert waited(lambda: checkpointed(out))
        os.kill(worker_of(out), signal.SIGKILL)
        assert killed.stderr is not None
        assert any("tried again from its last checkpoint" in line for line in killed.stderr)
        assert waited(lambda: written(out))
        killed.kill()
        killed.communicate()
        assert waited(lambda: not written(out)), "runs outlived the command that started them"
    with started(command) as stopped:
        assert waited(lambda: written(out))
        before = stopped_in_order(out)
        stopped.send_signal(signal.SIGTERM)
        text, errors = stopped.communicate(timeout=PATIENCE)
    assert stopped.returncode == 75, errors
    assert "the same command goes on" in text and not written(out) and not (out / "stop").exists()
    assert stopped_in_order(out) > before, "runs were asked to stop, and not killed"
    found = answer([sys.executable, "-m", "ubp2", "tune", "--resume", str(out), *RAY])
    states = [trial["state"] for trial in found["trials"]]
    assert len(states) == 4 and set(states) <= {"finished", "stopped early"} and states[0] == "finished"
    assert_as_undisturbed(out / "trial-000" / "seeds-0", tmp_path / "whole")


def stopped_in_order(out: Path) -> int:
    """How often a run of the search has left with a checkpoint."""
    return sum(log.read_text(encoding="utf-8").count("stopped at decision") for log in out.glob("trial-*/seeds-0.log"))


def assert_as_undisturbed(run: Path, whole: Path) -> None:
    """The evaluations of a run that was killed are those of the same run left alone, as far as it came."""
    train = [sys.executable, "-m", "ubp2", "train", "--quiet", "--config", str(run.parent / "cell.yaml")]
    subprocess.run([*train, "--out", str(whole)], check=True, capture_output=True, timeout=PATIENCE)

    def evaluations(folder: Path) -> list[dict[str, Any]]:
        rows = [row for row in read_metrics(folder) if row["kind"] == "eval"]
        return [{name: value for name, value in row.items() if not name.startswith("time")} for row in rows]

    disturbed = evaluations(run)
    assert disturbed and disturbed == evaluations(whole)[: len(disturbed)]


def worker_of(out: Path) -> int:
    """The process of Ray in which a trial of this search is: the parent of a child that trains it."""
    listed = subprocess.run(["ps", "-ww", "-eo", "ppid,args"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        if "ubp2.experiments.child" in line and str(out) in line:
            return int(line.split()[0])
    raise AssertionError(f"nothing trains in {out}")


@pytest.mark.slow
def test_a_trial_that_fails_is_told_and_tried_again_by_the_same_command(tmp_path: Path) -> None:
    """A run folder that cannot be made, in a search of two seeds a trial that has grown by a trial."""
    command = tune(tmp_path, "--steps", "300", "--grace", "150", "--retries", "1", "--seeds", "2")
    answer([*command, "--trials", "1"])
    way = tmp_path / "out" / "trial-001" / "seeds-0-1"
    way.parent.mkdir()
    way.write_text("in the way", encoding="utf-8")
    found = answer([*command, "--trials", "2"], code=1)
    assert [(trial["trial"], trial["state"]) for trial in found["trials"]] == [(0, "finished"), (1, "failed")]
    assert str(way) in found["trials"][1]["reason"]
    way.unlink()
    again = answer([*command, "--trials", "2"])
    assert {trial["state"] for trial in again["trials"]} <= {"finished", "stopped early"}


@pytest.mark.slow
def test_a_trial_whose_node_dies_goes_on_at_another(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        out, where = tmp_path / "out", ["--address", cluster.address, "--cpus", "1"]
        command = tune(tmp_path, "--steps", "1200", "--grace", "1200", "--trials", "2", *where, "--json")
        with started(command) as running:
            assert waited(lambda: checkpointed(out) and len(list(out.glob("trial-*/seeds-0"))) == 2)
            cluster.remove_node(nodes[0], allow_graceful=False)
            text, errors = running.communicate(timeout=PATIENCE)
    finally:
        cluster.shutdown()
    assert running.returncode == 0, errors
    assert "tried again from its last checkpoint" in errors
    assert [trial["state"] for trial in json.loads(text)["trials"]] == ["finished", "finished"]
