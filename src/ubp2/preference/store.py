"""The label store: the one owner of questions and answers on disk, an SQLite file in the run folder.

The trainer asks, and a scripted teacher, a person in a browser or a program answers, from the same process or another.
Nothing is ever deleted: a question that a resumed run replaced is no longer current, and a changed answer is a new row
that hides the earlier one.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ubp2.database import Database
from ubp2.errors import UserError
from ubp2.types import Query

__all__ = ["Answered", "Counts", "LabelStore", "Pending"]

_APPLICATION_ID = 0x7562706C  # "ubpl"
_MIGRATIONS = (
    (
        # A question is (session, position); each content it ever had is a row, at most one of them current.
        """CREATE TABLE queries (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            session INTEGER NOT NULL,
            position INTEGER NOT NULL,
            fingerprint BLOB NOT NULL,
            current INTEGER NOT NULL CHECK (current IN (0, 1)),
            decision INTEGER NOT NULL,
            strategy TEXT NOT NULL,
            score REAL, -- NULL: not a number
            left_episode INTEGER NOT NULL,
            left_start INTEGER NOT NULL,
            right_episode INTEGER NOT NULL,
            right_start INTEGER NOT NULL,
            length INTEGER NOT NULL,
            obs_dim INTEGER NOT NULL,
            action_dim INTEGER NOT NULL,
            left_obs BLOB NOT NULL, -- float32, little-endian, row by row; and so the other three
            left_action BLOB NOT NULL,
            right_obs BLOB NOT NULL,
            right_action BLOB NOT NULL,
            UNIQUE (session, position, fingerprint)
        ) STRICT""",
        "CREATE UNIQUE INDEX current_query ON queries (session, position) WHERE current",
        """CREATE TABLE answers (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            query INTEGER NOT NULL REFERENCES queries (id),
            annotator TEXT NOT NULL,
            revision INTEGER NOT NULL,
            label REAL NOT NULL CHECK (label IN (0.0, 0.5, 1.0)),
            weight REAL NOT NULL CHECK (weight >= 0.0),
            seconds REAL,
            answered_at REAL NOT NULL, -- seconds since 1970
            UNIQUE (query, annotator, revision)
        ) STRICT""",
        "CREATE TRIGGER queries_stay BEFORE DELETE ON queries BEGIN SELECT RAISE(ABORT, 'queries are kept'); END",
        "CREATE TRIGGER answers_stay BEFORE DELETE ON answers BEGIN SELECT RAISE(ABORT, 'answers are kept'); END",
        "CREATE TRIGGER answers_last BEFORE UPDATE ON answers BEGIN SELECT RAISE(ABORT, 'answers are kept'); END",
    ),
)

_QUERY_COLUMNS = (
    "q.fingerprint, q.length, q.obs_dim, q.action_dim, q.left_obs, q.left_action, q.right_obs, q.right_action, "
    "q.left_episode, q.left_start, q.right_episode, q.right_start, q.score"
)
# The view of the answers as it was when answer :up_to had just been given.
_CURRENT_ANSWERS = """
    FROM answers a JOIN queries q ON q.id = a.query
    WHERE q.current AND a.id > :after AND a.id <= :up_to AND q.decision <= :up_to_decision AND NOT EXISTS (
        SELECT 1 FROM answers later WHERE later.query = a.query AND later.annotator = a.annotator
        AND later.revision > a.revision AND later.id <= :up_to)"""
# A question that becomes current again brings its answers along as new ones: a reader may be past their ids.
_ANSWER_AGAIN = """
    INSERT INTO answers (query, annotator, revision, label, weight, seconds, answered_at)
    SELECT query, annotator, max(revision) + 1, label, weight, seconds, answered_at
    FROM answers WHERE query = ? GROUP BY annotator ORDER BY id"""
_LATEST = 2**63 - 1


class Pending(NamedTuple):
    """A question that waits for an answer."""

    id: int
    decision: int
    session: int
    position: int
    strategy: str
    query: Query


class Answered(NamedTuple):
    """One current answer. `id` grows with each answer given, so it is the cursor of a reader."""

    id: int
    query_id: int
    decision: int
    query: Query
    label: float
    weight: float
    annotator: str


class Counts(NamedTuple):
    """How many current answers have weight, and how many questions are current."""

    labels: int
    asked: int


class LabelStore:
    """Questions and answers in the file at `path`, for one trainer and one label server at a time."""

    def __init__(self, path: Path | str) -> None:
        self._database = Database(path, _APPLICATION_ID, _MIGRATIONS)

    def ask(self, decision: int, session: int, queries: Sequence[Query], strategy: str) -> list[int]:
        """Store the questions of a whole session, asked at `decision`, and return their ids.

        Asking again gives the ids and keeps the answers of every question that is still the same. One with another
        content takes the place of the earlier one, and the run has then left its old course (it resumed on a device
        that rounds differently): what that course asked at later decisions is no longer current either.
        """
        rows = [_encode(query) for query in queries]
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
                connection.executemany(_ANSWER_AGAIN, [(id,) for id in ids if id not in before])
            return ids

    def answer(
        self,
        query_id: int,
        label: float,
        weight: float = 1.0,
        annotator: str = "oracle",
        seconds: float | None = None,
    ) -> None:
        """Store P(left preferred) for one question, on the disk when this returns.

        The same answer again changes nothing; another one by the same annotator hides the earlier. An answer to a
        question that has been replaced meanwhile is kept, and counts if that question becomes current again.
        """
        query_id, label, weight = int(query_id), float(label), float(weight)
        if label not in (0.0, 0.5, 1.0):
            raise ValueError(f"a label is 0 (right), 0.5 (tie) or 1 (left), got {label}")
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"a weight is finite and at least 0, got {weight}")
        with self._database.write() as connection:
            if connection.execute("SELECT 1 FROM queries WHERE id = ?", (query_id,)).fetchone() is None:
                raise UserError(f"there is no question {query_id} in {self._database.path}; list those that wait")
            last = connection.execute(
                "SELECT revision, label, weight FROM answers WHERE query = ? AND annotator = ? "
                "ORDER BY revision DESC LIMIT 1",
                (query_id, annotator),
            ).fetchone()
            if last is None or last[1:] != (label, weight):
                connection.execute(
                    "INSERT INTO answers (query, annotator, revision, label, weight, seconds, answered_at) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (query_id, annotator, 0 if last is None else last[0] + 1, label, weight, seconds, time.time()),
                )

    def pending(self) -> list[Pending]:
        """Return the current questions that nobody has answered, in the order they were asked."""
        return self._questions("NOT EXISTS (SELECT 1 FROM answers a WHERE a.query = q.id)", ())

    def session(self, session: int) -> list[Pending]:
        """Return the current questions of one session, answered or not, in order."""
        return self._questions("q.session = ?", (int(session),))

    def _questions(self, condition: str, parameters: tuple[int, ...]) -> list[Pending]:
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT q.id, q.decision, q.session, q.position, q.strategy, {_QUERY_COLUMNS} FROM queries q "
                f"WHERE q.current AND {condition} ORDER BY q.session, q.position",
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
                f"SELECT a.id, a.query, q.decision, a.label, a.weight, a.annotator, {_QUERY_COLUMNS} "
                f"{_CURRENT_ANSWERS} ORDER BY a.id",
                _bounds(after, up_to_decision, up_to),
            ).fetchall()
        return [
            Answered(id, query_id, decision, self._decode(columns), label, weight, annotator)
            for id, query_id, decision, label, weight, annotator, *columns in rows
        ]

    def count(self, up_to_decision: int | None = None) -> Counts:
        """Count the current answers with a weight above 0, and the current questions, asked up to that decision.

        Without the bound, a resumed run would count sessions that it has not come to again.
        """
        with self._database.read() as connection:
            labels, asked = connection.execute(
                f"SELECT (SELECT count(*) {_CURRENT_ANSWERS} AND a.weight > 0), "
                "(SELECT count(*) FROM queries WHERE current AND decision <= :up_to_decision)",
                _bounds(0, up_to_decision, None),
            ).fetchone()
        return Counts(labels, asked)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self._database.close()

    def __enter__(self) -> LabelStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _decode(self, columns: Sequence[Any]) -> Query:
        """Rebuild a query from `_QUERY_COLUMNS`, and refuse one whose bytes have changed on the disk."""
        fingerprint, length, obs_dim, action_dim, *blobs = columns[:8]
        refs, score = columns[8:12], columns[12]
        shapes = [(length, obs_dim), (length, action_dim)] * 2
        if _fingerprint(shapes, blobs, refs) != fingerprint:
            raise self._database.damaged("a question does not match its checksum")
        # astype copies: a view of the blob would be read-only and of a fixed byte order
        left_obs, left_action, right_obs, right_action = (
            np.frombuffer(blob, "<f4").reshape(shape).astype(np.float32)
            for blob, shape in zip(blobs, shapes, strict=True)
        )
        return Query(left_obs, left_action, right_obs, right_action, *refs, score=math.nan if score is None else score)


def _ask_one(connection: sqlite3.Connection, key: tuple, content: tuple) -> int:
    """Make (session, position, fingerprint) current: the row that has it, answers included, or a new one."""
    found = connection.execute(
        "UPDATE queries SET current = 1, decision = ? WHERE (session, position, fingerprint) = (?, ?, ?) RETURNING id",
        (content[0], *key),
    ).fetchall()
    if found:
        return found[0][0]
    inserted = connection.execute(
        "INSERT INTO queries (session, position, fingerprint, current, decision, strategy, score, left_episode, "
        "left_start, right_episode, right_start, length, obs_dim, action_dim, left_obs, left_action, right_obs, "
        "right_action) VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*key, *content),
    )
    assert inserted.lastrowid is not None
    return inserted.lastrowid


def _encode(query: Query) -> tuple:
    """Return fingerprint, score, references, sizes and blobs, in the order of the columns."""
    arrays = [np.asarray(array) for array in query[:4]]
    (length, obs_dim), (_, action_dim) = shapes = [array.shape for array in arrays[:2]]
    if [array.shape for array in arrays] != shapes * 2 or shapes[1][0] != length:
        raise ValueError(f"a query is two segments of equal shape [L, D] and [L, A], got {[a.shape for a in arrays]}")
    if any(array.dtype != np.float32 for array in arrays):
        raise ValueError(f"the arrays of a query are float32, got {[str(array.dtype) for array in arrays]}")
    blobs = [array.astype("<f4").tobytes() for array in arrays]
    refs = [int(ref) for ref in query[4:8]]
    return _fingerprint(shapes * 2, blobs, refs), float(query.score), *refs, length, obs_dim, action_dim, *blobs


def _fingerprint(shapes: Sequence[tuple[int, ...]], blobs: Sequence[bytes], refs: Sequence[int]) -> bytes:
    """Identify what is asked; the score and the strategy are remarks about it."""
    digest = hashlib.sha256(repr((list(shapes), list(refs))).encode())
    for blob in blobs:
        digest.update(blob)
    return digest.digest()


def _bounds(after: int, up_to_decision: int | None, up_to: int | None) -> dict[str, int]:
    return {
        "after": int(after),
        "up_to_decision": _LATEST if up_to_decision is None else int(up_to_decision),
        "up_to": _LATEST if up_to is None else int(up_to),
    }
