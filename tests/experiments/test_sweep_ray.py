"""Sweeps on a real Ray cluster of several nodes on one machine, which loses a node and workers on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.sweeps import evaluations, parent, ran, resumed, sweep, training, waited, write

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


def node_of(cluster: Any, worker: int) -> Any:
    """The node that started a worker."""
    raylet = parent(worker)
    return next(node for node in cluster.worker_nodes if node.all_processes["raylet"][0].process.pid == raylet)


def disturbed(cluster: Any, folder: Path, file: Path, workers: int) -> Path:
    """Run a sweep on the cluster, kill `workers` workers and then the node of a further one, and wait for its end."""
    out = folder / "disturbed"
    words = sweep(file, "--on", "ray", "--address", cluster.address, "--out", out, "--json")
    command = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killed: set[int] = set()
    for _ in range(workers):
        assert waited(lambda: set(map(parent, training(out).values())) - killed), "no run has a checkpoint"
        worker = (set(map(parent, training(out).values())) - killed).pop()
        os.kill(worker, signal.SIGKILL)
        killed.add(worker)
    assert waited(lambda: set(map(parent, training(out).values())) - killed - {1})
    lost = node_of(cluster, (set(map(parent, training(out).values())) - killed - {1}).pop())
    cluster.remove_node(lost, allow_graceful=False)
    cluster.add_node(num_cpus=2)
    text, errors = command.communicate(timeout=900)
    assert command.returncode == 0, text + errors
    return out


def held_against_undisturbed(cluster: Any, folder: Path, workers: int, **changes: Any) -> None:
    file = write(folder, **changes)
    out = disturbed(cluster, folder, file, workers)
    assert resumed(out) >= workers + 1
    quiet = folder / "undisturbed"
    assert ran(file, "--out", quiet).returncode == 0
    found = evaluations(out)
    assert found == evaluations(quiet)
    assert all(rows[-1]["decision"] == 600 for rows in found.values())


def test_two_cells_survive_a_worker_and_a_node(cluster: Any, tmp_path: Path) -> None:
    held_against_undisturbed(cluster, tmp_path, workers=1)


@pytest.mark.slow
def test_six_cells_survive_two_workers_and_a_node(cluster: Any, tmp_path: Path) -> None:
    grid = {"training.learning_rate": [1e-3, 3e-4, 1e-4]}
    held_against_undisturbed(cluster, tmp_path, workers=2, grid=grid, seeds=2, together=2)
