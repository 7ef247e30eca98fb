"""How often a client may ask."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Rates"]


class Rates:
    """A bucket a client: `burst` requests at once, refilled with `per_second`. Forgets who has long been silent."""

    def __init__(
        self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic, most: int = 10_000
    ) -> None:
        self._per_second, self._burst, self._clock, self._most = per_second, burst, clock, most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, client: str) -> bool:
        """Whether one more request of `client` is within the rate; it then counts."""
        now = self._clock()
        left, then = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._per_second)
        allowed = left >= 1
        self._buckets[client] = (left - allowed, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return allowed
