"""What an evaluation of runs works on: one series of scores for each seed of each method on each task.

Series come from run folders (`read_runs`) or from files of other people (`ubp2.evaluation.imports`). A run that cannot
be read is told in one sentence and left out; runs that may not be compared are refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.evaluation import protocol
from ubp2.evaluation.curves import Curve, RunCurves
from ubp2.storage import population
from ubp2.storage.runs import Run, read_metrics

__all__ = ["Controller", "Results", "Series", "checked", "read_apart", "read_runs"]

Controller = Literal["acting", "planner", "policy"]
_LEFT_OPEN = ("environment.action_repeat", "environment.episode_decisions")  # null: as the environment has it
_SEED = re.compile(r"s\d+")  # the run folder of one of several seeds
_SCORES = (("success_any", "success"), ("return", "return"))  # in a row of metrics, and as a series calls it


@dataclass(frozen=True, eq=False)
class Series:
    """The evaluations of one seed of one method on one task."""

    task: str
    """Environment id."""
    method: str
    """Name of the method, as in tables and figures."""
    seed: int
    """Seed of the run."""
    decision: np.ndarray
    """[T]: decisions made at each evaluation, increasing."""
    score: np.ndarray
    """[T]: what `metric` says."""
    labels: np.ndarray
    """[T]: labels used up to then; NaN: not known."""
    metric: str = "success"
    """success, in [0, 1], or return."""
    steps: int = 0
    """Decisions that the run was to have."""
    protocol: Mapping[str, Any] = field(default_factory=dict)
    """Settings that runs in one figure must share."""
    folder: Path | None = None
    """The run folder; None: imported from a file."""

    @property
    def finished(self) -> bool:
        """Whether the last evaluation is the one at the end of the run."""
        return bool(self.decision[-1] >= self.steps)


@dataclass(frozen=True, eq=False)
class Results:
    """All series of a report, and what is not there."""

    series: tuple[Series, ...]
    """What was read, one for each seed of each method on each task."""
    problems: tuple[str, ...] = ()
    """What could not be read, one sentence each."""
    wanted: Mapping[tuple[str, str], frozenset[int]] = field(default_factory=dict)
    """Seeds that should be there, by (task, method)."""

    def tasks(self) -> list[str]:
        """Tasks in the order in which they came."""
        return list(dict.fromkeys([one.task for one in self.series] + [task for task, _ in self.wanted]))

    def methods(self) -> list[str]:
        """Methods in the order in which they came."""
        return list(dict.fromkeys([one.method for one in self.series] + [method for _, method in self.wanted]))

    def of(self, task: str, method: str) -> list[Series]:
        """The seeds of one method on one task."""
        return sorted((s for s in self.series if (s.task, s.method) == (task, method)), key=lambda s: s.seed)

    def missing(self, task: str, method: str) -> list[int]:
        """Seeds that were to be there and are not."""
        return sorted(self.wanted.get((task, method), frozenset()) - {one.seed for one in self.of(task, method)})


class _Read(NamedTuple):
    folder: Path
    config: Config
    series: Series
    siblings: frozenset[int]  # seeds of its own task and method in its population


def read_runs(
    folders: Iterable[Path | str],
    *,
    controller: Controller = "acting",
    names: Mapping[Path, str] | None = None,
    vary: Collection[str] = (),
    metric: str | None = None,
) -> Results:
    """Read run folders, populations, and folders that hold such.

    Args:
        folders: The folders.
        controller: Whose scores: planner, policy, or acting, which is what the agent acts with itself (its planner
            while labels are left, then its policy).
        names: What a method is called, by its folder or one that it lies in; otherwise a method is named after its
            agent and the settings that tell methods apart.
        vary: Settings of the protocol that may differ.
        metric: success or return; None: success where there is one, else the return.
    """
    return checked(_read_all(folders, controller, names or {}, vary, metric), vary)


def read_apart(
    folders: Iterable[Path | str],
    *,
    controller: Controller = "acting",
    names: Mapping[Path, str] | None = None,
    vary: Collection[str] = (),
) -> dict[str, Results]:
    """What `read_runs` reads by the metric of its tasks, success first: no table is over both."""
    whole = _read_all(folders, controller, names or {}, vary, None)
    metrics: dict[str, str] = {}
    for one in whole.series:
        metrics.setdefault(one.task, one.metric)

    def only(metric: str) -> Results:
        series = tuple(one for one in whole.series if metrics[one.task] == metric)
        wanted = {key: seeds for key, seeds in whole.wanted.items() if metrics[key[0]] == metric}
        return checked(replace(whole, series=series, wanted=wanted), vary)

    return {metric: only(metric) for _, metric in _SCORES if metric in metrics.values()}


def _read_all(
    folders: Iterable[Path | str],
    controller: Controller,
    names: Mapping[Path, str],
    vary: Collection[str],
    metric: str | None,
) -> Results:
    """Everything that can be read, not yet held against each other."""
    protocol.check_vary(vary)
    problems: list[str] = []
    read: dict[Path, _Read] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}; check the path")
        before = len(problems)
        found = list(_runs_in(folder, problems))
        if not found and len(problems) == before:
            problems.append(f"{folder} holds no run")
        for path, siblings in found:
            if path.resolve() not in read:
                try:
                    read[path.resolve()] = _read(path, controller, siblings, metric)
                except (UserError, OSError) as error:
                    problems.append(str(error))
    runs = _named(list(read.values()), names, vary)
    wanted: dict[tuple[str, str], frozenset[int]] = defaultdict(frozenset)
    for run in runs:
        wanted[run.series.task, run.series.method] |= run.siblings | {run.series.seed}
    return Results(tuple(run.series for run in runs), tuple(dict.fromkeys(problems)), dict(wanted))


def checked(results: Results, vary: Collection[str] = ()) -> Results:
    """Refuse results of different protocols; of a seed that is there several times, keep one and say which.

    That is a finished one, else the longest, else the first: an attempt that was given up must not stand for a run.
    """
    seen: dict[tuple[str, str, int], list[Series]] = defaultdict(list)
    for one in results.series:
        seen[one.task, one.method, one.seed].append(one)
    kept = [max(own, key=lambda one: (one.finished, one.decision[-1])) for own in seen.values()]
    problems = list(results.problems)
    for best, own in zip(kept, seen.values(), strict=True):
        problems += [
            f"seed {best.seed} of {best.method} on {best.task} is there {_times(len(own))}; {_where(best)} counts and "
            f"{_where(one)}{'' if one.finished else f' (at {one.decision[-1]:,} of {one.steps:,})'} does not"
            for one in own
            if one is not best
        ]
    series = tuple(_told(kept))
    protocol.check([protocol.Bound(one.task, _where(one), one.protocol) for one in series], vary)
    return replace(results, series=series, problems=tuple(problems))


def _told(series: Sequence[Series]) -> Iterator[Series]:
    """The series; where one leaves to the environment what another names, with what its environment had.

    A run that has no checkpoint any more does not tell, and stays as it is.
    """
    for one in series:
        changed = {}
        for setting in _LEFT_OPEN:
            own = [other.protocol.get(setting) for other in series if other.task == one.task]
            if one.protocol.get(setting, "") is None and any(own):
                changed[setting] = _environment(one).get(setting.rpartition(".")[2])
        yield replace(one, protocol={**one.protocol, **changed}) if changed else one


def _environment(series: Series) -> Mapping[str, Any]:
    """What a checkpoint of the run says of its environment; nothing where there is none."""
    for path in (series.folder or Path("nowhere")).glob("checkpoints/*/manifest.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return dict(json.loads(path.read_text(encoding="utf-8"))["meta"]["environment"])
    return {}


def _times(number: int) -> str:
    return "twice" if number == 2 else f"{number} times"


def _where(series: Series) -> str:
    return f"the imported {series.method}" if series.folder is None else str(series.folder)


def _runs_in(folder: Path, problems: list[str]) -> Iterator[tuple[Path, frozenset[int]]]:
    """Run folders at and below `folder`, whole or broken, with the seeds that its population has beside each.

    A folder that cannot be read, such as somebody else's, is told among `problems`; the runs beside it are found.
    """
    try:
        found, below = _look(folder)
    except OSError as error:
        problems.append(f"cannot read {folder}: {error.strerror}")
        return
    yield from found
    for path in below:
        yield from _runs_in(path, problems)


def _look(folder: Path) -> tuple[list[tuple[Path, frozenset[int]]], list[Path]]:
    """The runs that a folder is, or the folders in which there may be some."""
    if population.is_population(folder):
        try:
            members = population.members(folder)
        except UserError:
            members = sorted(path for path in folder.rglob("s*") if _SEED.fullmatch(path.name) and path.is_dir())
        beside: dict[Path, set[int]] = defaultdict(set)  # seeds of one task and method lie in one folder
        for path in members:
            if _SEED.fullmatch(path.name):
                beside[path.parent].add(int(path.name[1:]))
        return [(path, frozenset(beside[path.parent])) for path in members], []
    if any((folder / name).is_file() for name in ("config.yaml", "metrics.jsonl")):
        return [(folder, frozenset())], []
    return [], sorted(path for path in folder.iterdir() if path.name[0] != "." and os.path.isdir(path))


def _read(folder: Path, controller: Controller, siblings: frozenset[int], wanted: str | None) -> _Read:
    run = Run.open(folder)
    config = run.config
    rows = RunCurves(config.env, config.agent, config.seed, config.preferences.budget, read_metrics(folder))
    used = rows.curve("labels/used")
    asked = rows.curve("labels/asked")
    for name, metric in _SCORES:
        curves = {who: rows.curve(f"{who}/{name}") for who in ("planner", "policy")}
        curve = _by(controller, curves, asked, used, config)
        if curve.decision.size and wanted in (None, metric):
            labels = _labels(used, curve.decision)
            scores = (curve.decision.astype(int), curve.value, labels)
            bound = protocol.protocol_of(config, run.info(), metric)
            of = Series(config.env, config.agent, config.seed, *scores, metric, config.steps, bound, folder)
            return _Read(folder, config, of, siblings)
    of = "" if controller == "acting" else f" of its {controller}"
    raise UserError(f"{folder} has no evaluation{of} yet")


def _by(controller: Controller, curves: Mapping[str, Curve], asked: Curve, used: Curve, config: Config) -> Curve:
    """The scores of a controller; of what acts, the planner's while there is something to ask, then the policy's.

    What has been asked is what training goes by. Labels used are less where answers are skipped or undone, and more
    where some came from files; they are all that runs of earlier versions tell.
    """
    if controller != "acting":
        return curves[controller]
    evaluated = [who for who, curve in curves.items() if curve.decision.size]
    if len(evaluated) < 2:
        return curves[evaluated[0]] if evaluated else curves["policy"]
    planner, policy = curves["planner"], curves["policy"]
    if config.ceiling or config.preferences.budget is None:
        return planner
    told = dict(zip(asked.decision, asked.value, strict=True))
    acting = {
        who: np.array([told.get(d, n) for d, n in zip(own.decision, _labels(used, own.decision), strict=True)])
        < config.preferences.budget
        for who, own in (("planner", planner), ("policy", policy))
    }
    plans, reacts = acting["planner"], ~acting["policy"]
    decision = np.concatenate([planner.decision[plans], policy.decision[reacts]])
    value = np.concatenate([planner.value[plans], policy.value[reacts]])
    order = np.argsort(decision)  # answers that are undone bring the planner back
    return Curve(decision[order], value[order])


def _labels(used: Curve, decision: np.ndarray) -> np.ndarray:
    """Labels used at each decision: what the last row up to it says."""
    at = np.searchsorted(used.decision, decision, side="right")
    return np.concatenate([[0.0], used.value])[at]


def _named(runs: Sequence[_Read], names: Mapping[Path, str], vary: Collection[str]) -> list[_Read]:
    """The runs with their methods' names; those that share a name given to them must share their settings."""
    given = {path.resolve(): name for path, name in names.items()}
    told = [_given(run.folder, given) for run in runs]
    made = iter(protocol.method_names([run.config for run, name in zip(runs, told, strict=True) if not name], vary))
    named = [
        run._replace(series=replace(run.series, method=name or next(made)))
        for run, name in zip(runs, told, strict=True)
    ]
    first: dict[tuple[str, str], _Read] = {}
    for run in named:
        other = first.setdefault((run.series.task, run.series.method), run)
        protocol.same_method((other.folder, other.config), (run.folder, run.config), run.series.method)
    return named


def _given(folder: Path, names: Mapping[Path, str]) -> str | None:
    """The name given to a folder, or to the nearest that it lies in."""
    path = folder.resolve()
    return next((names[place] for place in (path, *path.parents) if place in names), None)
