"""The run folder: what a run was, what it measured, and the lock that gives it one writer.

``config.yaml`` is the resolved configuration, ``info.json`` what it ran on, ``labels.sqlite`` and ``episodes.sqlite``
the data, ``checkpoints/`` the agent, ``metrics.jsonl`` and ``tensorboard/`` the numbers, ``videos/`` the clips. Of a
visual run ``encoder.npz`` is an encoder of its own, and ``frames/`` what was seen, if it is kept.
"""

from __future__ import annotations

import datetime
import importlib
import itertools
import json
import logging
import math
import os
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.storage import locks
from ubp2.storage.database import disk_errors, going_on
from ubp2.storage.recognising import is_run, no_run
from ubp2.system import own_command, source, versions

__all__ = ["HALF_MADE", "Metrics", "Run", "default_folder", "occupied", "read_metrics", "write_json"]

_LOG = logging.getLogger(__name__)
_ROW_KEYS = {"kind", "decision"}
HALF_MADE = frozenset(
    # label.*: the secret and the lock of a page that waits for the trainer whose run this will be
    {locks.LOCK, "config.yaml.tmp", "info.json", "info.json.tmp", "checkpoints", "videos", "label.key", "label.lock"}
)


class Run:
    """A run folder. The instance that `create` or ``open(write=True)`` gives holds its lock until `close`."""

    def __init__(self, folder: Path, config: Config, lock: int | None = None) -> None:
        self.folder = folder
        self.config = config
        self.labels = folder / "labels.sqlite"
        self.episodes = folder / "episodes.sqlite"
        self.checkpoints = folder / "checkpoints"
        self.videos = folder / "videos"
        self._lock = lock

    @classmethod
    def create(
        cls, folder: Path | None, config: Config, device: str = "unknown", *, custom: Collection[str] = ()
    ) -> Run:
        """Make and lock the folder of a new run (None: one under runs/); custom: what Python gave, not the config."""
        from ubp2.config.files import save_yaml

        folder = default_folder(config) if folder is None else Path(folder)
        with disk_errors(folder, None):
            if folder.exists() and (not folder.is_dir() or _used(folder)):
                raise occupied(folder)
            folder.mkdir(parents=True, exist_ok=True)
            lock = locks.take(folder)
            if _used(folder):  # another process was faster
                os.close(lock)
                raise occupied(folder)
            try:
                for name in ("checkpoints", "videos"):
                    (folder / name).mkdir(exist_ok=True)
                given = {f"custom_{what}": what in custom for what in ("environment", "teacher")}
                write_json(folder / "info.json", {**_provenance(device), **given, "resumed": []})
                # Last and whole: it is what makes a folder a run, and half of it would read as a run with defaults.
                save_yaml(config, folder / "config.yaml.tmp")
                _settle(folder / "config.yaml.tmp", folder / "config.yaml")
            except BaseException:
                _undo_create(folder)
                os.close(lock)
                raise
        return cls(folder, config, lock)

    @classmethod
    def open(cls, folder: Path | str, *, write: bool = False, device: str = "unknown") -> Run:
        """Open the run in `folder`: to read it, or with `write` to go on with it as its only writer."""
        from ubp2.config.files import load_yaml

        folder = Path(folder)
        if not is_run(folder):
            raise no_run(folder)
        config = load_yaml(folder / "config.yaml", own_names=True)
        if not write:
            return cls(folder, config)
        with disk_errors(folder, folder):
            lock = locks.take(folder)
            run = cls(folder, config, lock)
            try:
                info = run.info()
                write_json(folder / "info.json", {**info, "resumed": [*info["resumed"], _provenance(device)]})
            except BaseException:
                run.close()
                raise
        return run

    def extend(self, config: Config) -> None:
        """Make `config`, a longer one, the configuration of the run: a later resume goes on to its end."""
        from ubp2.config.files import save_yaml

        with disk_errors(self.folder, self.folder):
            save_yaml(config, self.folder / "config.yaml.tmp")
            _settle(self.folder / "config.yaml.tmp", self.folder / "config.yaml")
        self.config = config

    def note(self, facts: Mapping[str, Any]) -> None:
        """Add facts to what `info` returns."""
        with disk_errors(self.folder, self.folder):
            write_json(self.folder / "info.json", {**self.info(), **facts})

    def info(self) -> dict[str, Any]:
        """Return versions, source, command and machine of the run, and of each time it was resumed."""
        try:
            return {**json.loads((self.folder / "info.json").read_text(encoding="utf-8"))}
        except (ValueError, TypeError) as error:
            raise UserError(f"{self.folder / 'info.json'} is damaged ({error}); put a backup in its place") from error

    def close(self) -> None:
        """Release the lock; a second time does nothing."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Metrics:
    """Appends rows to ``metrics.jsonl`` and scalars to ``tensorboard/``.

    Names that start with ``time/`` are measurements of the clock: two runs are equal if all other values are.
    """

    def __init__(self, folder: Path | str, *, tensorboard: bool = True) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "metrics.jsonl"
        self._events = _EventFile(self.folder / "tensorboard") if tensorboard else None
        with disk_errors(self.path, self.folder):
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self.truncate(None)

    def write(self, kind: str, decision: int, values: Mapping[str, float]) -> None:
        """Append one row ``{"kind", "decision", **values}``; a kill leaves at most the last line half-written."""
        numbers = {name: float(value) for name, value in values.items()}
        if _ROW_KEYS & numbers.keys():
            raise ValueError(f"a metric cannot be called {' or '.join(sorted(_ROW_KEYS))}")
        finite = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        row = {"kind": kind, "decision": int(decision), **finite}
        self._append(json.dumps(row, allow_nan=False).encode() + b"\n")
        if self._events:
            with disk_errors(self._events.folder, self.folder):
                self._events.write(row)

    def position(self) -> int:
        """Return the size of the file, which is on the disk when this returns: a checkpoint may point to it."""
        if self._events:
            with disk_errors(self._events.folder, self.folder):
                self._events.flush()
        with disk_errors(self.path, self.folder):
            os.fsync(self._file)
            return os.fstat(self._file).st_size

    def truncate(self, position: int | None) -> None:
        """Drop what was written after `position` (None: nothing) and a half-written last line."""
        with disk_errors(self.path, self.folder):
            content = self.path.read_bytes() if os.fstat(self._file).st_size else b""
            if position is not None and len(content) < position:
                _LOG.warning("%s lost %d bytes since the checkpoint", self.path, position - len(content))
            kept = content[:position]
            kept = kept[: kept.rfind(b"\n") + 1]
            if len(kept) < len(content):
                os.ftruncate(self._file, len(kept))
        if position is not None and self._events:
            self._events.purge_step = _parse(self.path, kept.splitlines()[-1])["decision"] + 1 if kept else 0

    def close(self) -> None:
        """Close both files; a second time does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._events:
            with disk_errors(self._events.folder, self.folder):
                self._events.close()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        with disk_errors(self.path, self.folder):
            before = os.fstat(self._file).st_size
            try:
                written = 0
                while written < len(line):
                    written += os.write(self._file, line[written:])
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._file, before)
                raise


