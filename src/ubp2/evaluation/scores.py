"""Scores of methods on tasks: seeds brought to common evaluations, and the paper's number with its interval and test.

Methods are compared on the evaluations that all of them have on a task. Seeds that are not finished count only for a
method that has no finished one: one seed that has just begun must not shorten the comparison to its beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ubp2.errors import UserError, unknown_name
from ubp2.evaluation import statistics
from ubp2.evaluation.curves import Curve, shared
from ubp2.evaluation.looks import title_of
from ubp2.evaluation.results import Results, Series
from ubp2.evaluation.statistics import Wilcoxon

__all__ = ["Aligned", "Entry", "Scores", "align", "counted", "score", "titles"]


class Aligned(NamedTuple):
    """The seeds of all methods on one task, at the evaluations that all have."""

    decision: np.ndarray  # [T]
    curves: dict[str, np.ndarray]  # [N, T] a method
    seeds: dict[str, list[int]]  # [N]


class Entry(NamedTuple):
    """One method on one task, in the unit of the table."""

    value: float  # interquartile mean over seeds, averaged over time
    error: float  # standard error over seeds at the last evaluation
    interval: tuple[float, float]  # of 95 %, of the value
    seeds: int
    decisions: int  # where the last evaluation that counts stands
    test: Wilcoxon | None  # whether the reference is better; None: it is the reference, or has no series here


class Scores(NamedTuple):
    """All numbers of the table."""

    tasks: list[str]
    methods: list[str]
    reference: str
    scale: float  # 100 for success, which is told in percent
    aligned: dict[str, Aligned]
    entries: dict[tuple[str, str], Entry]  # by (task, method)

    @property
    def complete(self) -> list[str]:
        """Tasks on which every method that has any number has one: what averages are over."""
        some = [method for method in self.methods if any((task, method) in self.entries for task in self.tasks)]
        return [task for task in self.tasks if some and all((task, method) in self.entries for method in some)]

    @property
    def averaged(self) -> bool:
        """Whether there is an average over tasks: several, of one scale, which returns have not."""
        return len(self.tasks) > 1 and self.scale == 100


def titles(tasks: Sequence[str]) -> dict[str, str]:
    """Tasks as a reader calls them: metaworld/door-close is Door Close, unless two would be called the same."""
    short = {task: title_of(task) for task in tasks}
    count = Counter(short.values())
    return {task: name if count[name] == 1 else task for task, name in short.items()}


def counted(results: Results, task: str, method: str) -> list[Series]:
    """The seeds that numbers are over: the finished ones, or all where none is."""
    own = results.of(task, method)
    return [one for one in own if one.finished] or own


def align(results: Results, task: str) -> Aligned:
    """Bring the methods of a task to common evaluations; without any, to none."""
    chosen = {method: own for method in results.methods() if (own := counted(results, task, method))}
    every = [one for own in chosen.values() for one in own]
    if not every:
        return Aligned(np.array([], int), {}, {})
    common, values = shared(Curve(one.decision, one.score) for one in every)
    owners = np.array([one.method for one in every])
    curves = {method: values[owners == method] for method in chosen}
    return Aligned(common, curves, {method: [one.seed for one in own] for method, own in chosen.items()})


def score(results: Results, *, order: Sequence[str] | None = None, reference: str | None = None) -> Scores:
    """Compute the table. `order` puts methods in order, and may name some that have no run yet."""
    methods = list(dict.fromkeys([*(order or ()), *results.methods()]))
    if not methods:
        raise UserError("there is nothing to report: no run has an evaluation")
    if reference is not None and reference not in methods:
        raise unknown_name("method", reference, methods)
    leading = next((method for method in methods if method == "ubp2"), methods[0])
    reference = reference or (methods[0] if order else leading)
    tasks = results.tasks()
    metric = next((one.metric for one in results.series), "success")
    scale = 100.0 if metric == "success" else 1.0
    aligned = {task: align(results, task) for task in tasks}
    entries = {
        (task, method): _entry(aligned[task], method, reference, scale)
        for task in tasks
        for method in aligned[task].curves
        if aligned[task].decision.size
    }
    return Scores(tasks, methods, reference, scale, aligned, entries)


def _entry(aligned: Aligned, method: str, reference: str, scale: float) -> Entry:
    curves = aligned.curves[method]
    test = None
    if method != reference and reference in aligned.curves:
        both = sorted(set(aligned.seeds[method]) & set(aligned.seeds[reference]))
        ours, other = (
            aligned.curves[name][[aligned.seeds[name].index(seed) for seed in both]].mean(axis=1)
            for name in (reference, method)
        )
        test = statistics.wilcoxon(ours, other)
    low, high = statistics.over_time_interval([curves])
    return Entry(
        scale * statistics.over_time(curves),
        scale * statistics.standard_error(curves[:, -1]),
        (scale * low, scale * high),
        len(curves),
        int(aligned.decision[-1]),
        test,
    )
