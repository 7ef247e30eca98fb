"""One worker process and its socket, seen from the parent: started, asked, waited for with patience, ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO

from ubp2.envs.base import EnvSpec, Faulty, Lost
from ubp2.envs.worker_process import CRASH, OK, read_block, write_block
from ubp2.errors import UserError

__all__ = ["ONE_THREAD", "Worker", "obituary"]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
LOOK_EVERY = 500  # milliseconds between two looks at the clock, and at whether the run is to stop
STARTING = 10  # a process that starts and builds its environment is given so many times the patience of a step
STOPPING_PATIENCE = 15.0  # seconds for an answer once the run is to stop: its checkpoint has to be written in time

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ubp2.envs.worker_process import serve; serve(*map(int, sys.argv[2:]))"
)


def obituary(name: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    """Say how a process that is gone ended, and the last it wrote."""
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
    return f"{name} (process {process.pid}) {how}; {wrote}"


class Worker:
    """One process with one environment. After `Lost` only `end` may be called."""

    def __init__(self, index: int, size: int, memory: int, order: bytes, patience: float) -> None:
        """`memory`: the file behind the slots of all `size` workers. `patience` in seconds, 0: without end."""
        self.index, self._patience = index, patience
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(STARTING * patience or None)  # for blocks, of which a part may come and then nothing
        self._arrival = select.poll()
        self._arrival.register(self._socket, select.POLLIN)
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (open until `end`)
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
        with contextlib.suppress(BrokenPipeError, TimeoutError):  # a worker that died at once is reported by `greet`
            write_block(self._socket, order)

    @property
    def pid(self) -> int:
        """The process, for whoever watches it."""
        return self._process.pid

    def greet(self, stopping: Callable[[], bool] = lambda: False) -> EnvSpec:
        """Wait for the environment to stand."""
        if (error := self.answer(time.monotonic(), stopping, STARTING * self._patience)) is not None:
            raise error
        return EnvSpec.from_dict(json.loads(self.block()))

    def send(self, command: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `answer` finds out and says why
            self._socket.sendall(command)

    def wait(self) -> None:
        """Take the answer; raise what it reports."""
        if (error := self.answer(time.monotonic())) is not None:
            raise error

    def answer(
        self, since: float, stopping: Callable[[], bool] = lambda: False, patience: float | None = None
    ) -> UserError | None:
        """Take the answer to the command of the time `since`; return the error that it reports."""
        if not self._arrived(since, stopping, self._patience if patience is None else patience):
            return self._hung(time.monotonic() - since)
        try:
            kind = self._socket.recv(1)
            if kind == OK:
                return None
            text = read_block(self._socket).decode() if kind else None
        except TimeoutError:
            return self._hung(STARTING * self._patience)
        except (EOFError, ConnectionError):
            text = None
        if text is None:
            return self._dead()
        return Faulty(f"the environment raised {text}" if kind == CRASH else text, self.index)

    def _arrived(self, since: float, stopping: Callable[[], bool], patience: float) -> bool:
        """Wait for something to read, the end of the connection included; False where patience ended first."""
        while not self._arrival.poll(LOOK_EVERY):
            waited = time.monotonic() - since
            if patience and waited >= patience:
                return False
            if stopping() and waited >= STOPPING_PATIENCE:
                return False
        return True

    def block(self) -> bytes:
        try:
            return read_block(self._socket)
        except TimeoutError:
            raise self._hung(STARTING * self._patience) from None
        except (EOFError, ConnectionError):
            raise self._dead() from None

    def _dead(self) -> Lost:
        return Lost({self.index: obituary(f"environment worker {self.index}", self._process, self._log)})

    def _hung(self, seconds: float) -> Lost:
        reason = (
            f"environment worker {self.index} (process {self._process.pid}) gave no answer in {seconds:.0f} s; if it "
            f"needs longer than that, raise --environment.patience"
        )
        return Lost({self.index: reason})

    def hang_up(self) -> None:
        self._socket.close()

    def leave(self) -> None:
        """Wait for the process to leave, as it does when the socket is closed; end it where it does not."""
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._kill()
        self._log.close()

    def end(self) -> None:
        """End the process, and what it has started, at once."""
        self.hang_up()
        self._kill()
        self._log.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it leads a session of its own
        self._process.wait()
