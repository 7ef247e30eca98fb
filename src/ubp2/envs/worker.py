"""One worker process and its socket, seen from the parent: started, asked, waited for with patience, ended."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO

from ubp2.envs.base import EnvSpec, Faulty, Lost
from ubp2.envs.worker_process import CRASH, OK, RESET, read_block, write_block
from ubp2.errors import UserError

__all__ = ["Worker", "obituary", "shorten", "start"]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
LOOK_EVERY = 500  # milliseconds between two looks at the clock, and at whether the run is to stop
STARTING = 10  # a process that starts and builds its environment is given so many times the patience of a step
STOPPING_PATIENCE = 15.0  # seconds for an answer once the run is to stop: its checkpoint has to be written in time

LONGEST_WAIT = 1e6  # seconds; a socket counts milliseconds, up to 2**31
LAST = 1 << 16  # bytes of what a process wrote that an obituary looks at
LONGEST = 1 << 20  # bytes after which all of it is forgotten: an environment may write a line at every step, for days

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from {module} import serve; serve(*map(int, sys.argv[2:]))"
)


def start(module: str, fds: Sequence[int], *numbers: int) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """Start a process that calls `serve` of the module with these numbers; and the file of what it writes.

    It has the same sys.path, and of the open files `fds` alone, whose numbers come first.
    """
    log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (whoever has it closes it)
    fcntl.fcntl(log, fcntl.F_SETFL, fcntl.fcntl(log, fcntl.F_GETFL) | os.O_APPEND)  # it goes on at the end if shortened
    path = json.dumps([str(folder) for folder in sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", _BOOT.format(module=module), path, *map(str, (*fds, *numbers))],
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=os.environ | ONE_THREAD,
        start_new_session=True,  # Ctrl-C in the terminal reaches the parent alone, and a kill what it has started too
    )
    return process, log


def shorten(log: IO[bytes]) -> None:
    """Forget what a process wrote, once it is much."""
    if os.fstat(log.fileno()).st_size > LONGEST:
        os.ftruncate(log.fileno(), 0)


def obituary(name: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    """Say how a process that is gone ended, and the last it wrote."""
    try:
        code = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        code = None
    how = "closed its connection" if code is None else f"ended with exit code {code}"
    if code is not None and code < 0:
        how = f"was ended by signal {-code} ({signal.Signals(-code).name})"
    log.seek(max(0, os.fstat(log.fileno()).st_size - LAST))
    last = log.read().decode(errors="replace").splitlines()[-15:]
    wrote = "it wrote nothing" if not last else "its last lines:\n  " + "\n  ".join(last)
    return f"{name} (process {process.pid}) {how}; {wrote}"


class Worker:
    """One process with one environment. After `Lost` only `end` may be called."""

    def __init__(self, index: int, size: int, memory: int, order: bytes, patience: float) -> None:
        """`memory`: the file behind the slots of all `size` workers. `patience` in seconds, 0: without end."""
        self.index, self._patience = index, patience
        self._socket, theirs = socket.socketpair()
        # For blocks, of which a part may come and then nothing.
        self._socket.settimeout(min(STARTING * patience, LONGEST_WAIT) or None)
        self._arrival = select.poll()
        self._arrival.register(self._socket, select.POLLIN)
        with theirs:
            fds = (theirs.fileno(), memory)
            self._process, self._log = start("ubp2.envs.worker_process", fds, index, size)
        with contextlib.suppress(BrokenPipeError, TimeoutError):  # a worker that died at once is reported by `greet`
            write_block(self._socket, order)

    @property
    def pid(self) -> int:
        """The process, for whoever watches it."""
        return self._process.pid

    def greet(self, stopping: Callable[[], bool]) -> EnvSpec:
        """Wait for the environment to stand."""
        if (error := self.answer(time.monotonic(), stopping, STARTING * self._patience)) is not None:
            raise error
        return EnvSpec.from_dict(json.loads(self.block()))

    def send(self, command: bytes) -> None:
        if command == RESET:
            shorten(self._log)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `answer` finds out and says why
            self._socket.sendall(command)

    def wait(self, stopping: Callable[[], bool]) -> None:
        """Take the answer; raise what it reports."""
        if (error := self.answer(time.monotonic(), stopping)) is not None:
            raise error

    def answer(self, since: float, stopping: Callable[[], bool], patience: float | None = None) -> UserError | None:
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

    def leave(self, until: float) -> None:
        """Wait for the process to leave, as it does when the socket is closed; end it if it is there at that time."""
        try:
            self._process.wait(timeout=max(0.0, until - time.monotonic()))
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
