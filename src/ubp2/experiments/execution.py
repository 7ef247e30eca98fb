"""Training the missing seeds of cells in processes of their own: some at once, again after a failure, stopped in order.

Every program is one `ubp2 train`, so that a crash takes nothing else with it, and continues from its checkpoint.
"""

from __future__ import annotations

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

from ubp2.errors import UserError
from ubp2.experiments.cells import Group, short, write_config
from ubp2.experiments.child import PARENT
from ubp2.experiments.clock import LEAST
from ubp2.experiments.group_folders import check_whole, failed, filming, last_words, log_of, resumable, whole, written
from ubp2.experiments.programs import Program, ended, folders, plain, write_file
from ubp2.signals import CHECKPOINTED
from ubp2.storage import population

__all__ = [
    "Outcome",
    "Workers",
    "command",
    "label",
    "program_label",
]

_PATIENCE = 120.0  # seconds; a server of shared folders gives up the locks of a dead machine after about 90


@dataclass(frozen=True)
class Outcome:
    """How a group ended: finished, or stopped on request, or failed with the last words of its log."""

    group: Group
    state: str  # finished, stopped, failed
    attempts: int = 1
    reason: str = ""


def label(group: Group) -> str:
    """A group as a person is told."""
    return _labels([group])


def program_label(programs: Sequence[Program]) -> str:
    """A program as a person is told, or programs of one cell, one after the other."""
    first = programs[0]
    if len(first.groups) > 1:
        return f"program {first.number}: {first.runs} runs of {len(first.groups)} cells"
    return _labels([program.groups[0] for program in programs])


def _labels(groups: Sequence[Group]) -> str:
    first, last = groups[0], groups[-1]
    end = last.first + last.seeds - 1
    many = f"seeds {first.first} to {end}" if end > first.first else f"seed {first.first}"
    each = f" in {len(groups)} programs" if len(groups) > 1 else ""
    return f"{short(first.cell.task)} {first.cell.method}, {many}{each}"


def command(group: Group) -> list[str]:
    """The command that trains a group by itself: a new run, or the one in its folder from its last checkpoint on."""
    if resumable(group):
        return ["train", "--quiet", "--resume", str(group.folder)]
    config = write_config(group.cell)
    seeds = ["--seed", str(group.first), "--seeds", str(group.seeds)]
    return ["train", "--quiet", "--config", str(config), *seeds, "--out", str(group.folder)]