def read_metrics(folder: Path | str) -> list[dict[str, Any]]:
    """Return the rows of a run, also of one that is being written or was killed: half a last line is left out."""
    path = Path(folder) / "metrics.jsonl"
    with disk_errors(path, Path(folder)):
        content = path.read_bytes() if path.exists() else b""
    return [_parse(path, line) for line in content[: content.rfind(b"\n") + 1].splitlines()]


def _parse(path: Path, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UserError(f"{path} has a damaged line ({error}): {line[:60]!r}; remove that line") from error
    if not isinstance(row, dict) or not row.keys() >= _ROW_KEYS:
        raise UserError(f"{path} has a damaged line (no row of metrics): {line[:60]!r}; remove that line")
    return row


class _EventFile:
    """Scalars for TensorBoard, written by the calling thread.

    tensorboardX's SummaryWriter hands events to a thread of its own; when that dies on a full disk, the queue fills
    and the trainer waits for ever. Here the error reaches the caller.
    """

    FLUSH_SECONDS = 30.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.purge_step: int | None = None  # TensorBoard drops what earlier files have from this step on
        self._writer: Any = None
        self._flushed = 0.0

    def write(self, row: Mapping[str, Any]) -> None:
        """Write the finite values of a row of metrics; the file is made at the first one."""
        from tensorboardX.event_file_writer import EventsWriter

        event: Any = importlib.import_module("tensorboardX.proto.event_pb2")  # made at import: no checker can see in
        summary: Any = importlib.import_module("tensorboardX.proto.summary_pb2")
        if self._writer is None:
            self.folder.mkdir(exist_ok=True)
            self._writer = EventsWriter(str(self.folder / "events"), f".{os.getpid()}")
            if self.purge_step is not None:
                start = event.SessionLog(status=event.SessionLog.START)
                self._writer.write_event(event.Event(wall_time=time.time(), step=self.purge_step, session_log=start))
        values = summary.Summary()
        for name, number in row.items():
            if name not in _ROW_KEYS and number is not None:
                values.value.add(tag=f"{row['kind']}/{name}", simple_value=number)
        self._writer.write_event(event.Event(wall_time=time.time(), step=row["decision"], summary=values))
        if time.monotonic() - self._flushed > self.FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Put what was written on the disk, which takes a while on a network file system."""
        if self._writer is not None:
            self._writer.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def default_folder(config: Config, seed: bool = True) -> Path:
    """Make and return a folder of its own under runs/; mkdir decides between runs that start in the same second."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    of = f"s{config.seed}-" if seed else ""
    base = Path("runs") / config.env.replace("/", "-") / f"{config.agent.replace(':', '-')}-{of}{stamp}"
    with disk_errors(base.parent, None):
        base.parent.mkdir(parents=True, exist_ok=True)
    for count in itertools.count(1):
        folder = base if count == 1 else base.with_name(f"{base.name}-{count}")
        with disk_errors(folder, None), suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("unreachable")


def _used(folder: Path) -> bool:
    """Whether the folder holds anything but what a creation that was killed leaves behind: it has no config.yaml."""
    return any(path.name not in HALF_MADE or (path.is_dir() and any(path.iterdir())) for path in folder.iterdir())


def occupied(folder: Path) -> UserError:
    """The error for a folder that holds something, or a file in its place."""
    if folder.is_file():
        return UserError(f"{folder} exists and is a file; choose a folder with --out")
    return UserError(
        f"{folder} exists and is not empty; choose another folder with --out, or go on with the run in it with: "
        f"{going_on(folder)} (from Python: out=, and ubp2.resume)"
    )


def _undo_create(folder: Path) -> None:
    """Leave the folder as empty as it was found, so that the same command works once the disk does."""
    with suppress(OSError):
        for name in ("config.yaml", "config.yaml.tmp", "info.json", "info.json.tmp", locks.LOCK):
            (folder / name).unlink(missing_ok=True)
        for name in ("checkpoints", "videos"):
            (folder / name).rmdir()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file in one step."""
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(json.dumps(content, indent=2), encoding="utf-8")
    _settle(partial, path)


def _settle(partial: Path, path: Path) -> None:
    """Replace `path` in one step: a reader sees the old content or the new, also after a power loss."""
    with partial.open("rb") as stream:
        os.fsync(stream.fileno())
    partial.replace(path)


def _provenance(device: str) -> dict[str, Any]:
    return {
        "versions": versions(),
        "source": source(),
        "command": own_command(),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "device": device,
    }
