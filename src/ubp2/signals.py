"""Ctrl-C, SIGTERM and SIGUSR1: whoever works in this process is told, and says itself what stopping means.

SIGUSR1 is what schedulers of clusters are told to send some time before they end a job; it means what SIGTERM means.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["CHECKPOINTED", "fake_preempt", "heard", "left_early"]

CHECKPOINTED = 75  # EX_TEMPFAIL of sysexits.h: nothing is wrong, a checkpoint is there, run it again
_SHORTLY = 0.02  # seconds; a collection is over by then, and whoever pressed the key does not notice
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@contextmanager
def heard(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` with the number of each such signal; nothing happens in a thread, which cannot ask for them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def call(number: int, frame: FrameType | None) -> None:
        handle(number)

    before = {number: signal.signal(number, call) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def left_early() -> Iterator[None]:
    """Where there is nothing to save yet, or any more: a request to stop ends the process, to be run again."""
    asked: list[BaseException] = []

    def leave(number: int) -> None:
        if _unheard(sys._getframe(1)):
            again = threading.Timer(_SHORTLY, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        asked.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(CHECKPOINTED))
        raise asked[-1]

    with heard(leave):
        try:
            yield
        except Exception:
            if asked:  # what was compiled says in its own words that it has been interrupted, as an ImportError
                raise asked[-1] from None
            raise


def _unheard(frame: FrameType | None) -> bool:
    """Whether an exception that is raised here would be lost: Python reports and forgets those of the collector.

    jax has a function called at every collection of garbage, and while it is imported or traces, a signal is handled
    there as often as not.
    """
    callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in callbacks or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def fake_preempt(seconds: float) -> None:
    """Send this process SIGUSR1 at a random moment within `seconds`, as a scheduler that wants the machine back."""
    timer = threading.Timer(random.uniform(0.0, seconds), os.kill, (os.getpid(), signal.SIGUSR1))
    timer.daemon = True
    timer.start()
