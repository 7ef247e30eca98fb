"""Is a label store whole? Every page, constraint and checksum is looked at, and nothing is changed.

`LabelStore` refuses a damaged file with the first thing it finds; this looks at the rest too, and says what is lost.
"""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ubp2.preference.records import decode
from ubp2.preference.schema import APPLICATION_ID, MIGRATIONS, QUERY_COLUMNS
from ubp2.storage.database import BUSY_SECONDS, disk_errors

__all__ = ["Verification", "verify"]

SHOWN = 20  # ids that a sentence names
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}

_COUNTS = {
    "questions": "SELECT count(*) FROM queries",
    "current": "SELECT count(*) FROM queries WHERE current",
    "answers": "SELECT count(*) FROM answers",
    "standing": "SELECT count(*) FROM standing s JOIN queries q ON q.id = s.query WHERE q.current",
    "labels": "SELECT count(*) FROM standing s JOIN queries q ON q.id = s.query WHERE q.current AND s.weight > 0",
    "imported": "SELECT count(*) FROM standing s JOIN queries q ON q.id = s.query WHERE q.session < 0",
    "undone": "SELECT count(*) FROM answers a WHERE withdrawn AND NOT EXISTS (SELECT 1 FROM answers later "
    "WHERE later.query = a.query AND later.annotator = a.annotator AND later.revision > a.revision)",
    "checks": "SELECT count(*) FROM checks",
}
_SINCE = {"standing": 2, "labels": 2, "imported": 2, "undone": 2, "checks": 2}  # version of the tables they need
# What no store writes, as (version of the tables, sentence, query for ids).
_FOUND = (
    (1, "answers to no question", "SELECT id FROM answers WHERE query NOT IN (SELECT id FROM queries)"),
    (2, "checks of no question", "SELECT id FROM checks WHERE query NOT IN (SELECT id FROM queries)"),
    (3, "origins of no question", "SELECT query FROM origins WHERE query NOT IN (SELECT id FROM queries)"),
    (3, "imported questions without their origin", "SELECT id FROM queries WHERE session < 0 AND id NOT IN "
        "(SELECT query FROM origins)"),
    (1, "questions that are current twice", "SELECT max(id) FROM queries NOT INDEXED WHERE current "
        "GROUP BY session, position HAVING count(*) > 1"),
    (1, "answers stored twice", "SELECT max(id) FROM answers NOT INDEXED GROUP BY query, annotator, revision "
        "HAVING count(*) > 1"),
    (2, "answers with one key", "SELECT max(id) FROM answers NOT INDEXED WHERE key IS NOT NULL GROUP BY key "
        "HAVING count(*) > 1"),
)  # fmt: skip


class Verification(NamedTuple):
    """What was counted, and what is wrong; an empty list of problems means that the store is whole."""

    counts: dict[str, int]
    problems: list[str]
    advice: str  # what to do about them


def verify(path: Path) -> Verification:
    """Look at all of a label store."""
    counts: dict[str, int] = {}
    problems: list[str] = []
    with disk_errors(path, path.parent):  # a store that cannot be opened is not damaged
        try:
            # Not read-only: SQLite undoes what a killed process left half-written, which is no damage.
            where = f"file:{quote(str(path))}?mode=rw"
            with closing(sqlite3.connect(where, uri=True, timeout=BUSY_SECONDS)) as connection:
                connection.execute("PRAGMA query_only=ON")
                for problem in _problems(connection, counts):
                    problems.append(problem)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF not in _DAMAGE:
                raise
            problems.append(f"the file cannot be read on: {error}")
    run = shlex.quote(str(path.parent))
    advice = (
        f"put a backup of {path.name} in its place; without one, save the labels that are whole with: "
        f"ubp2 labels export {run} saved.jsonl.gz --intact, or what SQLite can read with: "
        f"sqlite3 {shlex.quote(str(path))} .recover | sqlite3 recovered.sqlite"
    )
    return Verification(counts, problems, advice if problems else "")


def _problems(connection: sqlite3.Connection, counts: dict[str, int]) -> Iterator[str]:
    """Yield one sentence a problem, the file first and its content after it; fills `counts` on the way."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID or not 1 <= version <= len(MIGRATIONS):
        yield f"this is not a label store that this ubp2 knows (kind {application:#x}, version {version})"
        return
    for (line,) in connection.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield f"the file: {line}"
    for name, query in _COUNTS.items():
        if version >= _SINCE.get(name, 1):
            counts[name] = connection.execute(query).fetchone()[0]
    for since, what, query in _FOUND:
        if version >= since and (ids := [id for (id,) in connection.execute(query)]):
            yield f"{len(ids)} {what}: {_listed(ids)}"
    for table in ("queries", "answers", *(["checks"] if version >= 2 else [])):
        if gone := _missing(connection, table):
            yield f"{len(gone)} rows of {table} are gone, and none is ever deleted: {_listed(gone)}"
    changed = []
    for id, session, position, *columns in connection.execute(
        f"SELECT q.id, q.session, q.position, {QUERY_COLUMNS} FROM queries q ORDER BY q.id"
    ):
        if decode(columns) is None:
            changed.append(id)
            if len(changed) <= SHOWN:
                yield f"question {id} (session {session}, position {position}) does not match its checksum"
    if len(changed) > SHOWN:
        yield f"{len(changed)} questions in all do not match their checksums"


def _missing(connection: sqlite3.Connection, table: str) -> list[int]:
    """Ids that were given and are not there: they count from 1, and a transaction that failed gives none."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    there = {id for (id,) in connection.execute(f"SELECT id FROM {table}")}
    return sorted(set(range(1, row[0] + 1)) - there) if row else []


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:SHOWN])) + (", ..." if len(ids) > SHOWN else "")
