"""Ctrl-C and SIGTERM: whoever works in this process is told, and says itself what stopping means."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["heard"]


@contextmanager
def heard(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` with the number of each such signal; nothing happens in a thread, which cannot ask for them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def call(number: int, frame: FrameType | None) -> None:
        handle(number)

    before = {number: signal.signal(number, call) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
