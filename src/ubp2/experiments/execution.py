"""Training the missing seeds of cells in processes of their own: some at once, again after a failure, stopped in order.

Every group of seeds is one `ubp2 train`, so that a crash takes nothing else with it, and continues from its checkpoint.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ubp2.errors import UserError
from ubp2.experiments.cells import Group, short, write_config
from ubp2.experiments.child import PARENT
from ubp2.signals import CHECKPOINTED
from ubp2.storage import locks, population
from ubp2.storage.recognising import is_run

__all__ = ["Outcome", "Workers", "command", "cut_off", "decision", "failure", "label", "labels", "last_row", "written"]

_PATIENCE = 120.0  # seconds; a server of shared folders gives up the locks of a dead machine after about 90
_TAILS = (2**16, 2**20)  # bytes of metrics that are read from the end; the rows of 5,000 decisions take about 2**16
_WORDS = 8  # lines of a log that tell why a run failed


@dataclass(frozen=True)
class Outcome:
    """How a group ended: finished, or stopped on request, or failed with the last words of its log."""

    group: Group
    state: str  # finished, stopped, failed
    attempts: int = 1
    reason: str = ""


def label(group: Group) -> str:
    """A group as a person is told."""
    return labels([group])


def labels(groups: Sequence[Group]) -> str:
    """Groups of one cell, one after the other, as a person is told."""
    first, last = groups[0], groups[-1]
    end = last.first + last.seeds - 1
    many = f"seeds {first.first} to {end}" if end > first.first else f"seed {first.first}"
    each = f" in {len(groups)} programs" if len(groups) > 1 else ""
    return f"{short(first.cell.task)} {first.cell.method}, {many}{each}"


def command(group: Group) -> list[str]:
    """What trains a group: a new run, or the one in its folder from its last checkpoint on."""
    if _resumable(group):
        return ["train", "--quiet", "--resume", str(group.folder)]
    config = write_config(group.cell)
    seeds = ["--seed", str(group.first), "--seeds", str(group.seeds)]
    return ["train", "--quiet", "--config", str(config), *seeds, "--out", str(group.folder)]


def decision(group: Group) -> int:
    """How far a group has come: the last decision in the metrics of its first seed."""
    member = group.folder if group.seeds == 1 else group.folder / f"s{group.first}"
    return int(last_row(member).get("decision", 0))


def last_row(member: Path, kind: str | None = None) -> dict[str, Any]:
    """The last row in the metrics of a run, or the last of a kind, whoever writes to them now; empty: there is none."""
    for size in _TAILS:
        try:
            with (member / "metrics.jsonl").open("rb") as stream:
                start = stream.seek(max(stream.seek(0, os.SEEK_END) - size, 0))
                lines = stream.read().splitlines(keepends=True)[start > 0 :]
            for line in reversed(lines):
                row = json.loads(line) if line.endswith(b"\n") and (kind or "").encode() in line else {}
                if row and kind in (None, row.get("kind")):
                    return row
        except (OSError, ValueError):
            return {}
    return {}


def failure(group: Group) -> str:
    """Why the last attempt at a group was given up; empty where none was."""
    try:
        return _failed(group).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cut_off(group: Group) -> bool:
    """Whether the making of its clip was interrupted."""
    return _filming(group).exists()


class Workers:
    """Runs groups side by side, `jobs` at a time; `stop` ends all of them with a checkpoint, `kill` without."""

    def __init__(self, jobs: int, retries: int, say: Callable[[str], None]) -> None:
        self._jobs = jobs
        self._retries = retries
        self._say = say
        self._stopping = threading.Event()
        self._lock = threading.RLock()  # `stop` is called by signals, too
        self._children: set[subprocess.Popen[bytes]] = set()

    def run(self, groups: Sequence[Group], clips: bool) -> Iterator[Outcome]:
        """Train every group, and film it; yields each as it ends, whatever became of it."""
        with ThreadPoolExecutor(self._jobs) as pool:
            for future in as_completed([pool.submit(self._train, group, clips) for group in groups]):
                yield future.result()

    def stop(self) -> None:
        """Ask every child to write a checkpoint and leave; a second time does nothing."""
        with self._lock:
            if not self._stopping.is_set():
                self._stopping.set()
                self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End every child at once."""
        with self._lock:
            self._stopping.set()
            self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        for child in self._children:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    def close(self) -> None:
        """Nothing to give back."""

    def _train(self, group: Group, clips: bool) -> Outcome:
        with suppress(OSError):
            _failed(group).unlink()
        outcome = Outcome(group, "finished") if group.finished else self._tried(group)
        if outcome.state == "finished" and clips and group.first == 0:
            with suppress(UserError, OSError):  # a full disk does not undo what was learned
                self._film(group)
        if outcome.state == "failed":
            with suppress(OSError):  # a full disk may be why
                _failed(group).write_text(outcome.reason, encoding="utf-8")
        return outcome

    def _tried(self, group: Group) -> Outcome:
        code = 0
        for attempt in range(1, self._retries + 2):
            if self._stopping.is_set():
                return Outcome(group, "stopped", attempt - 1)
            try:
                self._make_room(group)
                code = self._call(command(group), _log(group))
            except UserError as error:
                return Outcome(group, "failed", attempt, str(error))
            except OSError as error:
                return Outcome(group, "failed", attempt, f"cannot start or write: {error}")
            if code == 0:
                return Outcome(group, "finished", attempt)
            if code == CHECKPOINTED or self._stopping.is_set():
                return Outcome(group, "stopped", attempt)
            if attempt <= self._retries:
                self._say(f"{label(group)}: ended with code {code}, tried again ({attempt} of {self._retries})")
        return Outcome(group, "failed", self._retries + 1, f"code {code}; {_last_words(_log(group))}")

    def _film(self, group: Group) -> None:
        """A clip of what the first seed has learned, beside its run; a machine that cannot render goes without.

        A file says that it is being made, so that the next command knows of one that was interrupted.
        """
        run, mark = population.members(group.folder)[0], _filming(group)
        clip, who = run / "clip.mp4", group.cell.controller
        if not clip.exists():
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            told = [] if who == "acting" else ["--controller", who]  # at the end the policy acts, as in ubp2 eval
            self._call(["eval", str(run), "--episodes", "1", *told, "--video", str(clip)], _log(group))
        if clip.exists() or not self._stopping.is_set():
            mark.unlink(missing_ok=True)

    def _make_room(self, group: Group) -> None:
        """Wait for whoever still writes to the folder; remove it if its runs ended before their first checkpoint.

        Where any seed has a checkpoint, or people may have answered, nothing is removed: a seed that is damaged must
        not cost those that are whole.
        """
        if not group.folder.exists():
            return
        end = time.monotonic() + _PATIENCE
        while written(group.folder) and time.monotonic() < end and not self._stopping.wait(0.2):
            pass  # the child of a command that was killed is writing its checkpoint
        if written(group.folder):
            return
        if _resumable(group):
            _check_whole(group)
        else:
            shutil.rmtree(group.folder)

    def _call(self, arguments: list[str], log: Path) -> int:
        """Run one command to its end; its words go to the log."""
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, PARENT: str(os.getpid())}
        with log.open("ab") as stream:
            stream.write(f"$ {shlex.join(['ubp2', *arguments])}\n".encode())
            stream.flush()
            with self._lock:
                if self._stopping.is_set():
                    return CHECKPOINTED
                child = subprocess.Popen(
                    [sys.executable, "-m", "ubp2.experiments.child", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # Ctrl-C reaches it through `stop` alone, once
                )
                self._children.add(child)
            try:
                return child.wait()
            finally:
                with self._lock:
                    self._children.discard(child)


def _resumable(group: Group) -> bool:
    """Whether any seed in the folder has a checkpoint; `ubp2 train --resume` knows whether all can go on from one.

    What people have answered is stored at once, and a run without a checkpoint takes it up again.
    """
    folder = group.folder
    if group.cell.config.teacher.name == "human" and is_run(folder):
        return True
    return any(True for place in ("", "s*/") for _ in folder.glob(f"{place}checkpoints/*/manifest.json"))


def _check_whole(group: Group) -> None:
    """Refuse to go on with a group that lacks a seed, or what says which seeds it has: only a person can mend that."""
    folder, seeds = group.folder, list(range(group.first, group.first + group.seeds))
    members = [folder / f"s{seed}" for seed in seeds] if group.seeds > 1 else [folder]
    try:
        found = population.members(folder)
    except UserError:
        found = []
    gone = [str(member) for member in members if not is_run(member)]
    if gone:
        what = f"{', '.join(gone)} is no whole run folder while others here have checkpoints; put a backup in its place"
    elif found != members:
        what = f'{folder / "population.json"} is gone or damaged; write {{"seeds": {seeds}}} into it'
    else:
        return
    raise UserError(f"{what}, or move {folder} away, and all of its seeds are trained anew. Nothing was removed")


def written(folder: Path) -> bool:
    """Whether a process writes to a run in the folder."""
    return any(locks.held(path.parent) for path in (folder / locks.LOCK, *folder.glob(f"s*/{locks.LOCK}")))


def _log(group: Group) -> Path:
    return group.folder.with_name(f"{group.folder.name}.log")


def _filming(group: Group) -> Path:
    return group.folder.with_name(f"{group.folder.name}.filming")


def _failed(group: Group) -> Path:
    return group.folder.with_name(f"{group.folder.name}.failed")


def _last_words(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except OSError as error:
        return f"its log cannot be read: {error}"
    return f"the end of {log}:\n" + "\n".join(f"    {line}" for line in lines[-_WORDS:])
