"""Environments in worker processes, in lock-step over shared memory; or, for debugging, in this process.

A worker is a fresh interpreter (`ubp2.envs.worker_process`) that never imports jax. It is started with `subprocess`,
not `multiprocessing`, so that a user's script needs no ``if __name__ == "__main__"``. The arrays lie in shared memory;
a step is one byte over a socket each way. The socket is also the life line: a worker that finds it closed leaves,
whatever became of the parent, and a parent that finds it closed tells how the worker died. One that died, or gives no
answer for `environment.patience` seconds, can be replaced by another (`revive`); its episode is gone.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import struct
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from typing import IO

import gymnasium
import numpy as np

from ubp2.config.schema import EnvironmentConfig, VisualConfig
from ubp2.envs.base import EnvSpec, Faulty, Lost, VectorEnv
from ubp2.envs.inline import EnvOrder, Factory, Inline, check_actions, common_spec, gathered, unanswered
from ubp2.envs.worker import Worker
from ubp2.envs.worker_process import RENDER, RESET, STEP, map_slots
from ubp2.errors import UserError
from ubp2.types import Step

__all__ = ["RESTARTS", "EnvOrder", "Factory", "Inline", "Workers", "make_mixed", "make_vector", "write_order"]

RESTARTS = 3
"""How often in a row, without an episode that came to its end, the process of one environment is started anew."""

LEAVING = 2.0  # seconds that workers have to leave at the end, before they are ended

_LOG = logging.getLogger(__name__)


def _never() -> bool:
    return False


def make_vector(
    env: str | Factory,
    options: EnvironmentConfig,
    size: int,
    visual: VisualConfig | None = None,
    stopping: Callable[[], bool] = _never,
) -> VectorEnv:
    """`make_mixed` of equal environments."""
    return make_mixed([EnvOrder(env, options, visual)] * size, stopping)


def make_mixed(orders: Sequence[EnvOrder], stopping: Callable[[], bool] = _never) -> VectorEnv:
    """Build these environments where the options of the first want them. Their sizes must be equal.

    stopping: as in `VectorEnv.heed`, from the start on.
    """
    if not orders:
        raise UserError("expected at least one environment, got 0")
    for env, options, _ in orders:
        if not isinstance(env, str) and (isinstance(env, gymnasium.Env) or not callable(env)):
            raise UserError(
                f"expected an environment id or a function that builds a gymnasium.Env, got {type(env).__name__}; "
                f"pass the function itself (env=make_my_env), because several environments are built from it"
            )
        if not options.patience >= 0:
            raise UserError(f"environment.patience must be seconds, or 0 to wait without end, got {options.patience}")
    if orders[0].options.in_process:
        return Inline(orders)
    unlike = {(id(order.env), order.options, order.visual): order for order in orders}  # a function is pickled once
    written = {key: write_order(*order) for key, order in unlike.items()}
    each = [written[id(order.env), order.options, order.visual] for order in orders]
    return Workers(each, orders[0].options.patience, stopping)


def write_order(env: str | Factory, options: EnvironmentConfig, visual: VisualConfig | None = None) -> bytes:
    """Write down an environment for another process of this user, which `worker_process.build` makes of it."""
    header = {
        "id": env if isinstance(env, str) else None,
        "options": dataclasses.asdict(options),
        "visual": None if visual is None else dataclasses.asdict(visual),
    }
    return json.dumps(header).encode() + b"\n" + (b"" if isinstance(env, str) else _pickle(env))


class Workers:
    """W worker processes, one environment each, in one block of shared memory."""

    def __init__(self, orders: Sequence[bytes], patience: float, stopping: Callable[[], bool] = _never) -> None:
        self.size = size = len(orders)
        self._orders, self._patience, self._stopping = orders, patience, stopping
        self._sent = 0.0  # when the last command went out
        self._losses = np.zeros(size, int)  # of each environment, since an episode of it came to its end
        self._stepping: Sequence[int] = ()  # between send and receive
        self._resetting: list[int] = []  # between send_resets and receive_resets
        self._workers: list[Worker] = []
        # Open until `close`: a file without a name, which the system frees even if this process is killed.
        self._memory = tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # noqa: SIM115
        self._close = weakref.finalize(self, _close_all, self._workers, self._memory)
        try:
            for index in range(size):  # all of them import at the same time
                self._workers.append(self._start(index))
            self.specs: Sequence[EnvSpec] = [worker.greet(stopping) for worker in self._workers]
            self.spec = common_spec(self.specs)
            self._slots = map_slots(self._memory.fileno(), size, self.spec)
        except BaseException:
            self.close()
            raise

    def _start(self, index: int) -> Worker:
        return Worker(index, self.size, self._memory.fileno(), self._orders[index], self._patience)

    def reset(self, index: int, seed: int) -> np.ndarray:
        self.send_resets({index: seed})
        return self.receive_resets()[index]

    def send_resets(self, seeds: Mapping[int, int]) -> None:
        self._require_idle("reset")
        for index, seed in seeds.items():
            self._slots.seed[index] = seed
            self._workers[index].send(RESET)
        self._resetting, self._sent = list(seeds), time.monotonic()

    def receive_resets(self) -> dict[int, np.ndarray]:
        indices, self._resetting = self._resetting, []
        error = self._wait(indices)
        arrived = {i: self._slots.obs[i].copy() for i in indices if error is None or i not in unanswered(error)}
        if error is not None:
            error.observations = arrived
            raise error
        return arrived

    def send(self, actions: np.ndarray, which: Sequence[int] | None = None) -> None:
        self._require_idle("send")
        self._slots.action[:] = check_actions(actions, self.size, self.spec)
        self._stepping = range(self.size) if which is None else which
        for index in self._stepping:
            self._workers[index].send(STEP)
        self._sent = time.monotonic()

    def receive(self) -> Step:
        if not self._stepping:
            raise RuntimeError("receive() without send()")
        stepping, self._stepping = self._stepping, ()
        error = self._wait(stepping)
        flags = self._slots.flags.copy()
        step = Step(self._slots.obs.copy(), self._slots.reward.copy(), flags[:, 0], flags[:, 1], flags[:, 2])
        if error is not None:
            error.step = step
            raise error
        self._losses[step.terminated | step.truncated] = 0
        return step

    def _wait(self, indices: Iterable[int]) -> Lost | Faulty | None:
        """Take every answer before the first error is raised, so that none is left for the next call to find."""
        answers = [self._workers[index].answer(self._sent, self._stopping) for index in indices]
        dead = [error for error in answers if isinstance(error, Lost)]
        faults = [error for error in answers if isinstance(error, Faulty)]
        for error in answers:
            if error is not None and not isinstance(error, (Lost, Faulty)):
                raise error
        lost = Lost({index: reason for each in dead for index, reason in each.reasons.items()}) if dead else None
        return gathered(faults, lost=lost) if faults else lost

    def revive(self, lost: Lost) -> None:
        self._require_idle("revive")
        if self._stopping():
            raise lost
        hopeless: list[Faulty] = []
        for index, reason in lost.reasons.items():
            self._losses[index] += 1
            if self._losses[index] > RESTARTS:
                sentence = (
                    f"environment {index} was lost {self._losses[index]} times, and no episode came to its end in "
                    f"between; the last time: {reason}"
                )
                hopeless.append(Faulty(sentence, index))
                continue
            _LOG.warning(
                "environment %d is started anew (%d of %d in a row): %s", index, self._losses[index], RESTARTS, reason
            )
            self._workers[index].end()
            self._workers[index] = self._start(index)
        gone = {error.index for error in hopeless}
        for index in lost.indices:
            if index in gone:
                continue
            try:
                self._workers[index].greet(self._stopping)
            except Faulty as error:
                hopeless += error.all
            except Lost as again:
                try:
                    self.revive(again)
                except Faulty as error:
                    hopeless += error.all
        if hopeless:
            raise gathered(hopeless)

    def heed(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping

    def render(self, index: int) -> np.ndarray:
        self._require_idle("render")
        worker = self._workers[index]
        worker.send(RENDER)
        worker.wait(self._stopping)
        frame = worker.block()
        height, width = struct.unpack_from("<II", frame)
        return np.frombuffer(frame, np.uint8, offset=8).reshape(height, width, 3).copy()

    def close(self) -> None:
        """End the workers; may be called again."""
        self._stepping, self._resetting = (), []
        self._close()

    def _require_idle(self, what: str) -> None:
        if not self._close.alive:
            raise RuntimeError(f"{what}() after close()")
        if self._stepping or self._resetting:
            raise RuntimeError(f"{what}() between send() and receive()")


def _close_all(workers: list[Worker], memory: IO[bytes]) -> None:
    for worker in workers:
        worker.hang_up()
    until = time.monotonic() + LEAVING  # for all of them: those that hang would add up
    for worker in workers:
        worker.leave(until)
    memory.close()


def _pickle(factory: Factory) -> bytes:
    """Pickle by reference where the worker can import the module, as it can from the same sys.path; else by value."""
    import cloudpickle

    name = getattr(factory, "__module__", None)
    module = sys.modules.get(name) if name else None
    by_value = module is not None and PathFinder.find_spec(module.__name__.partition(".")[0]) is None
    try:
        if by_value:
            cloudpickle.register_pickle_by_value(module)
        return cloudpickle.dumps(factory)
    except Exception as error:  # pickling runs the user's own __reduce__, which may raise anything
        raise UserError(
            f"the environment function cannot be sent to a worker process: {error}; build what it needs inside the "
            f"function, or set environment.in_process"
        ) from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
