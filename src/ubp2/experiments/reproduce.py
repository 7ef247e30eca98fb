"""`ubp2 reproduce`: plan the cells of an experiment, say what they cost, run what is missing, write the report.

The folder is the only state. A cell that is finished is skipped, one that was cut off goes on from its checkpoint, one
that fails is tried again and then reported; the same command continues whatever was interrupted.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ubp2 import locks, signals
from ubp2.configs import EnvironmentConfig
from ubp2.database import disk_errors
from ubp2.errors import UserError
from ubp2.experiments import costs
from ubp2.experiments.catalogue import ALIASES, EXPERIMENTS, Experiment, Method, chosen_methods, chosen_tasks, find
from ubp2.experiments.cells import Cell, Group, cells, folder_of, groups, short
from ubp2.experiments.execution import Outcome, Workers, decision, label
from ubp2.experiments.on_ray import RayWorkers
from ubp2.experiments.options import Reproduce, settings
from ubp2.progress import Progress

__all__ = ["Plan", "Summary", "listing", "plan", "run"]


@dataclass(frozen=True)
class Plan:
    """Everything that is to be done, and where."""

    experiment: Experiment
    methods: tuple[Method, ...]
    cells: list[Cell]
    groups: list[Group]
    costs: list[costs.Cost]
    out: Path

    @property
    def missing(self) -> list[Group]:
        return [group for group in self.groups if not group.finished]


@dataclass(frozen=True)
class Summary:
    """What became of it."""

    plan: Plan
    outcomes: list[Outcome]
    page: Path | None

    def groups_in(self, state: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.state == state]


def listing() -> dict[str, dict[str, Any]]:
    """The experiments that there are."""
    names = {target: alias for alias, target in ALIASES.items()}
    return {
        name: {
            "title": each.title,
            "place": each.place,
            "also": names.get(name),
            "tasks": [short(task) for task in each.tasks],
            "methods": [method.name for method in each.methods],
        }
        for name, each in EXPERIMENTS.items()
    }


def plan(args: Reproduce) -> Plan:
    """The cells with their configurations, checked, and what is there of them."""
    for name in ("jobs", "together"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise UserError(f"--{name} must be at least 1, got {getattr(args, name)}")
    if args.retries < 0:
        raise UserError(f"--retries must not be negative, got {args.retries}")
    experiment = find(args.experiment or "")
    tasks, methods = chosen_tasks(experiment, args.tasks), chosen_methods(experiment, args.methods)
    changes = settings(args.set)
    lengths = {task: _episode_decisions(task) for task in tasks}
    shape = {"preset": args.preset, "steps": args.steps, "seeds": args.seeds, "settings": changes}
    made = cells(experiment, tasks, methods, **shape, episode_decisions=lengths, out=Path())
    out = args.out or folder_of(experiment, args.preset, made[0].config.steps, changes)
    made = [replace(cell, folder=out / cell.folder) for cell in made]
    together = args.together or (1 if costs.device_kind() == "cpu" else None)
    found = [group for cell in made for group in groups(cell, together)]
    seen = costs.rates_seen(found)
    price = [costs.estimate(group, args.preset, lengths[group.cell.task], seen) for group in found]
    return Plan(experiment, methods, made, found, price, out)


def _episode_decisions(task: str) -> int:
    """Length of an episode, from the environment itself: a task that does not exist is told here."""
    from ubp2.envs.registry import make

    try:
        env = make(task, EnvironmentConfig(in_process=True))
    except UserError as error:
        if task.startswith("dmc-visual/"):
            raise UserError(
                f"{task}: this version has no visual environments yet; the same tasks from the state of the simulator "
                f"run with --tasks {task.replace('-visual', '')}"
            ) from None
        raise error
    env.close()
    return env.spec.episode_decisions


def run(args: Reproduce, say: Callable[[str], None]) -> Summary:
    """Everything: plan, train what is missing, report."""
    made = plan(args)
    say(describe(made))
    if args.dry_run:
        return Summary(made, [], None)
    with disk_errors(made.out, None):
        made.out.mkdir(parents=True, exist_ok=True)
        lock = locks.take(made.out)
    try:
        outcomes = [] if args.report_only else _execute(args, made, say)
        return Summary(made, outcomes, _report(plan(args), args, outcomes, say))
    finally:
        os.close(lock)


def _execute(args: Reproduce, made: Plan, say: Callable[[str], None]) -> list[Outcome]:
    """Train the missing groups; Ctrl-C or SIGTERM let every run write a checkpoint."""
    missing = made.missing
    if not missing:
        return []
    total = sum(group.cell.config.steps for group in missing)
    with Progress(total, quiet=args.json, start=sum(group.decision for group in missing)) as progress:
        workers = _workers(args, progress.note)
        with contextlib.closing(workers), signals.heard(lambda _: workers.stop()), _watched(missing, progress):
            outcomes = []
            for outcome in workers.run(missing, clips=not args.no_clips):
                outcomes.append(outcome)
                progress.note(f"[{len(outcomes)}/{len(missing)}] {label(outcome.group)}: {outcome.state}")
                if outcome.reason:
                    progress.note(f"  {outcome.reason}")
    return outcomes


def _workers(args: Reproduce, say: Callable[[str], None]) -> Workers | RayWorkers:
    """Who trains: processes here, or tasks of a Ray cluster."""
    if args.on == "ray":
        return RayWorkers(args.retries, say, args.address)
    return Workers(args.jobs, args.retries, say)


class _watched:
    """Shows how far all groups have come, by their metrics, while they train in processes of their own."""

    EVERY = 2.0  # seconds

    def __init__(self, missing: Sequence[Group], progress: Progress) -> None:
        self._missing = missing
        self._progress = progress
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self.EVERY):
            come = [decision(group) for group in self._missing]
            busy = [
                label(group)
                for group, at in zip(self._missing, come, strict=True)
                if group.decision < at < group.cell.config.steps
            ]
            self._progress.update(sum(come), phase="; ".join(busy) or "between runs")


def describe(made: Plan) -> str:
    """The plan as a person reads it: what is there, what is left, what it costs."""
    own = made.experiment
    lines = [f"{own.title} ({own.place}): {len(made.cells)} cells in {made.out}"]
    width = max(len(label(group)) for group in made.groups)
    for group, cost in zip(made.groups, made.costs, strict=True):
        steps = group.cell.config.steps
        state = "finished" if group.finished else f"at {group.decision:,} of {steps:,}" if group.decision else "to do"
        time = "" if group.finished or cost.seconds is None else f"  about {costs.duration(cost.seconds)}"
        lines.append(f"  {label(group):{width}}  {state}{time}")
    left = [cost for group, cost in zip(made.groups, made.costs, strict=True) if not group.finished]
    if not left:
        return "\n".join([*lines, "nothing is missing"])
    seconds = [cost.seconds for cost in left if cost.seconds is not None]
    total = (
        f"about {costs.duration(sum(seconds))} one after the other"
        + (" and more, since not every rate is known" if len(seconds) < len(left) else "")
        if seconds
        else "for a time that nobody has measured on such a machine with this preset"
    )
    basis = (
        "as seen here"
        if all(cost.measured for cost in left)
        else "by rates measured on one machine (docs/reproduce.md)"
    )
    lines.append(
        f"left: {sum(cost.decisions for cost in left):,} decisions, {sum(cost.labels for cost in left):,} labels, "
        f"{sum(cost.megabytes for cost in left):,.0f} MB, {total}" + (f", {basis}" if seconds else "")
    )
    return "\n".join(lines)


def _report(made: Plan, args: Reproduce, outcomes: Sequence[Outcome], say: Callable[[str], None]) -> Path | None:
    """The page of what there is; None before the first evaluation."""
    from ubp2.evaluation import report
    from ubp2.evaluation.results import read_runs

    begun = {group.folder: group.cell.method for group in made.groups if group.decision}
    if not begun:
        say("no run has been evaluated yet, so there is no report")
        return None
    titles = {method.name: method.title for method in made.methods}
    results = read_runs(
        list(begun),
        controller=made.experiment.controller,
        names={p: titles[m] for p, m in begun.items()},
        vary=made.experiment.vary,
    )
    wanted = {(cell.task, titles[cell.method]): frozenset(range(cell.seeds)) for cell in made.cells}
    published = {titles[name]: row for name, row in made.experiment.published.items() if name in titles}
    problems = [f"{label(outcome.group)} {outcome.state}: {outcome.reason}" for outcome in outcomes if outcome.reason]
    return report.write(
        replace(results, wanted=wanted),
        made.out / "report",
        title=f"{made.experiment.title} ({made.experiment.place})",
        published=published,
        columns=made.experiment.columns,
        order=list(titles.values()),
        notes=[note for note in (made.experiment.note, *problems) if note],
        bars=made.experiment.name.startswith("fig-"),
        commands=[f"ubp2 {shlex.join(sys.argv[1:])}"] if sys.argv[1:2] == ["reproduce"] else [],
    )


def as_data(summary: Summary) -> dict[str, Any]:
    """For --json."""
    made = summary.plan
    ended = {outcome.group.folder: outcome for outcome in summary.outcomes}

    def state(group: Group) -> str:
        return ended[group.folder].state if group.folder in ended else "finished" if group.finished else "to do"

    def one(group: Group, cost: costs.Cost) -> Mapping[str, Any]:
        return {
            "task": group.cell.task,
            "method": group.cell.method,
            "seeds": list(range(group.first, group.first + group.seeds)),
            "folder": group.folder,
            "state": state(group),
            "decisions_left": cost.decisions,
            "seconds_estimated": cost.seconds,
        }

    listed = [one(group, cost) for group, cost in zip(made.groups, made.costs, strict=True)]
    return {"experiment": made.experiment.name, "out": made.out, "groups": listed, "report": summary.page}
