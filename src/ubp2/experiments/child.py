"""`ubp2` as the child of a longer command: it is told to stop when its parent dies, so that no run is left behind.

A run that is told to stop (SIGTERM) writes a checkpoint first. Linux only; elsewhere an orphan trains to its end, and
the lock of its run folder keeps others out.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import sys

__all__ = ["PARENT", "die_with_parent"]

PARENT = "UBP2_PARENT"  # process id of whoever started us
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def die_with_parent() -> None:
    """Ask the system for a SIGTERM when the parent ends; leave if it has ended already."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):  # a C library without prctl
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    parent = os.environ.get(PARENT)
    if parent is not None and os.getppid() != int(parent):
        sys.exit(1)


if __name__ == "__main__":
    die_with_parent()
    runpy.run_module("ubp2", run_name="__main__", alter_sys=True)
