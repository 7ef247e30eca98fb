"""Two sets of runs side by side: the difference on each task, how sure it is, and how often one beats the other."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ubp2.errors import UserError
from ubp2.evaluation import statistics
from ubp2.evaluation.grids import GAP, Cell, Grid, Row
from ubp2.evaluation.measures import count, unfinished
from ubp2.evaluation.protocol import differences, shown
from ubp2.evaluation.results import Controller, Results, Series, checked
from ubp2.evaluation.scores import align, titles
from ubp2.evaluation.sources import Source, gather
from ubp2.evaluation.statistics import ENOUGH, Wilcoxon
from ubp2.storage.runs import Run

__all__ = ["Comparison", "Duel", "as_data", "as_grid", "compare"]


class Duel(NamedTuple):
    """A against B on one task, or over all."""

    task: str | None  # None: the mean over tasks
    values: tuple[float, float]  # NaN, and the difference too: returns, over tasks with a scale each
    seeds: tuple[int, int]
    decisions: int
    difference: float
    interval: tuple[float, float]
    improvement: float  # probability that a run of A is better than one of B
    improvement_interval: tuple[float, float]
    test: Wilcoxon | None


@dataclass(frozen=True)
class Comparison:
    """Two sets, task by task."""

    names: tuple[str, str]
    metric: str
    duels: tuple[Duel, ...]
    problems: tuple[str, ...]
    settings: Mapping[str, tuple[Any, Any]]  # in which the two differ, where both are runs


def compare(
    first: Sequence[Source], second: Sequence[Source], *, controller: Controller = "acting", vary: Collection[str] = ()
) -> Comparison:
    """Compare two sets, each of one method; protocols must agree as in a report."""
    sides = [gather(own, controller=controller, vary=vary) for own in (first, second)]
    for side, own in zip(sides, (first, second), strict=True):
        if not side.series:
            told = "; ".join(side.problems) or "nothing was named"
            raise UserError(f"nothing can be compared in {_paths(own)}: {told}")
        if len(side.methods()) > 1:
            raise UserError(
                f"{_paths(own)} holds several methods: {'; '.join(side.methods())}. Name the runs of one on each side: "
                f"ubp2 compare A ... --with B ..."
            )
    names = _names(sides, (first, second))
    series = [tuple(replace(one, method=name) for one in side.series) for side, name in zip(sides, names, strict=True)]
    both = checked(Results((*series[0], *series[1]), (*sides[0].problems, *sides[1].problems)), vary)
    duels, problems = _duels(both, names)
    metric = both.series[0].metric
    return Comparison(names, metric, tuple(duels), (*both.problems, *problems), _settings(series[0], series[1]))


def _paths(sources: Sequence[Source]) -> str:
    return ", ".join(str(source.path) for source in sources)


def _names(sides: Sequence[Results], sources: Sequence[Sequence[Source]]) -> tuple[str, str]:
    """The methods of the two sides; where they are called the same, the paths as well."""
    a, b = (side.methods()[0] for side in sides)
    if a != b:
        return a, b
    first, second = (_paths(own) for own in sources)
    if first == second:
        raise UserError(f"both sides are {first}; name another folder or file to compare it with")
    return f"{a} ({first})", f"{b} ({second})"


def _settings(first: Sequence[Series], second: Sequence[Series]) -> dict[str, tuple[Any, Any]]:
    """Settings of the method in which the first runs of a common task differ."""
    for a in first:
        for b in second:
            if a.folder and b.folder and a.task == b.task:
                return differences(Run.open(a.folder).config, Run.open(b.folder).config)
    return {}


def _duels(results: Results, names: tuple[str, str]) -> tuple[list[Duel], list[str]]:
    """A row a task that both have, and one over all of them; sentences on the others."""
    duels, problems, groups = [], [], []
    scale = 100.0 if results.series[0].metric == "success" else 1.0
    rest = "compared up to what both sides have"
    for task in results.tasks():
        aligned = align(results, task)
        lacking = [name for name in names if name not in aligned.curves]
        if lacking or not aligned.decision.size:
            why = f"{lacking[0]} has no run on it" if lacking else "there is no evaluation at a common decision"
            problems.append(f"{task} is not compared: {why}")
            continue
        problems += [said for name in names if (said := unfinished(results.of(task, name), task, name, rest))]
        curves = [aligned.curves[name] * scale for name in names]
        both = sorted(set(aligned.seeds[names[0]]) & set(aligned.seeds[names[1]]))
        paired = [
            own[[aligned.seeds[name].index(seed) for seed in both]].mean(axis=1)
            for own, name in zip(curves, names, strict=True)
        ]
        groups.append(curves)
        test = statistics.wilcoxon(*paired, alternative="two-sided")
        duels.append(_duel(task, [curves], int(aligned.decision[-1]), test))
    if not duels:
        raise UserError(f"nothing can be compared: {'; '.join(problems)}")
    if len(duels) > 1:
        over_all = _duel(None, groups, 0, None)
        if scale == 1:  # returns: who is better on each task can be averaged, by how much cannot
            over_all = over_all._replace(values=(math.nan,) * 2, difference=math.nan, interval=(math.nan,) * 2)
        duels.append(over_all)
    return duels, problems


def _duel(task: str | None, groups: list[list[np.ndarray]], decisions: int, test: Wilcoxon | None) -> Duel:
    """One row from the curves of (A, B) on each of its tasks; seeds are drawn again within each side and task."""
    tasks = len(groups)
    flat = [own[side] for side in (0, 1) for own in groups]

    def means(drawn: Sequence[np.ndarray]) -> np.ndarray:
        values = [statistics.over_time(group) for group in drawn]
        return np.array([np.mean(values[:tasks]), np.mean(values[tasks:])])

    def gap(drawn: Sequence[np.ndarray]) -> float:
        a, b = means(drawn)
        return float(a - b)

    def better(drawn: Sequence[np.ndarray]) -> float:
        return statistics.probability_of_improvement(drawn[:tasks], drawn[tasks:])

    runs = [group.mean(axis=1) for group in flat]
    a, b = means(flat)
    return Duel(
        task,
        (float(a), float(b)),
        (sum(map(len, flat[:tasks])), sum(map(len, flat[tasks:]))),
        decisions,
        float(a - b),
        statistics.interval(flat, gap),
        better(runs),
        statistics.interval(runs, better),
        test,
    )


def as_grid(comparison: Comparison) -> Grid:
    """The table of a comparison."""
    names = titles([duel.task for duel in comparison.duels if duel.task])
    a, b = comparison.names
    rows = []
    for duel in comparison.duels:
        cells = (
            Cell(_number(duel.values[0], ".1f"), duel.values[0] > duel.values[1]),
            Cell(_number(duel.values[1], ".1f"), duel.values[1] > duel.values[0]),
            Cell(
                _number(duel.difference, "+.1f") + _bracket(duel.interval, "+.1f"),
                mark="*" if _apart(duel, comparison) else "",
            ),
            Cell(f"{duel.improvement:.2f}{_bracket(duel.improvement_interval, '.2f')}"),
            Cell(GAP if duel.test is None or duel.test.refused else f"{duel.test.p:.3f}"),
            Cell(f"{duel.seeds[0]} / {duel.seeds[1]}"),
            Cell(count(duel.decisions) if duel.decisions else GAP),
        )
        rows.append(Row(names[duel.task] if duel.task else "All tasks", cells))
    unit = "success in percent" if comparison.metric == "success" else "return"
    columns = (a, b, "Difference [95 %]", "P(first better) [95 %]", "Wilcoxon p", "Runs", "Decisions")
    return Grid(
        f"{a} against {b}: {unit}, interquartile mean over seeds averaged over time",
        "Task",
        columns,
        tuple(rows),
        tuple(_notes(comparison, names)),
        records=tuple(as_data(comparison)["tasks"]),
    )


def _apart(duel: Duel, comparison: Comparison) -> bool:
    """Whether the interval of the difference lies clear of 0, and comes from seeds enough to be believed.

    One that is not known (NaN) does not. A bootstrap of few seeds is too narrow, and marks what chance has made.
    """
    low, high = duel.interval
    own = [one for one in comparison.duels if one.task and duel.task in (None, one.task)]
    return min(min(one.seeds) for one in own) >= ENOUGH and (low > 0 or high < 0)


def _number(value: float, form: str) -> str:
    return GAP if math.isnan(value) else f"{value:{form}}"


def _bracket(interval: tuple[float, float], form: str) -> str:
    low, high = interval
    return "" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]"


def _notes(comparison: Comparison, names: Mapping[str, str]) -> list[str]:
    notes = ["Wilcoxon: exact signed-rank test, two-sided, over seeds that both have, each averaged over time."]
    if any(_apart(duel, comparison) for duel in comparison.duels):
        notes.insert(0, "An asterisk: the interval of the difference lies clear of 0.")
    if any(math.isfinite(duel.interval[0]) and min(duel.seeds) < ENOUGH for duel in comparison.duels):
        notes.insert(0, f"Intervals of fewer than {ENOUGH} runs a side are too narrow: none of them earns an asterisk.")
    if math.isnan(comparison.duels[-1].difference):
        notes.append("Returns have a scale of their own on each task: over all, only who is better counts.")
    for duel in comparison.duels:
        if duel.test and duel.test.refused and duel.task:
            notes.append(f"Not tested on {names[duel.task]}: {duel.test.refused}.")
    if comparison.settings:
        told = (f"{name} {shown(a)} against {shown(b)}" for name, (a, b) in comparison.settings.items())
        notes.append(f"They differ in {'; '.join(told)}.")
    return [*notes, *comparison.problems]


def as_data(comparison: Comparison) -> dict[str, Any]:
    """One JSON object."""
    tasks = [
        {
            "task": duel.task or "all",
            "a": duel.values[0],
            "b": duel.values[1],
            "difference": duel.difference,
            "low": duel.interval[0],
            "high": duel.interval[1],
            "improvement": duel.improvement,
            "improvement_low": duel.improvement_interval[0],
            "improvement_high": duel.improvement_interval[1],
            "wilcoxon_p": duel.test and duel.test.p,
            "wilcoxon_pairs": duel.test and duel.test.seeds,
            "wilcoxon_refused": duel.test and duel.test.refused,
            "seeds_a": duel.seeds[0],
            "seeds_b": duel.seeds[1],
            "decisions": duel.decisions or None,
        }
        for duel in comparison.duels
    ]
    settings = {name: list(pair) for name, pair in comparison.settings.items()}
    return {
        "a": comparison.names[0],
        "b": comparison.names[1],
        "metric": comparison.metric,
        "tasks": tasks,
        "settings": settings,
        "problems": list(comparison.problems),
    }
