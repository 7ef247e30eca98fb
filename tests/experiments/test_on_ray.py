"""Groups on a real Ray cluster of one machine: what finishes, what fails, and what is stopped with a checkpoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ubp2.config.files import overridden
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.errors import UserError
from ubp2.experiments import on_ray
from ubp2.experiments.cells import Cell, Group
from ubp2.experiments.on_ray import RayWorkers, fitting
from ubp2.experiments.programs import Program
from ubp2.experiments.resources import Resources

SMALL = {
    "model.width": 16,
    "planner.samples": 16,
    "planner.elites": 4,
    "planner.policy_samples": 4,
    "planner.iterations": 1,
    "training.batch_size": 16,
    "training.warmup": 100,
    "preferences.every": 100,
    "evaluation.episodes": 1,
    "checkpoint.every": 100,
}


def group(folder: Path, env: str, steps: int) -> Group:
    config = resolve(overridden(preset("cpu", "toy/reach"), {**SMALL, "steps": steps}), 50)
    return Group(Cell(env, "ubp2", replace(config, env=env), 1, folder / env.replace("/", "-")), 0, 1)


@pytest.fixture
def workers() -> Iterator[RayWorkers]:
    made = RayWorkers(retries=0, say=lambda _: None, address="local")
    yield made
    made.close()


@pytest.mark.slow
def test_what_finishes_and_what_fails_is_told_apart(workers: RayWorkers, tmp_path: Path) -> None:
    good, bad = group(tmp_path, "toy/reach", 300), group(tmp_path, "toy/nothing", 300)
    outcomes = {outcome.group: outcome for outcome in workers.run([Program((good,)), Program((bad,))], clips=False)}
    assert outcomes[good].state == "finished", outcomes[good].reason
    assert (good.folder / "metrics.jsonl").exists()
    assert outcomes[bad].state == "failed" and "unknown toy task" in outcomes[bad].reason


@pytest.mark.slow
def test_a_task_that_is_stopped_leaves_a_checkpoint(workers: RayWorkers, tmp_path: Path) -> None:
    endless = group(tmp_path, "toy/reach", 200_000)

    def stop() -> None:
        end = time.monotonic() + 200
        while time.monotonic() < end and not any(endless.folder.glob("checkpoints/*/manifest.json")):
            time.sleep(0.2)
        workers.stop()

    threading.Thread(target=stop, daemon=True).start()
    (outcome,) = workers.run([Program((endless,))], clips=False)
    assert outcome.state == "stopped", outcome.reason
    log = endless.folder.with_name("seeds-0.log").read_text(encoding="utf-8")
    assert "stopped at decision" in log, "the run was asked to stop, and not killed"


def test_a_task_asks_for_what_one_node_has_at_once() -> None:
    nodes = [{"CPU": 32.0}, {"CPU": 4.0, "GPU": 1.0}, {"node:head": 1.0}]
    assert fitting(16, 0.5, nodes) == (4, 0.5), "the node with the GPU has four cores"
    assert fitting(16, 0, nodes) == (16, 0)
    assert fitting(64, 2, nodes) == (4, 1)


def test_groups_for_gpus_are_refused_where_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": {"CPU": 8.0}}])
    monkeypatch.setattr(on_ray, "connected", lambda address: cores)
    made = RayWorkers(retries=0, say=lambda _: None, needs=lambda _: Resources(2, 0.25))
    with pytest.raises(UserError, match=r"the plan asks for GPUs and no node .* resources: \{gpus: 0\}"):
        next(made.run([Program((group(tmp_path, "toy/reach", 300),))], clips=False))


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(UserError, match="there is no Ray cluster at 127.0.0.1:1: .*; start one with ray start --head"):
        RayWorkers(retries=0, say=lambda _: None, address="127.0.0.1:1")
