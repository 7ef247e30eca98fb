"""Ctrl-C, SIGTERM and SIGUSR1: whoever works in this process is told, and says itself what stopping means.

SIGUSR1 is what schedulers of clusters are told to send some time before they end a job; it means what SIGTERM means.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["CHECKPOINTED", "fake_preempt", "heard", "left_early", "number_heard"]

CHECKPOINTED = 75  # EX_TEMPFAIL of sysexits.h: nothing is wrong, a checkpoint is there, run it again
_AGAIN = 0.2  # seconds until a request to leave that was lost is made again
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_HEARD: list[int] = []


def number_heard() -> int:
    """How many such signals this process has heard: whoever ends early tells by it a signal from the clock."""
    return len(_HEARD)


@contextmanager
def heard(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` with the number of each such signal; nothing happens in a thread, which cannot ask for them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def call(number: int, frame: FrameType | None) -> None:
        _HEARD.append(number)
        handle(number)

    before = {number: signal.signal(number, call) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def left_early() -> Iterator[None]:
    """Where there is nothing to save yet, or any more: a request to stop ends the process, to be run again.

    Python reports and forgets what is raised in a collection of garbage, where jax has a function of its own and a
    signal is handled as often as not. So a request is made again until it has got out of here.
    """
    asked: list[BaseException] = []
    timers: list[threading.Timer] = []

    def leave(number: int) -> None:
        if not (asked and _in_flight(asked[-1])):
            asked.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(CHECKPOINTED))
        timers.append(threading.Timer(_AGAIN, os.kill, (os.getpid(), number)))
        timers[-1].daemon = True
        timers[-1].start()
        if not _in_flight(asked[-1]):
            raise asked[-1]

    with heard(leave):
        try:
            yield
        except Exception:
            if asked:  # what was compiled says in its own words that it has been interrupted, as an ImportError
                raise asked[-1] from None
            raise
        finally:
            for timer in timers:
                timer.cancel()
                timer.join()


def _in_flight(asked: BaseException) -> bool:
    """Whether this exception is on its way out, through the last words of whoever is being left."""
    now = sys.exc_info()[1]
    while now is not None and now is not asked:
        now = now.__context__
    return now is asked


def fake_preempt(seconds: float) -> None:
    """Send this process SIGUSR1 at a random moment within `seconds`, as a scheduler that wants the machine back."""
    timer = threading.Timer(random.uniform(0.0, seconds), os.kill, (os.getpid(), signal.SIGUSR1))
    timer.daemon = True
    timer.start()
