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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ubp2.errors import UserError
from ubp2.preference import imported
from ubp2.preference.imported import Label
from ubp2.preference.records import Answered, Counts, Given, Pending, decode, encode
from ubp2.preference.schema import (
    ANSWER_AGAIN,
    APPLICATION_ID,
    CURRENT_ANSWERS,
    LATEST,
    MIGRATIONS,
    QUERY_COLUMNS,
)
from ubp2.storage.database import Database
from ubp2.types import Query

__all__ = ["Answered", "Counts", "Given", "LabelStore", "Pending"]


class LabelStore:
    """Questions and answers in the file at `path`, for one trainer and one label server at a time."""

    def __init__(self, path: Path | str) -> None:
        self._database = Database(path, APPLICATION_ID, MIGRATIONS)

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
                _ask_one(connection, (session, position, row[0]), (decision, strategy, *row[1:]))
                for position, row in enumerate(rows)
            ]
            before = {id for (id,) in retired}
            if before != set(ids):
                connection.execute("UPDATE queries SET current = 0 WHERE decision > ?", (decision,))
                connection.executemany(ANSWER_AGAIN, [(id,) for id in ids if id not in before])
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
        query_id, label, weight = int(query_id), *_checked(label, weight)
        with self._database.write() as connection:
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
                (query_id, annotator, revision, label, weight, seconds, time.time(), key, bool(swapped), reason),
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

    def pending(self, annotator: str | None = None, overlap: int = 1) -> list[Pending]:
        """Return the current questions with fewer than `overlap` answers, and none by `annotator`, in order."""
        condition = (
            "q.session >= 0 AND (SELECT count(*) FROM standing s WHERE s.query = q.id) < ? AND NOT EXISTS "
            "(SELECT 1 FROM standing s WHERE s.query = q.id AND s.annotator IS ?)"
        )
        return self._questions(condition, (int(overlap), annotator))

    def waiting(self, up_to_decision: int | None = None) -> int:
        """Count the current questions, asked up to that decision, that nobody has answered."""
        with self._database.read() as connection:
            return connection.execute(
                "SELECT count(*) FROM queries q WHERE q.current AND q.session >= 0 AND q.decision <= ? AND NOT EXISTS "
                "(SELECT 1 FROM standing s WHERE s.query = q.id)",
                (LATEST if up_to_decision is None else int(up_to_decision),),
            ).fetchone()[0]

    def question(self, query_id: int) -> Pending | None:
        """Return one question, current or not; None: there is none of this id."""
        found = self._questions("q.id = ?", (int(query_id),), replaced=True)
        return found[0] if found else None

    def session(self, session: int) -> list[Pending]:
        """Return the current questions of one session, answered or not, in order."""
        return self._questions("q.session = ?", (int(session),))

    def _questions(self, condition: str, parameters: tuple[Any, ...], *, replaced: bool = False) -> list[Pending]:
        which = condition if replaced else f"q.current AND {condition}"
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT q.id, q.decision, q.session, q.position, q.strategy, {QUERY_COLUMNS} FROM queries q "
                f"WHERE {which} ORDER BY q.session, q.position",
                parameters,
            ).fetchall()
        return [Pending(*row[:5], query=self._decode(row[5:])) for row in rows]

    def answers(self, after: int = 0, up_to_decision: int | None = None, up_to: int | None = None) -> list[Answered]:
        """Return current answers with id > `after` to questions asked at or before `up_to_decision`, by answer id.

        With `up_to`, the last answer id a run had taken, the view is the one of that moment: answers and corrections
        that came later are left out. A resumed run thus rebuilds exactly the labels it had.
        """
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT a.id, a.query, q.decision, a.label, a.weight, a.annotator, {QUERY_COLUMNS} "
                f"{CURRENT_ANSWERS} ORDER BY a.id",
                _bounds(after, up_to_decision, up_to),
            ).fetchall()
        return [
            Answered(id, query_id, decision, self._decode(columns), label, weight, annotator)
            for id, query_id, decision, label, weight, annotator, *columns in rows
        ]

    def count(self, up_to_decision: int | None = None) -> Counts:
        """Count the current answers with a weight above 0, and the current questions, asked up to that decision.

        Labels of other runs are not among them; see `imported`. Without the bound, a resumed run would count sessions
        that it has not come to again.
        """
        with self._database.read() as connection:
            labels, asked = connection.execute(
                f"SELECT (SELECT count(*) {CURRENT_ANSWERS} AND a.weight > 0 AND q.session >= 0), "
                "(SELECT count(*) FROM queries WHERE current AND session >= 0 AND decision <= :up_to_decision)",
                _bounds(0, up_to_decision, None),
            ).fetchone()
        return Counts(labels, asked)

    def newest(self, up_to_decision: int | None = None) -> int:
        """Return the id of the newest answer to a current question asked up to that decision, undone ones included."""
        with self._database.read() as connection:
            return connection.execute(
                "SELECT coalesce(max(a.id), 0) FROM answers a JOIN queries q ON q.id = a.query "
                "WHERE q.current AND q.decision <= ?",
                (LATEST if up_to_decision is None else int(up_to_decision),),
            ).fetchone()[0]

    def corrected(self, after: int, up_to_decision: int | None = None, up_to: int | None = None) -> bool:
        """Whether more was said since on a question that had an answer up to `after`: a reader must then start anew.

        It was changed or undone, or somebody else has answered it, too. Of current questions, asked up to that
        decision, and of what was said up to the answer `up_to`.
        """
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT 1 FROM answers later JOIN answers a ON a.query = later.query JOIN queries q ON q.id = a.query "
                "WHERE later.id > :after AND later.id <= :up_to AND a.id <= :after AND q.current "
                "AND q.decision <= :up_to_decision LIMIT 1",
                _bounds(after, up_to_decision, up_to),
            ).fetchone()
        return row is not None

    def given(self, annotator: str | None = None) -> list[Given]:
        """Return what annotators (or one of them) say to this run's current questions now, in the order given."""
        return self._given("standing", "s.reason", annotator)

    def checks(self, annotator: str | None = None) -> list[Given]:
        """Return the answers to questions that were asked again."""
        return self._given("checks", "NULL", annotator)

    def _given(self, table: str, reason: str, annotator: str | None) -> list[Given]:
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT s.id, s.query, q.session, s.annotator, s.label, s.weight, s.seconds, s.swapped, "
                f"s.answered_at, {reason} FROM {table} s JOIN queries q ON q.id = s.query "
                f"WHERE q.current AND q.session >= 0 AND (:who IS NULL OR s.annotator = :who) ORDER BY s.id",
                {"who": annotator},
            ).fetchall()
        return [Given._make((*row[:7], bool(row[7]), *row[8:])) for row in rows]

    def labels(self, run: str = "", damaged: Callable[[int], object] | None = None) -> Iterator[Label]:
        """Yield every current answer with its question, skips and imported ones too; `run` is what to call this run.

        damaged: told the answers whose question does not match its checksum, which are passed over; None: refuse them.
        """

        def fetch(statement: str, values: dict[str, Any]) -> list[tuple]:
            with self._database.read() as connection:
                return connection.execute(statement, values).fetchall()

        return imported.read(fetch, decode if damaged else self._decode, run, damaged)

    def missing(self, labels: Iterable[Label]) -> list[Label]:
        """Those of these labels that `take_in` would add."""
        with self._database.read() as connection:
            return imported.missing(connection, labels)

    def take_in(self, labels: Iterable[Label], course: int = 0) -> list[Label]:
        """Add labels of other runs, all or none, and return those that were not there yet.

        course: the decision from which the trainer goes on, 0 for a run that has no checkpoint.
        """
        with self._database.write() as connection:
            new = imported.missing(connection, labels)
            if new:
                imported.insert(connection, ((each, encode(each.query)) for each in new), course)
        return new

    def imported(self) -> set[bytes]:
        """The imported questions, by fingerprint, that somebody could answer: so many labels of other runs are here."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT q.fingerprint FROM standing s JOIN queries q ON q.id = s.query "
                "WHERE q.session < 0 AND s.weight > 0"
            ).fetchall()
        return {fingerprint for (fingerprint,) in rows}

    def note(self, values: Mapping[str, Any]) -> None:
        """Tell whoever shows the page: names with values that JSON can hold; the newest value of a name counts."""
        rows = [(name, json.dumps(value)) for name, value in values.items()]
        with self._database.write() as connection:
            connection.executemany(
                "INSERT INTO notes (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                rows,
            )

    def notes(self, prefix: str = "") -> dict[str, Any]:
        """What the trainer has told, of names that begin with `prefix`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT name, value FROM notes WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)
            ).fetchall()
        return {name: json.loads(value) for name, value in rows}

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self._database.close()

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

    def __enter__(self) -> LabelStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _decode(self, columns: Sequence[Any]) -> Query:
        """Rebuild a query, and refuse one whose bytes have changed on the disk."""
        query = decode(columns)
        if query is None:
            raise self._database.damaged("a question does not match its checksum")
        return query


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


def _ask_one(connection: sqlite3.Connection, key: tuple, content: tuple) -> int:
    """Make (session, position, fingerprint) current: the row that has it, answers included, or a new one."""
    found = connection.execute(
        "UPDATE queries SET current = 1, decision = ? WHERE (session, position, fingerprint) = (?, ?, ?) RETURNING id",
        (content[0], *key),
    ).fetchall()
    if found:
        return found[0][0]
    return _inserted(
        connection,
        "INSERT INTO queries (session, position, fingerprint, current, decision, strategy, score, left_episode, "
        "left_start, right_episode, right_start, length, obs_dim, action_dim, left_obs, left_action, right_obs, "
        "right_action) VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*key, *content),
    )


def _bounds(after: int, up_to_decision: int | None, up_to: int | None) -> dict[str, int]:
    return {
        "after": int(after),
        "up_to_decision": LATEST if up_to_decision is None else int(up_to_decision),
        "up_to": LATEST if up_to is None else int(up_to),
    }
