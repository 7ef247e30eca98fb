"""Tables beside the paper's: how much is there, intervals, area under the curve, and labels needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ubp2.evaluation import statistics
from ubp2.evaluation.grids import GAP, Cell, Grid, Row
from ubp2.evaluation.results import Results, Series
from ubp2.evaluation.scores import Scores, counted, titles

__all__ = ["amounts", "areas", "count", "intervals", "labels_needed", "partial", "unfinished"]

LEVELS = (0.5, 0.8, 0.95)
_TOLD = 4  # sentences on runs that are not finished; the table of seeds has all


def count(number: float) -> str:
    """A number of decisions or labels: 4,000, and from a hundred thousand on 250k or 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= 1e5 and number % (size / 10) == 0 and number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:,.0f}"


def unfinished(runs: Sequence[Series], task: str, name: str, rest: str) -> str | None:
    """A sentence on the runs that have not come to their end: they count only where there are no others.

    `rest` says what numbers are over where there are no others.
    """
    left = [one for one in runs if not one.finished]
    if not left:
        return None
    who = f"{len(left)} of {len(runs)} runs of {name} on {task}" if len(runs) > 1 else f"the run of {name} on {task}"
    verb, slowest = ("are" if len(left) > 1 else "is"), min(left, key=lambda one: one.decision[-1])
    how = f"decision {count(int(slowest.decision[-1]))} of {count(slowest.steps)}"
    if len(left) < len(runs):
        return f"{who} {verb} not finished ({how}) and left out"
    return f"{who} {verb} not finished ({how}): {rest}"


def partial(results: Results) -> list[str]:
    """`unfinished` for each task and method of a report, as sentences below its table."""
    told: list[str] = []
    for task in results.tasks():
        there = {method: own for method in results.methods() if (own := results.of(task, method))}
        rest = "compared up to what all methods have" if len(there) > 1 else "numbers are over what there is"
        told += [said for method, own in there.items() if (said := unfinished(own, task, method, rest))]
    more = f"There are {len(told) - _TOLD + 1} more such; the table of seeds that are finished has them all."
    shown = told if len(told) <= _TOLD else told[: _TOLD - 1]
    return [*(f"{said[0].upper()}{said[1:]}." for said in shown), *([more] if len(told) > _TOLD else [])]


def amounts(results: Results, methods: Sequence[str]) -> Grid:
    """Seeds that are finished of those that were to be, how far the others are, and which are not there."""
    tasks, names = results.tasks(), titles(results.tasks())
    lengths = sorted({one.steps for one in results.series})
    records: list[dict[str, Any]] = []

    def cell(task: str, method: str) -> Cell:
        own = results.of(task, method)
        wanted = len(results.wanted.get((task, method), frozenset()) | {one.seed for one in own})
        done, steps = sum(one.finished for one in own), max((one.steps for one in own), default=0)
        slowest = min((int(one.decision[-1]) for one in own), default=0)
        records.append(
            {
                "task": task,
                "method": method,
                "finished": done,
                "under_way": len(own) - done,
                "wanted": wanted,
                "decisions": slowest,
                "of_decisions": steps,
                "missing": " ".join(map(str, results.missing(task, method))),
            }
        )
        text = f"{done} of {wanted}" + (f" to {count(steps)}" if own and len(lengths) > 1 else "")
        text += f"; {len(own) - done} at {count(slowest)}" if done < len(own) else ""
        return Cell(text if wanted else GAP)

    rows = tuple(Row(method, tuple(cell(task, method) for task in tasks)) for method in methods)
    gone = [
        f"{method} on {names[task]}: {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
        for method in methods
        for task in tasks
        if (seeds := results.missing(task, method))
    ]
    notes = []
    if any(not one.finished for one in results.series):
        notes.append("Behind a semicolon: seeds that are not finished, and the decision of the slowest.")
    if gone:
        notes.append(f"Not there: {'; '.join(gone)}.")
    each = f", each of {count(lengths[0])} decisions" if len(lengths) == 1 else ", and to how many decisions"
    columns = tuple(names[task] for task in tasks)
    return Grid(f"Seeds that are finished{each}", "Method", columns, rows, tuple(notes), 0, tuple(records))


