"""A label store and its double on another machine: what one has and the other lacks, by what is asked and not by id.

The ids of two files differ, so a question is its session, its position and the fingerprint of its content. An answer
that came from the other file carries a key made of its id there and its time: however often it comes, it is there once,
and an answer that has the id of another, because a backup was put in the place of the other file, is there, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ubp2.preference.schema import APPLICATION_ID, MIGRATIONS
from ubp2.storage.database import Database

__all__ = ["Event", "Exchange", "Place"]

_SAID = "a.annotator, a.label, a.weight, a.seconds, a.answered_at, a.swapped, a.withdrawn, a.reason"


class Place(NamedTuple):
    """Which question, in any file."""

    session: int
    position: int
    fingerprint: str  # hexadecimal


class Event(NamedTuple):
    """One row of the answers: an answer, a changed one, or one that was taken back."""

    id: int
    place: Place
    annotator: str
    label: float
    weight: float
    seconds: float | None
    answered_at: float
    swapped: bool
    withdrawn: bool
    reason: str | None

    @classmethod
    def of(cls, values: Sequence[Any]) -> Event:
        """From a list, as it comes over the wire; raises TypeError or ValueError for anything else."""
        id, place, annotator, label, weight, seconds, answered_at, swapped, withdrawn, reason = values
        session, position, fingerprint = place
        return cls(
            int(id),
            Place(int(session), int(position), bytes.fromhex(fingerprint).hex()),
            str(annotator),
            float(label),
            float(weight),
            None if seconds is None else float(seconds),
            float(answered_at),
            bool(swapped),
            bool(withdrawn),
            None if reason is None else str(reason),
        )


class Exchange:
    """The label file at `path` as its double sees it; a connection of its own, for one thread at a time."""

    def __init__(self, path: Path | str) -> None:
        self._database = Database(path, APPLICATION_ID, MIGRATIONS)

    def questions(self) -> dict[int, tuple[str, ...]]:
        """The fingerprints of the current questions of each session, by position."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT session, fingerprint FROM queries WHERE current AND session >= 0 ORDER BY session, position"
            ).fetchall()
        found: dict[int, tuple[str, ...]] = {}
        for session, fingerprint in rows:
            found[session] = (*found.get(session, ()), fingerprint.hex())
        return found

    def events(self, after: int, most: int, *, without: str) -> list[Event]:
        """The next answers after that id, oldest first, but those whose key begins with `without`: they came so."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT a.id, q.session, q.position, q.fingerprint, {_SAID} FROM answers a JOIN queries q "
                "ON q.id = a.query WHERE a.id > ? AND q.session >= 0 AND coalesce(substr(a.key, 1, ?), '') != ? "
                "ORDER BY a.id LIMIT ?",
                (int(after), len(without), without, int(most)),
            ).fetchall()
        return [
            Event.of((id, (session, position, fingerprint.hex()), *said))
            for id, session, position, fingerprint, *said in rows
        ]

    def take_in(self, events: Iterable[Event], source: str) -> int:
        """Add what is new of these answers, all or none, under keys that begin with `source`; returns how many."""
        added = 0
        with self._database.write() as connection:
            for event in events:
                added += connection.execute(
                    "INSERT INTO answers (query, annotator, revision, label, weight, seconds, answered_at, key, "
                    "swapped, withdrawn, reason) SELECT q.id, :annotator, (SELECT coalesce(max(b.revision) + 1, 0) "
                    "FROM answers b WHERE b.query = q.id AND b.annotator = :annotator), :label, :weight, :seconds, "
                    ":answered_at, :key, :swapped, :withdrawn, :reason FROM queries q WHERE q.session = :session "
                    "AND q.position = :position AND q.fingerprint = :fingerprint "
                    # not ON CONFLICT, which would use up an id: `verify` takes a gap for a lost row
                    "AND NOT EXISTS (SELECT 1 FROM answers b WHERE b.key IN (:key, :plain) "
                    "AND (b.key = :key OR b.answered_at = :answered_at))",
                    {
                        **event._asdict(),
                        **event.place._asdict(),
                        "fingerprint": bytes.fromhex(event.place.fingerprint),
                        "key": f"{source}{event.id}@{event.answered_at!r}",
                        "plain": f"{source}{event.id}",  # as version 0.1.0 wrote it
                        "place": None,
                    },
                ).rowcount
        return added

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self._database.close()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
