"""Running a plan: train what is missing on processes or on Ray, show how it goes, stop when asked to, report.

A file named `stop` in the folder of the plan asks for the same as Ctrl-C, from any machine that shares the folder.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ubp2 import signals
from ubp2.errors import UserError
from ubp2.experiments.board import Board
from ubp2.experiments.cells import Group
from ubp2.experiments.execution import Outcome, Workers, label
from ubp2.experiments.group_folders import cut_off
from ubp2.experiments.on_ray import RayWorkers
from ubp2.experiments.plans import How, Plan, refreshed
from ubp2.experiments.programs import Program, write
from ubp2.signals import CHECKPOINTED
from ubp2.storage import locks
from ubp2.storage.database import disk_errors
from ubp2.terminal.progress import Progress

if TYPE_CHECKING:  # numpy takes long to import, and a plan needs none of it
    from ubp2.evaluation.results import Results

__all__ = ["STOP", "Answer", "Summary", "answer", "run", "stopped_by_file"]

Answer = tuple[dict[str, Any], str, int]  # data, text, exit code: what a command answers
Say = Callable[[str], None]

STOP = "stop"
_AT_ONCE = 2.0  # seconds in which several signals are one request
_EVERY = 2.0  # seconds between two looks at the folders
_BUSY = 4  # groups that the line of the progress names


@dataclass(frozen=True)
class Summary:
    """What became of a plan."""

    plan: Plan
    outcomes: list[Outcome]
    pages: list[Path]  # of the report; a second one where tasks have different scores
    minutes: float | None = None  # that the command had, if nobody asked it to stop before

    def groups_in(self, state: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.state == state]


@contextlib.contextmanager
def only_one(out: Path) -> Iterator[None]:
    """Make the folder of a plan, and keep others from running the same one."""
    with disk_errors(out, None):
        out.mkdir(parents=True, exist_ok=True)
        lock = locks.take(out, what="the folder")
    try:
        yield
    finally:
        os.close(lock)


def run(made: Plan, how: How, say: Say, *, train: bool = True) -> Summary:
    """Train what is missing, film what was cut off, and report; the caller holds the folder (`only_one`)."""
    (made.out / STOP).unlink(missing_ok=True)
    left = [program.only(lambda group: _wanted(group, how)) for program in made.programs]
    left = [program for program in left if program.groups]
    if train and left:
        write(made.programs)
    before = signals.number_heard()
    outcomes = _execute(made, how, left) if train and left else []
    asked = signals.number_heard() > before or (made.out / STOP).exists()
    pages = _report(refreshed(made), outcomes, say)
    return Summary(made, outcomes, pages, how.clock.minutes if how.clock and not asked else None)


def _wanted(group: Group, how: How) -> bool:
    return not group.finished or (how.clips and cut_off(group))


def _runs(made: Plan) -> int:
    return sum(program.runs for program in made.programs)


def _execute(made: Plan, how: How, left: Sequence[Program]) -> list[Outcome]:
    """Train the programs that are left; Ctrl-C, SIGTERM, the file or the clock let every run write a checkpoint."""
    groups = [group for program in left for group in program.groups]
    total = sum(group.cell.config.steps for group in groups)
    board = Board(groups)
    start = sum(group.decision for group in groups)
    with Progress(total, quiet=how.quiet, start=start, above=board.drawn) as progress:
        workers = _workers(made, how, progress.note)

        def look() -> None:
            if how.clock is not None and how.clock.over(_runs(made)):
                workers.stop()
            rows = board.refresh()
            busy = [label(row.group) for row in rows if row.state == "running"]
            shown = "; ".join(busy[:_BUSY]) + (f" and {len(busy) - _BUSY} more" if len(busy) > _BUSY else "")
            progress.update(sum(row.decision for row in rows), phase=shown or "between runs")

        with (
            contextlib.closing(workers),
            signals.heard(on_signal(workers)),
            stopped_by_file(made.out, workers.stop, look),
        ):
            outcomes = []
            for outcome in workers.run(left, clips=how.clips):
                outcomes.append(outcome)
                done = sum(each.state == "finished" for each in outcomes)  # a program that was stopped is still to do
                progress.note(f"[{done}/{len(groups)}] {label(outcome.group)}: {outcome.state}")
                if outcome.reason:
                    progress.note(f"  {outcome.reason}")
    return outcomes


def on_signal(workers: Workers | RayWorkers) -> Callable[[int], None]:
    """What signals do: the first lets every run write a checkpoint, a later one ends them at once.

    Two at once are one request: Ctrl-C may come from the terminal and from whoever started this command.
    """
    first: list[float] = []

    def hear(_: int) -> None:
        first.append(time.monotonic())
        if first[-1] - first[0] > _AT_ONCE:
            workers.kill()
        else:
            workers.stop()

    return hear


def _workers(made: Plan, how: How, say: Say) -> Workers | RayWorkers:
    """Who trains: processes here, or tasks of a Ray cluster."""
    until = None if how.clock is None else how.clock.until(_runs(made))
    if how.on == "ray":
        return RayWorkers(how.tries_again, say, how.address, made.needs, until)
    return Workers(how.jobs or 1, how.tries_again, say, until)


@contextlib.contextmanager
def stopped_by_file(out: Path, stop: Callable[[], None], look: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Call `look` every two seconds, and `stop` once, as soon as the folder has the file that asks for it."""
    done = threading.Event()

    def watch() -> None:
        asked = False
        while not done.wait(_EVERY):
            with contextlib.suppress(OSError):  # a folder that is just removed, a server of files that does not answer
                if not asked and (out / STOP).exists():
                    asked = True
                    stop()
                look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _report(made: Plan, outcomes: Sequence[Outcome], say: Say) -> list[Path]:
    """The pages of what there is, one for each kind of score; none before the first evaluation."""
    from ubp2.evaluation.results import read_apart

    begun = {group.folder: group.cell.method for group in made.groups if group.folder.is_dir()}
    titles = {method.name: method.title for method in made.methods}
    problems = [f"{label(outcome.group)} {outcome.state}: {outcome.reason}" for outcome in outcomes if outcome.reason]
    pages: list[Path] = []
    try:
        found = read_apart(
            list(begun),
            controller=made.experiment.controller,
            names={folder: titles[method] for folder, method in begun.items()},
            vary=made.experiment.vary,
        )
        if not found:
            say("no run has been evaluated yet, so there is no report")
        for metric in found:
            pages.append(_page(made, titles, found, metric, problems))
    except UserError as error:  # hours of training are not to end as a mistake in a command
        say(f"there is no report: {error}")
    return pages


