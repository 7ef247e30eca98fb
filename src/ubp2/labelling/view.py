"""What the desk knows of the store between two looks at it.

Another process, the trainer, writes to the store as well, so the desk looks again now and then; its own writes it adds
at once. A look reads where every open question is, and so the pause between two grows with what one costs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ubp2.preference.records import Placed
from ubp2.preference.store import Given, LabelStore

__all__ = ["View"]

PAUSE = 0.5  # seconds between two looks, at least
SHARE = 0.1  # of the time may be spent looking


class View:
    """Open questions in the order they were asked, current answers, checks and notes."""

    def __init__(
        self,
        store: LabelStore,
        overlap: int,
        alive: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`alive`: whether a trainer is at work. A resumed one makes episodes after its checkpoint again."""
        self._store, self._overlap, self._alive, self._clock = store, overlap, alive, clock
        self._known: dict[int, Placed] = {}
        self._next_look = float("-inf")
        self.open: dict[int, Placed] = {}
        self.given: dict[str, dict[int, Given]] = {}  # by annotator, in the order of the answers
        self.answers: Counter[int] = Counter()
        self.labels: Counter[int] = Counter()  # answers that carry weight
        self.checked: dict[str, dict[int, float]] = {}  # when
        self.notes: dict[str, Any] = {}
        self.asked = 0
        self._newest = 0  # id of an answer

    def look(self, *, now: bool = False) -> None:
        """Read the store, if it is time or `now`."""
        started = self._clock()
        if not now and started < self._next_look:
            return
        self.notes = self._store.notes(plain=True)
        found = self._store.open(self._overlap)
        reached = self.notes.get("decision") if self._alive() else None
        self.open = {each.id: each for each in found if reached is None or each.decision <= reached}
        self._known |= self.open
        self.given, self.answers, self.labels, self.checked = {}, Counter(), Counter(), {}
        for given in self._store.given():
            self._add(given)
        for check in self._store.checks():
            self.checked.setdefault(check.annotator, {})[check.query_id] = check.answered_at
        self.asked = self._store.count().asked
        self._newest = self._store.newest()
        ended = self._clock()
        self._next_look = ended + max(PAUSE, (ended - started) / SHARE)

    def question(self, id: int) -> Placed | None:
        """Any question that ever was, open or not."""
        if id not in self._known:
            found = self._store.placed(id)
            if found is None:
                return None
            self._known[id] = found
        return self._known[id]

    def answered(self, given: Given) -> None:
        """Add an answer that has just been stored; one that is older repeats what may have been undone since."""
        if given.id <= self._newest:
            self.look(now=True)
            return
        self._newest = given.id
        self._add(given)
        if self.answers[given.query_id] >= self._overlap:
            self.open.pop(given.query_id, None)

    def labelled(self) -> int:
        """Questions with an answer that counts."""
        return sum(count > 0 for count in self.labels.values())

    def _add(self, given: Given) -> None:
        own = self.given.setdefault(given.annotator, {})
        before = own.pop(given.query_id, None)  # added again at the end: it is the newest
        own[given.query_id] = given
        self.answers[given.query_id] += before is None
        self.labels[given.query_id] += (given.weight > 0) - (before is not None and before.weight > 0)
