"""The label store: the one owner of questions and answers on disk, an SQLite file in the run folder.

The trainer asks, and a scripted teacher, a person in a browser or a program answers, from the same process or another.
Nothing is ever deleted: a question that a resumed run replaced is no longer current, and a changed answer is a new row
that hides the earlier one. Questions of sessions below 0 came with labels of other runs (`preference.imported`): the
trainer learns from them, and nobody is asked about them.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ubp2.errors import UserError
from ubp2.preference import imported
from ubp2.preference.imported import Label
from ubp2.preference.reading import LabelReader
from ubp2.preference.records import Answered, Counts, Given, Pending, encode
from ubp2.preference.schema import ANSWER_AGAIN, NEW_QUERY
from ubp2.types import Query

__all__ = ["Answered", "Counts", "Given", "LabelStore", "Pending"]


_SAID_AGAIN = ANSWER_AGAIN.format(questions="?")


class LabelStore(LabelReader):
    """Questions and answers in the file at `path`, for one trainer and one label server at a time."""

    def ask(self, decision: int, session: int, queries: Sequence[Query], strategy: str) -> list[int]:
        """Store the questions of a whole session, asked at `decision`, and return their ids.

        Asking again gives the ids and keeps the answers of every question that is still the same. One with another
        content takes the place of the earlier one, and the run has then left its old course (it resumed on a device
        that rounds differently): what that course asked at later decisions is no longer current either.
        """
        rows = [encode(query) for query in queries]
        decision, session = int(decision), int(session)  # SQLite takes no NumPy integers
        with self._database.write() as connection:
            retired = connection.execute(
                "UPDATE queries SET current = 0 WHERE session = ? AND current RETURNING id", (session,)
            ).fetchall()
            ids = [
                _ask_one(connection, (session, position, decision, strategy), row) for position, row in enumerate(rows)
            ]
            before = {id for (id,) in retired}
            if before != set(ids):
                connection.execute("UPDATE queries SET current = 0 WHERE decision > ?", (decision,))
                # Those that become current again bring along what was said to them before.
                connection.executemany(_SAID_AGAIN, [(id,) for id in ids if id not in before])
            return ids

    def answer(
        self,
        query_id: int,
        label: float,
        weight: float = 1.0,
        annotator: str = "oracle",
        seconds: float | None = None,
        *,
        key: str | None = None,
        swapped: bool = False,
        reason: str | None = None,
    ) -> int:
        """Store P(left preferred) for one question, on the disk when this returns; gives the id of the answer.

        The same answer again changes nothing; another one by the same annotator hides the earlier. With a `key` a
        repetition is known by it, whatever was answered in between. An answer to a question that has been replaced
        meanwhile is kept, and counts if that question becomes current again.
        """
        given = (int(query_id), *_checked(label, weight), annotator, seconds, key, bool(swapped), reason)
        with self._database.write() as connection:
            return self._answer(connection, *given)

    def answer_all(self, answers: Iterable[tuple[int, float, float]], annotator: str) -> None:
        """Store (question, label, weight) of a whole session by one annotator, all or none, in one transaction."""
        checked = [(int(query), *_checked(label, weight)) for query, label, weight in answers]
        with self._database.write() as connection:
            for each in checked:
                self._answer(connection, *each, annotator)

    def _answer(
        self,
        connection: sqlite3.Connection,
        query_id: int,
        label: float,
        weight: float,
        annotator: str,
        seconds: float | None = None,
        key: str | None = None,
        swapped: bool = False,
        reason: str | None = None,
    ) -> int:
        self._require(connection, query_id)
        before = self._known(connection, "answers", key, (query_id, annotator))
        if before is not None:
            return before
        last = connection.execute(
            "SELECT id, revision, label, weight, withdrawn FROM answers WHERE query = ? AND annotator = ? "
            "ORDER BY revision DESC LIMIT 1",
            (query_id, annotator),
        ).fetchone()
        if key is None and last is not None and last[2:] == (label, weight, 0):
            return last[0]
        revision = 0 if last is None else last[1] + 1
        return _inserted(
            connection,
            "INSERT INTO answers (query, annotator, revision, label, weight, seconds, answered_at, key, swapped, "
            "reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (query_id, annotator, revision, label, weight, seconds, time.time(), key, swapped, reason),
        )

    def withdraw(self, annotator: str, *, key: str) -> int | None:
        """Undo: the newest standing answer of this annotator no longer counts, and is kept; gives its question.

        None: there is nothing to undo. The same key again undoes nothing more.
        """
        with self._database.write() as connection:
            known = connection.execute("SELECT query FROM answers WHERE key = ?", (key,)).fetchone()
            if known is not None:
                return known[0]
            row = connection.execute(
                "SELECT s.query, s.revision, s.label, s.weight, s.swapped FROM standing s JOIN queries q "
                "ON q.id = s.query WHERE q.current AND q.session >= 0 AND s.annotator = ? ORDER BY s.id DESC LIMIT 1",
                (annotator,),
            ).fetchone()
            if row is None:
                return None
            query, revision, label, weight, swapped = row
            connection.execute(
                "INSERT INTO answers (query, annotator, revision, label, weight, answered_at, key, swapped, withdrawn) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)",
                (query, annotator, revision + 1, label, weight, time.time(), key, swapped),
            )
            return query

    def check(
        self,
        query_id: int,
        label: float,
        weight: float,
        annotator: str,
        seconds: float | None = None,
        *,
        key: str,
        swapped: bool,
    ) -> int:
        """Store what an annotator says to a question that was asked again; it is never a label."""
        query_id, label, weight = int(query_id), *_checked(label, weight)
        with self._database.write() as connection:
            self._require(connection, query_id)
            before = self._known(connection, "checks", key, (query_id, annotator))
            if before is not None:
                return before
            return _inserted(
                connection,
                "INSERT INTO checks (query, annotator, label, weight, seconds, swapped, key, answered_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (query_id, annotator, label, weight, seconds, bool(swapped), key, time.time()),
            )

    def take_in(self, labels: Iterable[Label], course: int = 0) -> list[Label]:
        """Add labels of other runs, all or none, and return those that were not there yet.

        course: the decision from which the trainer goes on, 0 for a run that has no checkpoint.
        """
        with self._database.write() as connection:
            new = imported.missing(connection, labels)
            if new:
                imported.insert(connection, ((each, encode(each.query)) for each in new), course)
        return new

    def note(self, values: Mapping[str, Any]) -> None:
        """Tell whoever shows the page: names with values that JSON can hold; the newest value of a name counts."""
        rows = [(name, json.dumps(value)) for name, value in values.items()]
        with self._database.write() as connection:
            connection.executemany(
                "INSERT INTO notes (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                rows,
            )

    def _require(self, connection: sqlite3.Connection, query_id: int) -> None:
        if connection.execute("SELECT 1 FROM queries WHERE id = ?", (query_id,)).fetchone() is None:
            raise UserError(f"there is no question {query_id} in {self._database.path}; list those that wait")

    @staticmethod
    def _known(connection: sqlite3.Connection, table: str, key: str | None, of: tuple[int, str]) -> int | None:
        """The id of what was stored under this key; None: nothing yet. A key means one answer of one person."""
        if key is None:
            return None
        row = connection.execute(f"SELECT id, query, annotator FROM {table} WHERE key = ?", (key,)).fetchone()
        if row is not None and row[1:] != of:
            raise UserError(f"the key {key} belongs to an answer to another question or of another annotator")
        return None if row is None else row[0]


def _checked(label: float, weight: float) -> tuple[float, float]:
    label, weight = float(label), float(weight)
    if label not in (0.0, 0.5, 1.0):
        raise ValueError(f"a label is 0 (right), 0.5 (tie) or 1 (left), got {label}")
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"a weight is finite and at least 0, got {weight}")
    return label, weight


def _inserted(connection: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> int:
    """The id of the new row."""
    row = connection.execute(statement, values).lastrowid
    assert row is not None
    return row


def _ask_one(connection: sqlite3.Connection, place: tuple[int, int, int, str], columns: tuple) -> int:
    """Make a question current where it stands: the row that has it, answers included, or a new one."""
    session, position, decision, _ = place
    found = connection.execute(
        "UPDATE queries SET current = 1, decision = ? WHERE (session, position, fingerprint) = (?, ?, ?) RETURNING id",
        (decision, session, position, columns[0]),
    ).fetchall()
    return found[0][0] if found else _inserted(connection, NEW_QUERY, (*place, *columns))
