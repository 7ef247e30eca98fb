"""The minutes that a whole plan may take: what its programs get of them, and what is kept for the report."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ubp2.system import seconds_since_start

__all__ = ["LEAST", "Clock"]

_REPORT = (20.0, 0.3)  # seconds that a report takes, and for each run
_MOST = 0.2  # of all time that a report is kept
LEAST = 25.0  # seconds below which no program is started: it would compile, and leave


@dataclass(frozen=True)
class Clock:
    """The end of a command, in seconds since the epoch, so that other machines know it too."""

    minutes: float
    end: float

    @classmethod
    def starts(cls, minutes: float | None) -> Clock | None:
        """The clock of the command that this process runs; None: there is no limit."""
        return None if minutes is None else cls(minutes, time.time() - seconds_since_start() + 60.0 * minutes)

    def kept(self, runs: int) -> float:
        """Seconds at the end for the report on so many runs."""
        return min(_REPORT[0] + _REPORT[1] * runs, 60.0 * self.minutes * _MOST)

    def until(self, runs: int) -> float:
        """When programs must have ended, in seconds since the epoch."""
        return self.end - self.kept(runs)

    def over(self, runs: int) -> bool:
        """Whether programs must have ended."""
        return time.time() > self.until(runs)