def _page(
    made: Plan, titles: Mapping[str, str], found: Mapping[str, Results], metric: str, problems: Sequence[str]
) -> Path:
    """One kind of score: in report/, or in report-return/ where others have a success."""
    from ubp2.evaluation import report

    own = made.experiment
    places = dict(zip(found, ("report", "report-return"), strict=False))
    elsewhere = [
        f"Tasks that are scored by {kind} are in {place}/." for kind, place in places.items() if kind != metric
    ]
    others = {one.task for kind, results in found.items() for one in results.series if kind != metric}
    wanted = {
        (cell.task, titles[cell.method]): frozenset(range(cell.seeds)) for cell in made.cells if cell.task not in others
    }
    return report.write(
        replace(found[metric], wanted=wanted),
        made.out / places[metric],
        title=f"{own.title} ({own.place})" if own.place else own.title,
        published={titles[name]: row for name, row in own.published.items() if name in titles},
        columns=own.columns,
        order=list(titles.values()),
        notes=[note for note in (own.note, *elsewhere, *problems) if note],
        bars=own.name.startswith("fig-"),
        commands=[f"ubp2 {shlex.join(sys.argv[1:])}"] if sys.argv[1:2] in (["reproduce"], ["sweep"]) else [],
    )


def told(pages: Sequence[Path]) -> list[str]:
    """The lines that say where a report is."""
    return [f"report: {page}" for page in pages]


def reports(pages: Sequence[Path]) -> dict[str, Any]:
    """The same for --json: the first page, and all."""
    return {"report": pages[0] if pages else None, "reports": list(pages)}


def answer(summary: Summary, again: str) -> Answer:
    """What a command says at the end; `again`: how one goes on."""
    lines = told(summary.pages)
    failed, stopped = summary.groups_in("failed"), summary.groups_in("stopped")
    if failed:
        lines.append(f"{len(failed)} of {len(summary.outcomes)} failed; {again} tries them again")
    if stopped and summary.minutes is not None:
        lines.append(f"the time ({summary.minutes:g} min) is over; {again} goes on")
    elif stopped:
        lines.append(f"stopped; {again} goes on")
    return as_data(summary), "\n".join(lines), CHECKPOINTED if stopped else int(bool(failed))


def as_data(summary: Summary) -> dict[str, Any]:
    """For --json."""
    made = summary.plan
    ended = {outcome.group.folder: outcome for outcome in summary.outcomes}

    def state(group: Group) -> str:
        return ended[group.folder].state if group.folder in ended else "finished" if group.finished else "to do"

    def one(program: Program, group: Group) -> Mapping[str, Any]:
        needs, cost = made.needs(program), costs_of[program.number]
        return {
            "task": group.cell.task,
            "method": group.cell.method,
            "seeds": list(range(group.first, group.first + group.seeds)),
            "folder": group.folder,
            "program": program.number,
            "state": state(group),
            "reason": ended[group.folder].reason if group.folder in ended else "",
            "decisions_left": group.seeds * max(group.cell.config.steps - group.decision, 0),
            "seconds_estimated": cost.seconds,
            "cpus": needs.cpus,
            "gpus": needs.gpus,
        }

    costs_of = dict(zip((program.number for program in made.programs), made.costs, strict=True))
    place = {group.folder: program for program in made.programs for group in program.groups}
    listed = [one(place[group.folder], group) for group in made.groups]
    return {"experiment": made.experiment.name, "out": made.out, "groups": listed, **reports(summary.pages)}
