"""Groups of seeds as tasks of a Ray cluster: Ray places them, and moves those of a node that dies.

Each task is the local `Workers` for one group, on whatever node it lands, so that retries, logs, clips and checkpoints
are the same. Run folders must lie on a path that all nodes share. A task that is moved goes on from its checkpoint.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ubp2.errors import UserError
from ubp2.experiments.cells import Group
from ubp2.experiments.execution import Outcome, Workers, label

__all__ = ["RayWorkers", "connected"]

FORCE_AFTER = 120  # seconds; a worker that is killed takes its run along, which still writes a checkpoint


class RayWorkers:
    """The interface of `Workers` over a cluster: the one at `address`, RAY_ADDRESS, or a new one on this machine."""

    def __init__(self, retries: int, say: Callable[[str], None], address: str | None = None) -> None:
        self._ray = connected(address)
        self._retries = retries
        self._say = say
        self._tasks: dict[Any, Group] = {}
        self._stopping = threading.Event()

    def run(self, groups: Sequence[Group], clips: bool) -> Iterator[Outcome]:
        """Train every group; yields each as it ends, whatever became of it."""
        ray = self._ray
        resources = ray.cluster_resources()
        gpus = 1 if resources.get("GPU", 0) >= 1 else 0
        cpus = min(2, int(resources.get("CPU", 1)))
        train = ray.remote(_train).options(num_cpus=cpus, num_gpus=gpus, max_retries=-1)
        placed = f"{cpus} cores" + (" and a GPU" if gpus else "")
        self._say(f"Ray: {len(ray.nodes())} nodes, {resources.get('CPU', 0):.0f} cores; {placed} for each group")
        self._tasks = {train.remote(_absolute(group), self._retries, clips): group for group in groups}
        waiting = list(self._tasks)
        asked = 0
        while waiting:
            ready, waiting = ray.wait(waiting, timeout=1.0)
            for task in ready:
                yield self._outcome(task)
            if self._stopping.is_set():  # again and again, because a request to cancel may get lost
                asked += 1
                for task in waiting:
                    ray.cancel(task, force=asked > FORCE_AFTER)

    def stop(self) -> None:
        """Cancel every task: those that train write a checkpoint first."""
        self._stopping.set()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()

    def _outcome(self, task: Any) -> Outcome:
        group = self._tasks[task]
        try:
            state, attempts, reason = self._ray.get(task)
            return Outcome(group, state, attempts, reason)
        except self._ray.exceptions.TaskCancelledError:
            return Outcome(group, "stopped")
        except self._ray.exceptions.RayError as error:
            return Outcome(group, "failed", reason=f"{label(group)}: {error}")


def _train(group: Group, retries: int, clips: bool) -> tuple[str, int, str]:
    """On a node: one group, to its end or until it is cancelled."""
    workers, outcomes, done = Workers(1, retries, lambda _: None), [], threading.Event()
    asked = threading.Event()

    def work() -> None:
        try:
            outcomes.extend(workers.run([group], clips))
        finally:
            done.set()

    threading.Thread(target=work).start()
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())  # how Ray cancels, as often as it likes
    try:
        stopped = False
        while not done.wait(0.2):  # short, because that interrupt wakes nobody up
            if asked.is_set() and not stopped:
                stopped = True
                workers.stop()
    finally:
        signal.signal(signal.SIGINT, before)
    (outcome,) = outcomes
    return outcome.state, outcome.attempts, outcome.reason


def _absolute(group: Group) -> Group:
    """The same group for a process with another working folder."""
    return replace(group, cell=replace(group.cell, folder=Path(group.cell.folder).absolute()))


def connected(address: str | None) -> Any:
    """Ray, as part of the cluster at `address`; None: at RAY_ADDRESS, or a new one on this machine."""
    try:
        import ray
    except ImportError:
        raise UserError("this needs Ray, which is not installed; run: pip install 'ubp2[ray]'") from None
    try:
        ray.init(address=address, log_to_driver=False, ignore_reinit_error=True, include_dashboard=False)
    except ConnectionError as error:
        raise UserError(f"there is no Ray cluster at {address}: {error}; start one with ray start --head") from None
    return ray
