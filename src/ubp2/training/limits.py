"""When a run must be over: in time to evaluate, save and leave."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import deque
from dataclasses import dataclass, field

__all__ = ["TimeLimit"]

MARGIN = 10.0  # seconds for what is not measured: closing environments and files, the end of the process
RECENT = 60  # decisions whose pace counts
SLACK = 1.2  # an evaluation or a checkpoint may take longer than the last one


@dataclass
class TimeLimit:
    """The end of a run by the clock, and how long its last duties took."""

    end: float = math.inf
    """By `time.monotonic`."""
    evaluating: float | None = None
    """Seconds of the last evaluation; None before the first."""
    saving: float = 1.0
    """Seconds of the last checkpoint."""
    decisions: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """When the last decisions were made. Their median pace leaves out what waits for a compilation."""

    @classmethod
    def after(cls, minutes: float | None) -> TimeLimit:
        """A limit that ends so many minutes from now; None: no limit."""
        return cls() if minutes is None else cls(time.monotonic() + 60.0 * minutes)

    def decided(self) -> None:
        """A decision has been made."""
        self.decisions.append(time.monotonic())

    def pace(self) -> float:
        """Seconds a decision; 0 before anybody knows."""
        times = list(self.decisions)
        known = len(times) == RECENT  # the first ones wait for processes and programs
        return statistics.median(b - a for a, b in itertools.pairwise(times)) if known else 0.0

    def left(self) -> float:
        """Seconds until the end."""
        return self.end - time.monotonic()

    def near(self, evaluating: float) -> bool:
        """Whether it is time for the last evaluation; before the first, `evaluating` seconds are what it may take."""
        known = evaluating if self.evaluating is None else self.evaluating
        return self.left() < SLACK * (known + self.saving) + MARGIN

    def over(self) -> bool:
        """Whether there is time for a checkpoint and for nothing else."""
        return self.left() < SLACK * self.saving + MARGIN
