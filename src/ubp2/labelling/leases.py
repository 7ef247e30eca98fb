"""Who has which pair before the eyes: a question handed to somebody is nobody else's for some minutes.

Everybody holds two at most: the pair that is shown, and the one behind it, whose clips are loaded ahead. The second is
held loosely: somebody who would have nothing to do may take it. A page that is closed gives its leases back. They are
in a small file as well, so that a server that was killed does not hand a pair out twice; a lease is no label, and the
file is not forced to the disk.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ubp2.labelling.tickets import Ticket

__all__ = ["Leases"]

_LOG = logging.getLogger(__name__)
GRACE = 20.0  # seconds after a page was closed: another one of the same person asks anew every 12
_FORGET = 24 * 3600.0  # seconds after which an annotator who is away is no longer listed


class _Held(NamedTuple):
    tickets: tuple[Ticket, ...]  # shown, then ahead
    until: float


class Leases:
    """The leases of one label server."""

    def __init__(self, path: Path, seconds: float = 300.0, clock: Callable[[], float] = time.time) -> None:
        self._path, self._seconds, self._clock = path, seconds, clock
        self._held: dict[str, _Held] = _load(path)

    def of(self, annotator: str) -> tuple[Ticket, ...]:
        """What this annotator was handed last, expired or not."""
        held = self._held.get(annotator)
        return held.tickets if held else ()

    def others(self, question: int, annotator: str, *, shown_only: bool = False) -> int:
        """How many others have the question now; `shown_only`: not counting those who only have it ahead."""
        now, count = self._clock(), 0
        for name, held in self._held.items():
            tickets = held.tickets[:1] if shown_only else held.tickets
            if name != annotator and held.until > now and Ticket(question) in tickets:
                count += 1
        return count

    def hold(self, annotator: str, tickets: Sequence[Ticket]) -> None:
        """Hand these to the annotator, from now on, in place of what he had."""
        now = self._clock()
        before = self._held.get(annotator)
        self._held[annotator] = _Held(tuple(tickets), now + self._seconds)
        shown = {ticket for ticket in tickets[:1] if not ticket.again}
        taken = [
            name
            for name, held in self._held.items()
            if name != annotator and held.until > now and shown & set(held.tickets[1:])
        ]
        for name in taken:
            held = self._held[name]
            self._held[name] = _Held(held.tickets[:1], held.until)
        stale = before is None or before.tickets != tuple(tickets) or before.until < now + self._seconds / 2
        if stale or taken:
            self._save(now)

    def leave(self, annotator: str) -> None:
        """A page of this annotator was closed: all is free in a moment, unless another one asks before."""
        now, held = self._clock(), self._held.get(annotator)
        if held and held.until > now + GRACE:
            self._held[annotator] = _Held(held.tickets, now + GRACE)
            self._save(now)

    def release(self, annotator: str, ticket: Ticket) -> None:
        """The annotator is done with it."""
        held = self._held.get(annotator)
        if held and ticket in held.tickets:
            self._held[annotator] = _Held(tuple(t for t in held.tickets if t != ticket), held.until)

    def _save(self, now: float) -> None:
        self._held = {name: held for name, held in self._held.items() if held.until > now - _FORGET}
        partial = self._path.with_name(self._path.name + ".tmp")
        content = {name: [held.until, *map(list, held.tickets)] for name, held in self._held.items()}
        try:
            partial.write_text(json.dumps(content), encoding="utf-8")
            os.replace(partial, self._path)
        except OSError as error:  # a full disk must not keep people from labelling
            _LOG.warning("leases are not kept across a restart: %s", error)
            with suppress(OSError):
                partial.unlink()


def _load(path: Path) -> dict[str, _Held]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(name): _Held(tuple(Ticket(int(q), bool(again)) for q, again in tickets), float(until))
            for name, (until, *tickets) in content.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # none yet, or none that can be read: leases only save people from the same work
