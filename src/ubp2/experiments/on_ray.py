"""Programs as tasks of a Ray cluster: Ray places them by their resources, and tries again what fails or is lost.

Each task is the local `Workers` for one program, on whatever node it lands, so that logs, clips and checkpoints are the
same. Run folders must lie on a path that all nodes share. A task that is tried again goes on from its checkpoint.
"""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ubp2.errors import UserError
from ubp2.experiments.execution import Outcome, Workers, label
from ubp2.experiments.programs import Program
from ubp2.experiments.resources import Resources

__all__ = ["RayWorkers", "connected", "fitting", "nodes_of"]

FORCE_AFTER = 120  # seconds; a worker that is killed takes its run along, which still writes a checkpoint


class RunFailed(Exception):
    """A run ended with an error: Ray tries its program again, where it likes. Its argument is what `_train` returns."""


class RayWorkers:
    """The interface of `Workers` over a cluster: the one that `connected` finds."""

    def __init__(
        self,
        retries: int,
        say: Callable[[str], None],
        address: str | None = None,
        needs: Callable[[Program], Resources] = lambda _: Resources(2),
        until: float | None = None,
    ) -> None:
        self._ray = connected(address)
        self._retries = retries
        self._say = say
        self._needs = needs
        self._until = until
        self._tasks: dict[Any, Program] = {}
        self._stopping = threading.Event()

    def run(self, programs: Sequence[Program], clips: bool) -> Iterator[Outcome]:
        """Train every program; yields the groups of each as it ends, whatever became of them."""
        ray = self._ray
        nodes, needs = nodes_of(ray), [self._needs(program) for program in programs]
        cores, devices = (sum(node.get(kind, 0) for node in nodes) for kind in ("CPU", "GPU"))
        self._say(f"Ray: {len(nodes)} nodes, {cores:.0f} cores, {devices:.0f} GPUs")
        if not devices and any(own.gpus for own in needs):
            raise UserError(
                "the plan asks for GPUs and no node of the Ray cluster has one; add such a node, choose the preset "
                "cpu, or train on cores with resources: {gpus: 0} in the file of a sweep"
            )
        train = ray.remote(_train)
        for program, own in zip(programs, needs, strict=True):
            cpus, gpus = fitting(own.cpus, own.gpus, nodes)
            task = train.options(num_cpus=cpus, num_gpus=gpus, max_retries=self._retries, retry_exceptions=[RunFailed])
            self._tasks[task.remote(_absolute(program), clips, self._until)] = program
        waiting = list(self._tasks)
        asked = 0
        while waiting:
            ready, waiting = ray.wait(waiting, timeout=1.0)
            for task in ready:
                yield from self._outcomes(task)
            if self._until is not None and time.time() > self._until:  # also for tasks that wait for resources
                self._stopping.set()
            if self._stopping.is_set():  # again and again, because a request to cancel may get lost
                asked += 1
                for task in waiting:
                    ray.cancel(task, force=asked > FORCE_AFTER)

    def stop(self) -> None:
        """Cancel every task: those that train write a checkpoint first."""
        self._stopping.set()

    def kill(self) -> None:
        """Nothing more than `stop`: workers that do not leave are killed after a while."""
        self._stopping.set()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()

    def _outcomes(self, task: Any) -> list[Outcome]:
        """How the groups of a task ended; those that had ended before the last attempt are finished."""
        program = self._tasks[task]
        try:
            told = self._ray.get(task)
        except RunFailed as error:
            cause = error.args[0]  # Ray wraps what was raised
            told = cause.args[0] if isinstance(cause, RunFailed) else cause
        except self._ray.exceptions.TaskCancelledError:
            return [Outcome(group, "stopped") for group in program.groups]
        except self._ray.exceptions.RayError as error:
            return [Outcome(group, "failed", reason=f"{label(group)}: {error}") for group in program.groups]
        attempts = {"failed": self._retries + 1}
        return [
            Outcome(group, state, attempts.get(state, 1), reason)
            for group, (state, reason) in zip(program.groups, told, strict=True)
        ]


def _train(program: Program, clips: bool, until: float | None) -> list[tuple[str, str]]:
    """On a node: one program, to its end or until it is cancelled; the state and the reason of each group."""
    workers, outcomes, done = Workers(1, 0, lambda _: None, until), list[Outcome](), threading.Event()
    asked = threading.Event()

    def work() -> None:
        try:
            outcomes.extend(workers.run([program], clips))
        finally:
            done.set()

    threading.Thread(target=work).start()
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())  # how Ray cancels, as often as it likes
    try:
        while not done.wait(0.2):  # short, because that interrupt wakes nobody up
            if asked.is_set():
                workers.stop()
    finally:
        signal.signal(signal.SIGINT, before)
    ended = {outcome.group: (outcome.state, outcome.reason) for outcome in outcomes}
    told = [ended[group] for group in program.groups]
    if any(state == "failed" for state, _ in told) and not asked.is_set():
        raise RunFailed(told)
    return told


def nodes_of(ray: Any) -> list[Mapping[str, float]]:
    """What each node of the cluster has, by kind."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def fitting(cpus: float, gpus: float, nodes: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """As many of these as one node has at once; for more a task would wait for ever. GPUs go before cores."""
    gpus = min(gpus, max((node.get("GPU", 0) for node in nodes), default=0))
    return min(cpus, max((node.get("CPU", 0) for node in nodes if node.get("GPU", 0) >= gpus), default=0)), gpus


def _absolute(program: Program) -> Program:
    """The same program for a process with another working folder."""
    groups = tuple(
        replace(group, cell=replace(group.cell, folder=Path(group.cell.folder).absolute())) for group in program.groups
    )
    return replace(program, groups=groups, out=None if program.out is None else program.out.absolute())


def _check_reachable(address: str | None) -> None:
    """Tell a wrong address at once; Ray itself tries for more than a minute."""
    found = re.fullmatch(r"([\w.-]+):(\d+)", address or "")
    if found is None:  # auto, local, ray://...: Ray knows what they mean
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"there is no Ray cluster at {address}: {error}; start one with ray start --head") from None


def connected(address: str | None) -> Any:
    """Ray, as part of the cluster at `address`; None: at RAY_ADDRESS, the one of this machine, or a new one here."""
    try:
        import ray
    except ImportError:
        raise UserError("this needs Ray, which is not installed; run: pip install 'ubp2[ray]'") from None
    _check_reachable(address)
    try:
        ray.init(address=address, log_to_driver=False, ignore_reinit_error=True, include_dashboard=False)
    except ConnectionError as error:
        raise UserError(f"there is no Ray cluster at {address}: {error}; start one with ray start --head") from None
    return ray