class Workers:
    """Runs programs side by side, `jobs` at a time; `stop` ends all of them with a checkpoint, `kill` without.

    until: when all must have ended, in seconds since the epoch; each process gets what is left of that.
    """

    def __init__(self, jobs: int, retries: int, say: Callable[[str], None], until: float | None = None) -> None:
        self._jobs = jobs
        self._retries = retries
        self._say = say
        self._until = until
        self._stopping = threading.Event()
        self._lock = threading.RLock()  # `stop` is called by signals, too
        self._children: set[subprocess.Popen[bytes]] = set()

    def run(self, programs: Sequence[Program], clips: bool) -> Iterator[Outcome]:
        """Train every program, and film its groups; yields the groups of each as it ends, whatever became of them."""
        with ThreadPoolExecutor(self._jobs) as pool:
            for future in as_completed([pool.submit(self._train, program, clips) for program in programs]):
                yield from future.result()

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

    def _train(self, program: Program, clips: bool) -> list[Outcome]:
        for group in program.groups:
            with suppress(OSError):
                failed(group).unlink()
        done = [Outcome(group, "finished") for group in program.groups if group.finished]
        left = program.only(lambda group: not group.finished)
        outcomes = [*done, *(self._tried(left) if left.groups else [])]
        for outcome in outcomes:
            group = outcome.group
            if outcome.state == "finished" and clips and group.first == 0:
                with suppress(UserError, OSError):  # a full disk does not undo what was learned
                    self._film(group)
            if outcome.state == "failed":
                with suppress(OSError):  # a full disk may be why
                    failed(group).write_text(outcome.reason, encoding="utf-8")
        return outcomes

    def _tried(self, program: Program) -> list[Outcome]:
        """Train to the end, again after failures; what has ended in order is not tried again."""
        done: list[Outcome] = []
        for attempt in range(1, self._retries + 2):
            if self._stopping.is_set() or self._late():
                return done + [Outcome(group, "stopped", attempt - 1) for group in program.groups]
            refused = self._make_room(program, attempt)
            done += refused
            program = _without(program, [each.group for each in refused])
            if not program.groups:
                return done
            try:
                code = self._call(self._words(program), log_of(program))
            except (UserError, OSError) as error:
                return done + [Outcome(group, "failed", attempt, _in_words(error)) for group in program.groups]
            outcomes = [self._outcome(program, group, code, attempt) for group in program.groups]
            again = [outcome.group for outcome in outcomes if outcome.state == "failed"]
            if not again or attempt > self._retries or self._stopping.is_set() or self._late():
                return done + outcomes
            done += [outcome for outcome in outcomes if outcome.group not in again]
            program = program.only(again.__contains__)
            name = program_label([program])
            self._say(f"{name}: ended with code {code}, tried again ({attempt} of {self._retries})")
        raise AssertionError("unreachable")

    def _words(self, program: Program) -> list[str]:
        """The words after `ubp2` that train a program."""
        if len(program.groups) == 1:
            words = command(program.groups[0])
        else:
            file = _settled(program)
            ended(file, forget=True)
            words = ["train", "--quiet", "--population", str(file)]
        if self._until is not None:
            words += ["--minutes", f"{max(self._until - time.time(), 1.0) / 60:.3f}"]
        return words

    def _outcome(self, program: Program, group: Group, code: int, attempt: int) -> Outcome:
        """The outcome of one group of a process that ended with this code."""
        if code == 0:
            return Outcome(group, "finished", attempt)
        told = ended(_settled_file(program)) if len(program.groups) > 1 else {}
        own = [each for folder, each in told.items() if folder.is_relative_to(plain(group.folder))]
        errors = [str(each["error"]) for each in own if each.get("error")]
        if errors:
            return Outcome(group, "failed", attempt, "; ".join(dict.fromkeys(errors)))
        if own and all(each.get("finished") for each in own):
            return Outcome(group, "finished", attempt)
        if own or code == CHECKPOINTED or self._stopping.is_set():
            return Outcome(group, "stopped", attempt)
        return Outcome(group, "failed", attempt, f"code {code}; {last_words(log_of(program))}")

    def _late(self) -> bool:
        """Whether there is too little time left to start anything."""
        return self._until is not None and self._until - time.time() < LEAST

    def _film(self, group: Group) -> None:
        """A clip of what the first seed has learned, beside its run; a machine that cannot render goes without.

        A file says that it is being made, so that the next command knows of one that was interrupted.
        """
        run, mark = population.members(group.folder)[0], filming(group)
        clip, who = run / "clip.mp4", group.cell.controller
        if not clip.exists():
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            if self._late():  # the next command makes it
                return
            told = [] if who == "acting" else ["--controller", who]  # at the end the policy acts, as in ubp2 eval
            self._call(["eval", str(run), "--episodes", "1", *told, "--video", str(clip)], log_of(Program((group,))))
        if clip.exists() or not self._stopping.is_set():
            mark.unlink(missing_ok=True)

    def _make_room(self, program: Program, attempt: int) -> list[Outcome]:
        """Wait for whoever still writes to the folders; remove those whose runs ended before their first checkpoint.

        Where any seed has a checkpoint, or people may have answered, nothing is removed: a seed that is damaged must
        not cost those that are whole. Returns the groups that cannot go on.
        """
        end, refused = time.monotonic() + _PATIENCE, list[Outcome]()
        for group in program.groups:
            if not group.folder.exists():
                continue
            while written(group.folder) and time.monotonic() < end and not self._stopping.wait(0.2):
                pass  # the child of a command that was killed is writing its checkpoint
            if written(group.folder):
                continue
            try:
                if resumable(group):
                    check_whole(group)
                elif not (whole(group) and any(map(resumable, program.groups))):  # a kill in the very first checkpoint
                    shutil.rmtree(group.folder)
            except (UserError, OSError) as error:
                refused.append(Outcome(group, "failed", attempt, _in_words(error)))
        return refused

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


def _without(program: Program, groups: Sequence[Group]) -> Program:
    return program.only(lambda group: group not in groups)


def _in_words(error: UserError | OSError) -> str:
    return str(error) if isinstance(error, UserError) else f"cannot start or write: {error}"


def _settled_file(program: Program) -> Path:
    """The file that the process of a program gets: of a part of it one of its own."""
    try:
        same = set(folders(program.file)) == {plain(group.folder) for group in program.groups}
    except UserError:
        same = False
    return program.file if same else program.file.with_name(f"{program.number}-left.json")


def _settled(program: Program) -> Path:
    """That file, written, with the configurations that it names."""
    for group in program.groups:
        write_config(group.cell)
    file = _settled_file(program)
    if file != program.file:
        write_file(program, file)
    return file
