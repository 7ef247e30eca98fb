"""One writer a folder: a lock that the system releases when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path

from ubp2.errors import UserError

__all__ = ["LOCK", "held", "take"]

LOCK = "run.lock"
_LOOKS = 5


def take(folder: Path, name: str = LOCK, what: str = "the run") -> int:
    """Take the lock of a folder and return it as a file descriptor; closing that releases it.

    name, what: another lock of the same folder, and how it is called where another process has it.
    """
    lock = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _flock(lock)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    except BlockingIOError:
        holder = os.read(lock, 200).decode(errors="replace") or "another process"
        os.close(lock)
        busy = f"{what} {folder} is being written by {holder}; stop it first, or start another run"
        if name != LOCK:
            busy = f"{what} {folder} is served already, by {holder}; use that one, or stop it first"
        raise UserError(busy) from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _flock(lock: int) -> None:
    """Take it, with patience for whoever is just looking (`held`), who has it for a moment."""
    for _ in range(_LOOKS):
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def held(folder: Path) -> bool:
    """Whether some process writes to the folder now."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
