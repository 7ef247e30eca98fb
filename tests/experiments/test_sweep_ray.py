"""Sweeps on a real Ray cluster of several nodes on one machine, which loses a node and workers on the way."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.sweeps import command, evaluations, parent, ran, resumed, started, sweep, training, waited, write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that runs nothing, and two nodes with two cores each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            made.add_node(num_cpus=2)
        yield made
    finally:
        made.shutdown()


def workers_of(out: Path) -> set[int]:
    """Workers of Ray whose runs have a checkpoint; a run that was orphaned a moment ago has another parent."""
    return {own for own in map(parent, training(out).values()) if command(own)[:1] and "ray::" in command(own)[0]}


def node_of(cluster: Any, worker: int) -> Any:
    """The node that started a worker."""
    raylet = parent(worker)
    return next(node for node in cluster.worker_nodes if node.all_processes["raylet"][0].process.pid == raylet)


def next_worker(out: Path) -> int:
    """A worker whose run has a checkpoint and is not finished."""
    assert waited(lambda: workers_of(out)), "no run has a checkpoint"
    return workers_of(out).pop()


def disturbed(cluster: Any, folder: Path, file: Path, workers: int) -> Path:
    """Run a sweep on the cluster, kill `workers` workers and then the node of a further one, and wait for its end."""
    out = folder / "disturbed"
    words = sweep(file, "--on", "ray", "--address", cluster.address, "--out", out, "--json")
    with started(words) as running:
        for _ in range(workers):
            os.kill(next_worker(out), signal.SIGKILL)
        lost = node_of(cluster, next_worker(out))
        cluster.remove_node(lost, allow_graceful=False)
        cluster.add_node(num_cpus=2)
        text, errors = running.communicate(timeout=900)
    assert running.returncode == 0, text + errors
    return out


def held_against_undisturbed(cluster: Any, folder: Path, workers: int, **changes: Any) -> None:
    file = write(folder, **changes)
    out = disturbed(cluster, folder, file, workers)
    assert resumed(out) >= 1, "a kill may meet a run that has just ended, or the same run twice, but not always"
    quiet = folder / "undisturbed"
    assert ran(file, "--out", quiet).returncode == 0
    found = evaluations(out)
    assert found == evaluations(quiet)
    assert all(rows[-1]["decision"] == 600 for rows in found.values())


@pytest.mark.slow  # a minute and more; test_on_ray.py has the small ones
def test_two_cells_survive_a_worker_and_a_node(cluster: Any, tmp_path: Path) -> None:
    held_against_undisturbed(cluster, tmp_path, workers=1)


@pytest.mark.slow
def test_six_cells_survive_two_workers_and_a_node(cluster: Any, tmp_path: Path) -> None:
    grid = {"training.learning_rate": [1e-3, 3e-4, 1e-4]}
    held_against_undisturbed(cluster, tmp_path, workers=2, grid=grid, seeds=2, together=2)
