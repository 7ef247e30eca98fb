"""Environments in worker processes, in lock-step over shared memory; or, for debugging, in this process.

A worker is a fresh interpreter (`ubp2.envs.worker_process`) that never imports jax. It is started with `subprocess`,
not `multiprocessing`, so that a user's script needs no ``if __name__ == "__main__"``. The arrays lie in shared memory;
a step is one byte over a socket each way. The socket is also the life line: a worker that finds it closed leaves,
whatever became of the parent, and a parent that finds it closed tells how the worker died.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from typing import IO

import gymnasium
import numpy as np

from ubp2.configs import EnvironmentConfig
from ubp2.envs.base import Env, EnvSpec, VectorEnv
from ubp2.envs.worker_process import CRASH, OK, RENDER, RESET, STEP, map_slots, read_block, write_block
from ubp2.errors import UserError
from ubp2.types import Step

__all__ = ["ONE_THREAD", "Factory", "Inline", "Workers", "connect", "make_vector", "obituary", "write_order"]

Factory = Callable[[], gymnasium.Env]
"""A user's own function that builds a Gymnasium environment."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ubp2.envs.worker_process import serve; serve(*map(int, sys.argv[2:]))"
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def make_vector(env: str | Factory, options: EnvironmentConfig, size: int) -> VectorEnv:
    """Build `size` environments of an id, or of a user's function, where the options want them."""
    if not isinstance(env, str) and (isinstance(env, gymnasium.Env) or not callable(env)):
        raise UserError(
            f"expected an environment id or a function that builds a gymnasium.Env, got {type(env).__name__}; "
            f"pass the function itself (env=make_my_env), because several environments are built from it"
        )
    if size < 1:
        raise UserError(f"expected at least one environment, got {size}")
    return Inline(env, options, size) if options.in_process else connect(env, options, size)


def connect(env: str | Factory, options: EnvironmentConfig, size: int) -> Workers:
    """Start `size` workers side by side and wait until each has built its environment."""
    return Workers(write_order(env, options), size)


def write_order(env: str | Factory, options: EnvironmentConfig) -> bytes:
    """Write down an environment for another process of this user, which `worker_process.build` makes of it."""
    header = json.dumps({"id": env if isinstance(env, str) else None, "options": dataclasses.asdict(options)})
    return header.encode() + b"\n" + (b"" if isinstance(env, str) else _pickle(env))


