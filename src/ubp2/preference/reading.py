"""What a label store says: questions, answers, and what is left to ask. Nothing is written here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from ubp2.preference import imported
from ubp2.preference.imported import Label
from ubp2.preference.records import Answered, Counts, Given, Pending, Placed, decode
from ubp2.preference.schema import APPLICATION_ID, CURRENT_ANSWERS, LATEST, MIGRATIONS, QUERY_COLUMNS
from ubp2.storage.database import Database
from ubp2.types import Query

__all__ = ["LabelReader"]

_OPEN = "q.session >= 0 AND (SELECT count(*) FROM standing s WHERE s.query = q.id) < ?"


class LabelReader:
    """Questions and answers in the file at `path`, as they are read; `LabelStore` writes them."""

    def __init__(self, path: Path | str) -> None:
        self._database = Database(path, APPLICATION_ID, MIGRATIONS)

    def pending(self, annotator: str | None = None, overlap: int = 1) -> list[Pending]:
        """Return the current questions with fewer than `overlap` answers, and none by `annotator`, in order."""
        condition = f"{_OPEN} AND NOT EXISTS (SELECT 1 FROM standing s WHERE s.query = q.id AND s.annotator IS ?)"
        return self._questions(condition, (int(overlap), annotator))

    def open(self, overlap: int = 1) -> list[Placed]:
        """Return where the current questions with fewer than `overlap` answers are, in order."""
        return self._placed(f"q.current AND {_OPEN}", (int(overlap),))

    def placed(self, query_id: int) -> Placed | None:
        """Return where one question is, current or not; None: there is none of this id."""
        found = self._placed("q.id = ?", (int(query_id),))
        return found[0] if found else None

    def _placed(self, condition: str, parameters: tuple[Any, ...]) -> list[Placed]:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT q.id, q.decision, q.session, q.position, q.left_episode, q.left_start, q.right_episode, "
                f"q.right_start, q.length FROM queries q WHERE {condition} ORDER BY q.session, q.position",
                parameters,
            ).fetchall()
        return [Placed(*row[:4], left=row[4:6], right=row[6:8], length=row[8]) for row in rows]

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

    def spent(self, up_to_decision: int, up_to: int) -> int:
        """Count the current questions asked up to that decision, less those that nobody can tell.

        Those have answers, up to the answer `up_to`, and none with a weight above 0. What a resumed run has not come to
        again is not counted, neither here nor there.
        """
        with self._database.read() as connection:
            return connection.execute(
                "SELECT (SELECT count(*) FROM queries WHERE current AND session >= 0 AND decision <= :up_to_decision) "
                f"- (SELECT count(*) FROM (SELECT a.query {CURRENT_ANSWERS} AND q.session >= 0 "
                "GROUP BY a.query HAVING max(a.weight) = 0))",
                _bounds(0, up_to_decision, up_to),
            ).fetchone()[0]

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

    def knows(self, key: str) -> bool:
        """Whether there is an answer, or an undo, with this key."""
        with self._database.read() as connection:
            return connection.execute("SELECT 1 FROM answers WHERE key = ?", (key,)).fetchone() is not None

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

    def imported(self) -> set[bytes]:
        """The imported questions, by fingerprint, that somebody could answer: so many labels of other runs are here."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT q.fingerprint FROM standing s JOIN queries q ON q.id = s.query "
                "WHERE q.session < 0 AND s.weight > 0"
            ).fetchall()
        return {fingerprint for (fingerprint,) in rows}

    def notes(self, prefix: str = "", *, plain: bool = False) -> dict[str, Any]:
        """What the trainer has told, of names that begin with `prefix`; `plain`: not what is of one question each."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT name, value FROM notes WHERE substr(name, 1, ?) = ? AND NOT (? AND instr(name, ':'))",
                (len(prefix), prefix, plain),
            ).fetchall()
        return {name: json.loads(value) for name, value in rows}

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _decode(self, columns: Sequence[Any]) -> Query:
        """Rebuild a query, and refuse one whose bytes have changed on the disk."""
        query = decode(columns)
        if query is None:
            raise self._database.damaged("a question does not match its checksum")
        return query


def _bounds(after: int, up_to_decision: int | None, up_to: int | None) -> dict[str, int]:
    return {
        "after": int(after),
        "up_to_decision": LATEST if up_to_decision is None else int(up_to_decision),
        "up_to": LATEST if up_to is None else int(up_to),
    }
