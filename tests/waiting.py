"""Waiting for what another thread or process does, for as long as a busy machine may take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["HEARS_CTRL_C", "gone", "until"]

# First line of a script that is to be sent SIGINT: what runs in the background inherits that it is ignored.
HEARS_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def until(true: Callable[[], Any], seconds: float = 120.0) -> None:
    """Wait until `true()`."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited {seconds:g} s"
        time.sleep(0.02)


def gone(process: int) -> bool:
    """Whether a process has ended, buried or not."""
    try:
        os.kill(process, 0)
        stat = Path("/proc", str(process), "stat").read_text()
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # it ended just now, or this system has no /proc
        return Path("/proc/self").exists()
    return stat.rpartition(")")[2].split()[0] == "Z"