def obituary(name: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> UserError:
    """Build the error for a process that is gone: how it ended and the last it wrote."""
    try:
        code = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        code = None
    how = "closed its connection" if code is None else f"ended with exit code {code}"
    if code is not None and code < 0:
        how = f"was ended by signal {-code} ({signal.Signals(-code).name})"
    log.seek(0)
    last = log.read().decode(errors="replace").splitlines()[-15:]
    wrote = "it wrote nothing" if not last else "its last lines:\n  " + "\n  ".join(last)
    return UserError(f"{name} (process {process.pid}) {how}; {wrote}")


class Inline:
    """W environments in this process, with the interface of `Workers`."""

    def __init__(self, env: str | Factory, options: EnvironmentConfig, size: int) -> None:
        from ubp2.envs.adapter import adapt
        from ubp2.envs.registry import make

        build = make if isinstance(env, str) else adapt
        self._envs: list[Env] = [build(env, options) for _ in range(size)]  # type: ignore[arg-type]
        self._actions: np.ndarray | None = None
        self._stepping: Sequence[int] = ()
        self._resets: dict[int, int] = {}
        self.size = size
        self.spec = self._envs[0].spec

    def reset(self, index: int, seed: int) -> np.ndarray:
        return self._envs[index].reset(seed)

    def send_resets(self, seeds: Mapping[int, int]) -> None:
        self._resets = dict(seeds)

    def receive_resets(self) -> dict[int, np.ndarray]:
        seeds, self._resets = self._resets, {}
        return {index: self.reset(index, seed) for index, seed in seeds.items()}

    def send(self, actions: np.ndarray, which: Sequence[int] | None = None) -> None:
        self._actions = _check_actions(actions, self.size, self.spec)
        self._stepping = range(self.size) if which is None else which

    def receive(self) -> Step:
        if self._actions is None:
            raise RuntimeError("receive() without send()")
        actions, self._actions = self._actions, None
        obs, reward = np.zeros((self.size, self.spec.obs_dim), np.float32), np.zeros(self.size)
        flags = np.zeros((self.size, 3), bool)
        for i in self._stepping:
            obs[i], reward[i], *flags[i] = self._envs[i].step(actions[i])
        return Step(obs, reward, flags[:, 0], flags[:, 1], flags[:, 2])

    def render(self, index: int) -> np.ndarray:
        return self._envs[index].render()

    def close(self) -> None:
        for env in self._envs:
            env.close()


class Workers:
    """W worker processes, one environment each, in one block of shared memory."""

    def __init__(self, order: bytes, size: int) -> None:
        self.size = size
        self._stepping: Sequence[int] = ()  # between send and receive
        self._resetting: list[int] = []  # between send_resets and receive_resets
        self._workers: list[_Worker] = []
        # Open until `close`: a file without a name, which the system frees even if this process is killed.
        memory = tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # noqa: SIM115
        self._close = weakref.finalize(self, _close_all, self._workers, memory)
        try:
            for index in range(size):  # all of them import at the same time
                self._workers.append(_Worker(index, size, memory.fileno(), order))
            specs = [worker.greet() for worker in self._workers]
            self.spec = specs[0]
            self._slots = map_slots(memory.fileno(), size, self.spec.obs_dim, self.spec.action_dim)
        except BaseException:
            self.close()
            raise

    def reset(self, index: int, seed: int) -> np.ndarray:
        self.send_resets({index: seed})
        return self.receive_resets()[index]

    def send_resets(self, seeds: Mapping[int, int]) -> None:
        self._require_idle("reset")
        for index, seed in seeds.items():
            self._slots.seed[index] = seed
            self._workers[index].send(RESET)
        self._resetting = list(seeds)

    def receive_resets(self) -> dict[int, np.ndarray]:
        indices, self._resetting = self._resetting, []
        self._wait(indices)
        return {index: self._slots.obs[index].copy() for index in indices}

    def send(self, actions: np.ndarray, which: Sequence[int] | None = None) -> None:
        self._require_idle("send")
        self._slots.action[:] = _check_actions(actions, self.size, self.spec)
        self._stepping = range(self.size) if which is None else which
        for index in self._stepping:
            self._workers[index].send(STEP)

    def receive(self) -> Step:
        if not self._stepping:
            raise RuntimeError("receive() without send()")
        stepping, self._stepping = self._stepping, ()
        self._wait(stepping)
        flags = self._slots.flags.copy()
        return Step(self._slots.obs.copy(), self._slots.reward.copy(), flags[:, 0], flags[:, 1], flags[:, 2])

    def _wait(self, indices: Iterable[int]) -> None:
        """Take every answer before the first error is raised, so that none is left for the next call to find."""
        errors = [error for index in indices if (error := self._workers[index].answer()) is not None]
        if errors:
            raise errors[0]

    def render(self, index: int) -> np.ndarray:
        self._require_idle("render")
        worker = self._workers[index]
        worker.send(RENDER)
        worker.wait()
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


class _Worker:
    """One process and its socket, seen from the parent."""

    def __init__(self, index: int, size: int, memory: int, order: bytes) -> None:
        self.index = index
        self._socket, theirs = socket.socketpair()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (open until `close`)
        fds = (theirs.fileno(), memory)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(sys.path), *map(str, (*fds, index, size))],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=os.environ | ONE_THREAD,
                start_new_session=True,  # Ctrl-C in the terminal reaches the parent alone
            )
        with contextlib.suppress(BrokenPipeError):  # a worker that died at once is reported by `greet`
            write_block(self._socket, order)

    def greet(self) -> EnvSpec:
        """Wait for the environment to stand."""
        self.wait()
        return EnvSpec.from_dict(json.loads(self.block()))

    def send(self, command: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `answer` finds out and says why
            self._socket.sendall(command)

    def wait(self) -> None:
        """Take the answer; raise what it reports."""
        if (error := self.answer()) is not None:
            raise error

    def answer(self) -> UserError | None:
        """Take the answer to the last command; return the error that it reports."""
        try:
            kind = self._socket.recv(1)
            if kind == OK:
                return None
            text = read_block(self._socket).decode() if kind else None
        except (EOFError, ConnectionError):
            text = None
        if text is None:
            return self._obituary()
        return UserError(f"the environment raised {text}" if kind == CRASH else text)

    def block(self) -> bytes:
        try:
            return read_block(self._socket)
        except (EOFError, ConnectionError):
            raise self._obituary() from None

    def _obituary(self) -> UserError:
        return obituary(f"environment worker {self.index}", self._process, self._log)

    def hang_up(self) -> None:
        self._socket.close()

    def close(self) -> None:
        """Wait for the process to leave, as it does when the socket is closed; end it where it does not."""
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def _close_all(workers: list[_Worker], memory: IO[bytes]) -> None:
    for worker in workers:
        worker.hang_up()
    for worker in workers:
        worker.close()
    memory.close()


def _check_actions(actions: np.ndarray, size: int, spec: EnvSpec) -> np.ndarray:
    actions = np.array(actions, np.float32)
    if actions.shape != (size, spec.action_dim):
        raise ValueError(f"expected actions of shape {(size, spec.action_dim)}, got {actions.shape}")
    return actions


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