def intervals(scores: Scores) -> Grid:
    """The numbers of the main table with their bootstrap intervals, and the average over tasks with its own."""
    over = scores.complete
    records: list[dict[str, Any]] = []

    def cell(method: str, task: str) -> Cell:
        entry = scores.entries.get((task, method))
        return Cell(GAP) if entry is None else _recorded(records, task, method, entry.value, entry.interval)

    def average(method: str) -> Cell:
        own = [task for task in over if (task, method) in scores.entries]
        if not own:
            return Cell(GAP)
        value = float(np.mean([scores.entries[task, method].value for task in own]))
        groups = [scores.aligned[task].curves[method] for task in own]
        low, high = statistics.over_time_interval(groups)
        return _recorded(records, "average", method, value, (scores.scale * low, scores.scale * high))

    last = ("Average",) if scores.averaged else ()
    rows = tuple(
        Row(m, (*(cell(m, task) for task in scores.tasks), *(average(m) for _ in last))) for m in scores.methods
    )
    columns = (*(titles(scores.tasks)[task] for task in scores.tasks), *last)
    note = "In brackets: 95 % bootstrap interval, seeds drawn again within each task (stratified), 5000 times."
    if any(1 < entry.seeds < statistics.ENOUGH for entry in scores.entries.values()):
        note += f" Those of fewer than {statistics.ENOUGH} seeds are too narrow."
    caption = "Interquartile mean averaged over time, with its interval"
    return Grid(caption, "Method", columns, rows, (note,), len(last), tuple(records))


def areas(scores: Scores) -> Grid:
    """Area under each seed's curve over the evaluations that all methods have, as an interquartile mean over seeds."""
    records: list[dict[str, Any]] = []

    def cell(method: str, task: str) -> Cell:
        aligned = scores.aligned[task]
        if (task, method) not in scores.entries:
            return Cell(GAP)
        curves = aligned.curves[method] * scores.scale
        own = np.array([statistics.area_under_curve(aligned.decision, curve) for curve in curves])
        interval = statistics.over_time_interval([own[:, None]])
        return _recorded(records, task, method, statistics.iqm(own), interval)

    note = "Trapezoids over decisions, divided by the span that is covered; 95 % bootstrap interval."
    rows = tuple(Row(method, tuple(cell(method, task) for task in scores.tasks)) for method in scores.methods)
    columns = tuple(titles(scores.tasks)[task] for task in scores.tasks)
    return Grid("Area under the curve", "Method", columns, rows, (note,), 0, tuple(records))


def labels_needed(results: Results, scores: Scores) -> Grid | None:
    """Labels that the middle seed needed to reach each level; None where no success or no label is known.

    A seed that never gets there comes last, so that no average is over the lucky ones alone. Of an even number the
    later of the two in the middle counts: with these labels more than half of the seeds are there.
    """

    def known_of(task: str, method: str) -> list[Series]:
        """Those that numbers are over: a seed that is not finished may still get there."""
        return [
            one
            for one in counted(results, task, method)
            if one.metric == "success" and not np.isnan(one.labels).any() and not one.protocol.get("ceiling")
        ]

    known = [one for task in scores.tasks for method in scores.methods for one in known_of(task, method)]
    if not any(one.labels.any() for one in known):
        return None
    tasks = [task for task in scores.tasks if any(one.task == task for one in known)]
    records: list[dict[str, Any]] = []

    def cell(method: str, level: float, task: str) -> Cell:
        own = known_of(task, method)
        reached = [statistics.labels_to_reach(one.labels, one.score, level) for one in own]
        needed = sorted(math.inf if labels is None else labels for labels in reached)
        middle = needed[len(needed) // 2] if needed else math.inf
        got = sum(map(math.isfinite, needed))
        record = {"task": task, "method": method, "level": level, "reached": got, "seeds": len(own)}
        records.append(record | {"labels": None if math.isinf(middle) else int(middle)})
        text = GAP if math.isinf(middle) else count(middle)
        return Cell(f"{text} ({got} of {len(own)})" if own else GAP)

    rows = tuple(
        Row(f"{method}, {level:.0%}".replace("%", " %"), tuple(cell(method, level, task) for task in tasks))
        for method in scores.methods
        if any(one.method == method for one in known)
        for level in LEVELS
    )
    note = (
        "At the first evaluation at or above the level; the middle seed, of an even number the later of the two. In "
        "brackets: how many seeds get there."
    )
    columns = tuple(titles(scores.tasks)[task] for task in tasks)
    caption = "Labels needed to reach a success of 50, 80 and 95 %"
    return Grid(caption, "Method and level", columns, rows, (note,), 0, tuple(records))


def _recorded(
    records: list[dict[str, Any]], task: str, method: str, value: float, interval: tuple[float, float]
) -> Cell:
    """A number with its interval as it is shown, once all its digits are among `records`."""
    low, high = interval
    records.append({"task": task, "method": method, "value": value, "low": low, "high": high})
    return Cell(f"{value:.1f}" if math.isnan(low) else f"{value:.1f} [{low:.1f}, {high:.1f}]")
