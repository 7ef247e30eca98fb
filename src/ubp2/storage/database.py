"""What the files of a run stand on: durable SQLite connections, and disk errors told in one sentence.

A commit is on the disk when it returns. The rollback journal is used and never WAL, whose shared memory does not work
on the network file systems that run folders live on. ``synchronous=EXTRA`` is FULL plus a sync of the directory once
the journal is unlinked: with FULL alone, a power loss right after a commit can bring the journal back and undo it.
"""

from __future__ import annotations

import errno
import shlex
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from ubp2.errors import UserError

__all__ = ["BUSY_SECONDS", "POPULATION", "Database", "disk_errors", "going_on"]

BUSY_SECONDS = 30.0
POPULATION = "population.json"  # in the folder of seeds that train together, beside theirs

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EROFS, errno.EACCES, errno.EPERM}
_IN_THE_WAY = {errno.EEXIST, errno.ENOTDIR}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_SQLITE_REASONS = {
    sqlite3.SQLITE_FULL: ("the disk is full", "free some space"),
    sqlite3.SQLITE_READONLY: ("it is read-only", "make it writable"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "check that its folder exists and is writable"),
    sqlite3.SQLITE_PERM: ("permission denied", "make it writable"),
    sqlite3.SQLITE_IOERR: ("the disk reports an input/output error", "check the disk and its free space"),
    sqlite3.SQLITE_BUSY: (f"another process kept it locked for {BUSY_SECONDS:.0f} s", "stop that process"),
    sqlite3.SQLITE_LOCKED: ("another connection keeps it locked", "close that connection"),
}


@contextmanager
def disk_errors(path: Path, run: Path | None) -> Iterator[None]:
    """Turn errors of the disk under `path` into a `UserError`; `run` is the folder to resume (None: no run yet)."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _DAMAGED:
            raise _damaged(path, str(error)) from error
        if code not in _SQLITE_REASONS:
            raise
        raise _unusable(path, *_SQLITE_REASONS[code], run) from error
    except OSError as error:
        advice = "check the disk"
        if error.errno in _FULL:
            advice = "free some space"
        elif error.errno in _DENIED:
            advice = "make it writable"
        elif error.errno in _IN_THE_WAY:
            advice = "move away the file or the broken link that is in its place"
        raise _unusable(path, (error.strerror or str(error)).lower(), advice, run) from error


def _unusable(path: Path, reason: str, advice: str, run: Path | None) -> UserError:
    if run is None:
        return UserError(f"cannot write {path}: {reason}; {advice}, or choose another folder with --out")
    return UserError(
        f"cannot use {path}: {reason}; nothing written so far is lost: {advice}, then go on with: {going_on(run)}"
    )


def going_on(run: Path) -> str:
    """The command that goes on with a run. A seed that goes on alone cannot rejoin the others of its population."""
    folder = next((folder for folder in run.parents[:3] if _names(folder / POPULATION, run)), run)
    return f"ubp2 train --resume {shlex.quote(str(folder))}"


def _names(population: Path, run: Path) -> bool:
    """Whether a run belongs to this population; the folder right above it needs no further proof."""
    if not population.is_file() or population.parent == run.parent:
        return population.is_file()
    try:
        return f'"{run.relative_to(population.parent).as_posix()}"' in population.read_text(encoding="utf-8")
    except OSError:
        return False


def _damaged(path: Path, detail: str) -> UserError:
    return UserError(
        f"{path} is damaged ({detail}); put a backup in its place, or save what can be read with: "
        f"sqlite3 {shlex.quote(str(path))} .recover | sqlite3 recovered.sqlite"
    )


class Database:
    """One SQLite file with a schema version, short transactions, and errors that say what to do.

    `migrations[v]` holds the statements that lead from version v to v + 1. The threads of one process may share an
    instance; several processes may have the file open at a time.
    """

    def __init__(self, path: Path | str, application_id: int, migrations: Sequence[Sequence[str]]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        with self._errors():
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            self._prepare(application_id, migrations)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection for one SELECT. Fetch all of it inside: an open cursor would block the writers."""
        with self._lock, self._errors():
            yield self._connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection for one transaction, durable at the end of the block and undone by an exception."""
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # A full disk makes SQLite roll back by itself, after which ROLLBACK is an error of its own.
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def damaged(self, detail: str) -> UserError:
        """Build the error for content that does not match its checksum."""
        return _damaged(self.path, detail)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        with self._lock:
            self._connection.close()

    def _errors(self) -> AbstractContextManager[None]:
        return disk_errors(self.path, self.path.parent)

    def _prepare(self, application_id: int, migrations: Sequence[Sequence[str]]) -> None:
        with self.read() as connection:
            connection.execute("PRAGMA journal_mode=DELETE").fetchall()
            connection.execute("PRAGMA synchronous=EXTRA")
            connection.execute("PRAGMA foreign_keys=ON")
            report = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if report != "ok":
            raise self.damaged(report)
        if self._version(application_id, len(migrations)) == len(migrations):
            return
        with self.write() as connection:
            # Asked again under the lock: another process may have just migrated the file.
            version = self._version(application_id, len(migrations))
            for statement in (statement for step in migrations[version:] for statement in step):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={application_id}")
            connection.execute(f"PRAGMA user_version={len(migrations)}")

    def _version(self, application_id: int, newest: int) -> int:
        """Return the schema version of the file, 0 for an empty one, and refuse a file that is not ours."""
        with self.read() as connection:
            alone = not connection.in_transaction
            if alone:  # one moment for all three: another process may be making the file
                connection.execute("BEGIN")
            found = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if alone:
                connection.execute("COMMIT")
        if tables and found != application_id:
            raise UserError(f"{self.path} is an SQLite file of another kind; move it away or name another folder")
        if version > newest:
            raise UserError(
                f"{self.path} has schema version {version} and this ubp2 reads up to {newest}; "
                f"use the version of ubp2 that wrote it, or a newer one"
            )
        return version
