"""Labels as records that stand alone, out of a label store and into another: what `LabelStore.labels` and `take_in` do.

An imported question lies in a session below 0, which no trainer counts to, at decision 0: a run that begins has it from
the start. Its episodes are those of another archive, so nobody is ever asked about it again, and where it came from is
kept in `origins`: exported again, it is the label that it was.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ubp2.preference.schema import ANSWER_AGAIN, NEW_QUERY, QUERY_COLUMNS
from ubp2.types import Query

__all__ = ["Label", "insert", "missing", "newest", "read", "weighted"]

CHUNK = 256  # labels in memory at a time while a store is read

_COLUMNS = (
    "a.id, a.label, a.weight, a.annotator, a.seconds, a.answered_at, a.swapped, a.reason, q.strategy, "
    "coalesce(o.run, :run), coalesce(o.decision, q.decision), coalesce(o.session, q.session), "
    "coalesce(o.position, q.position)"
)
# The queries of a chunk, in the order of the answers.
_READ = f"""
    SELECT {_COLUMNS}, {QUERY_COLUMNS} FROM standing a JOIN queries q ON q.id = a.query
    LEFT JOIN origins o ON o.query = q.id WHERE q.current AND a.id > :after ORDER BY a.id LIMIT {CHUNK}"""
_SAID_AGAIN = ANSWER_AGAIN.format(questions="SELECT id FROM queries WHERE current AND decision > ?")


class Label(NamedTuple):
    """One answer of one annotator to one question, with the question and where it was asked."""

    query: Query
    fingerprint: bytes  # of the question: sizes, references and the bytes of both segments
    label: float  # P(left preferred)
    weight: float
    annotator: str
    seconds: float | None
    answered_at: float
    swapped: bool
    reason: str | None
    strategy: str
    run: str
    decision: int
    session: int
    position: int

    @property
    def id(self) -> str:
        """What makes two records the same answer, whatever name its annotator goes by."""
        said = repr((self.answered_at, self.label, self.weight)).encode()
        return hashlib.sha256(self.fingerprint + said).hexdigest()[:32]


def read(
    fetch: Callable[[str, dict[str, Any]], list[tuple]],
    decode: Callable[[Sequence[Any]], Query | None],
    run: str,
    damaged: Callable[[int], object] | None = None,
) -> Iterator[Label]:
    """Yield the standing answers to current questions in the order given; `run` names the store's own."""
    after = 0
    while rows := fetch(_READ, {"after": after, "run": run}):
        for row in rows:
            after, label, weight, annotator, seconds, answered_at, swapped, *rest = row
            reason, strategy, origin, decision, session, position, *columns = rest
            query = decode(columns)
            if query is None:
                assert damaged is not None
                damaged(after)
                continue
            said = (label, weight, annotator, seconds, answered_at, bool(swapped), reason)
            yield Label(query, columns[0], *said, strategy, origin, decision, session, position)


def newest(labels: Iterable[Label]) -> list[Label]:
    """Of several answers of one annotator to one question the newest, each record once, in the order they came."""
    kept: dict[tuple[bytes, str], Label] = {}
    for label in labels:
        key = (label.fingerprint, label.annotator)
        if key not in kept or kept[key].answered_at < label.answered_at:
            kept[key] = label
    once: dict[str, Label] = {}
    for label in kept.values():
        once.setdefault(label.id, label)
    return list(once.values())


def weighted(labels: Iterable[Label]) -> set[bytes]:
    """The questions that a learner will learn from: somebody could tell. Several answers to one are one label."""
    return {label.fingerprint for label in labels if label.weight > 0}


def missing(connection: sqlite3.Connection, labels: Iterable[Label]) -> list[Label]:
    """Those of which the store has neither the answer, under any name, nor another by the same annotator."""
    rows = connection.execute(
        "SELECT q.fingerprint, a.annotator, a.answered_at, a.label, a.weight FROM answers a "
        "JOIN queries q ON q.id = a.query"
    ).fetchall()
    who = {(fingerprint, annotator) for fingerprint, annotator, *_ in rows}
    what = {(fingerprint, *said) for fingerprint, _, *said in rows}
    return [
        each
        for each in newest(labels)
        if (each.fingerprint, each.annotator) not in who
        and (each.fingerprint, each.answered_at, each.label, each.weight) not in what
    ]


def insert(connection: sqlite3.Connection, labels: Iterable[tuple[Label, tuple]], course: int) -> None:
    """Add labels, each with its question as columns, inside the caller's transaction.

    course: the decision from which the trainer will go on. It takes these labels there and is then past their ids: so
    what was answered to questions beyond, which it will come to again, is said once more, after them.
    """
    session = connection.execute("SELECT min(coalesce(min(session), 0), 0) - 1 FROM queries").fetchone()[0]
    known = dict(connection.execute("SELECT fingerprint, id FROM queries WHERE session < 0").fetchall())
    for position, (each, columns) in enumerate(labels):
        if each.fingerprint not in known:
            question = connection.execute(NEW_QUERY, (session, position, 0, each.strategy, *columns)).lastrowid
            assert question is not None
            known[each.fingerprint] = question
            connection.execute(
                "INSERT INTO origins (query, run, decision, session, position) VALUES (?, ?, ?, ?, ?)",
                (question, each.run, each.decision, each.session, each.position),
            )
        connection.execute(
            "INSERT INTO answers (query, annotator, revision, label, weight, seconds, answered_at, swapped, reason) "
            "VALUES (?, ?, 0, ?, ?, ?, ?, ?, ?)",
            (known[each.fingerprint], each.annotator, *each[2:4], *each[5:9]),
        )
    connection.execute(_SAID_AGAIN, (int(course),))
