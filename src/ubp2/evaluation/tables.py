"""The paper's table: methods x tasks, last columns over all tasks, and the paper's numbers beside ours."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ubp2.errors import unknown_name
from ubp2.evaluation import statistics
from ubp2.evaluation.grids import GAP, Cell, Grid, Row
from ubp2.evaluation.measures import count
from ubp2.evaluation.scores import Scores, titles

__all__ = ["COLUMNS", "Published", "main_grid"]


class Published(NamedTuple):
    """A number of the paper, in percent."""

    value: float
    error: float | None = None  # standard error at the final evaluation
    significant: bool = False  # the asterisk: the paper's method is better than this one


Mapped = Mapping[str, Mapping[str, Published]]
_Overall = Callable[[np.ndarray], np.ndarray]
# (what the column is called, from [methods, tasks] to [methods], whether more is better)
COLUMNS: Mapping[str, tuple[str, _Overall, bool]] = {
    "average": ("Average", lambda table: table.mean(axis=1), True),
    "rank": ("Rank", statistics.average_rank, False),
    "regret": ("Regret", statistics.worst_case_regret, False),
}


class _Side(NamedTuple):
    """Ours or the paper's: values [methods, tasks], who has any, the tasks that last columns are over, and these."""

    values: np.ndarray
    there: np.ndarray  # [methods]
    over: np.ndarray  # [tasks]
    totals: dict[str, np.ndarray]  # [methods] a column


def main_grid(
    scores: Scores,
    *,
    published: Mapped | None = None,
    columns: Sequence[str] = ("average", "rank"),
    notes: Sequence[str] = (),
) -> Grid:
    """The table as it is shown: each method, and below it the paper's numbers and the difference, where there are any.

    Averages, ranks and regrets, the paper's too, are over the tasks on which all methods shown have a number. Returns
    of several tasks have ranks alone. `notes` are further sentences for below it.
    """
    for name in columns:
        if name not in COLUMNS:
            raise unknown_name("column", name, COLUMNS)
    published = published or {}
    asked = [name for name in columns if len(scores.tasks if name == "average" else scores.methods) > 1]
    columns = asked if scores.averaged or len(scores.tasks) < 2 else [name for name in asked if name == "rank"]
    ours = _side(scores, columns, lambda task, method: scores.entries.get((task, method)))
    paper = _side(scores, columns, lambda task, method: published.get(method, {}).get(task), ours.over)
    rows: list[Row] = []
    for m, method in enumerate(scores.methods):
        cells = [_cell(scores, task, method, ours.values) for task in scores.tasks]
        rows.append(Row(method, (*cells, *(_total(name, ours.totals[name], m) for name in columns))))
        if paper.there[m]:
            cells = [_paper_cell(published[method].get(task)) for task in scores.tasks]
            cells += [Cell(_number(paper.totals[name][m], name)) for name in columns]
            rows.append(Row("paper", tuple(cells), "paper", method))
        if paper.there[m] and ours.there[m]:
            apart = [*(ours.values - paper.values)[m], *(_apart(ours, paper, name)[m] for name in columns)]
            rows.append(Row("difference", tuple(Cell(_signed(value)) for value in apart), "difference", method))
    names = titles(scores.tasks)
    unit = "Success in percent" if scores.scale == 100 else "Return"
    return Grid(
        f"{unit}: interquartile mean over seeds, averaged over time{_until(scores)} (standard error at the final "
        "evaluation)",
        "Method",
        (*(names[task] for task in scores.tasks), *(COLUMNS[name][0] for name in columns)),
        tuple(rows),
        (*notes, *_left_out(asked, columns), *_notes(scores, ours.over, paper.totals if paper.there.any() else {})),
        len(columns),
        tuple(_records(scores, published)),
    )


def _until(scores: Scores) -> str:
    """Where the evaluations that count end: where runs are not finished, that is earlier than one thinks."""
    ends = sorted({entry.decisions for entry in scores.entries.values()})
    if len(ends) < 2:
        return f" up to decision {count(ends[0])}" if ends else ""
    return f" up to decision {count(ends[0])} to {count(ends[-1])}, by task"


def _side(
    scores: Scores, columns: Sequence[str], at: Callable[[str, str], Any], within: np.ndarray | None = None
) -> _Side:
    """One side of the table; `within`: the tasks of our last columns: what stands beside them is over the same."""
    found = [[at(task, method) for task in scores.tasks] for method in scores.methods]
    values = np.array([[math.nan if one is None else one.value for one in row] for row in found], float)
    there = np.asarray(~np.isnan(values).all(axis=1))
    over = np.asarray(~np.isnan(values[there]).any(axis=0) & there.any())
    if within is not None and within.any():
        over = within & over[within].all()
    totals = {name: np.full(len(values), math.nan) for name in columns}
    for name, total in totals.items():
        if over.any():
            total[there] = COLUMNS[name][1](values[there][:, over])
    return _Side(values, there, over, totals)


def _apart(ours: _Side, paper: _Side, name: str) -> np.ndarray:
    """The difference of a last column: of averages alone, since a rank and a regret depend on who else is there."""
    return ours.totals[name] - paper.totals[name] if name == "average" else np.full(len(ours.there), math.nan)


def _cell(scores: Scores, task: str, method: str, table: np.ndarray) -> Cell:
    entry = scores.entries.get((task, method))
    if entry is None:
        return Cell(GAP)
    best = np.nanmax(table[:, scores.tasks.index(task)])
    error = GAP if math.isnan(entry.error) else f"{entry.error:.1f}"
    bold = len(scores.methods) > 1 and f"{entry.value:.1f}" == f"{best:.1f}"
    return Cell(f"{entry.value:.1f} ({error})", bold, "*" if entry.test and entry.test.significant else "")


def _paper_cell(one: Published | None) -> Cell:
    if one is None:
        return Cell(GAP)
    error = "" if one.error is None else f" ({one.error:.1f})"
    return Cell(f"{one.value:.1f}{error}", mark="*" if one.significant else "")


def _total(name: str, totals: np.ndarray, m: int) -> Cell:
    known = totals[~np.isnan(totals)]
    if math.isnan(totals[m]):
        return Cell(GAP)
    best = known.max() if COLUMNS[name][2] else known.min()
    return Cell(_number(totals[m], name), len(known) > 1 and _number(totals[m], name) == _number(best, name))


def _number(value: float, name: str) -> str:
    return GAP if math.isnan(value) else f"{value:.2f}" if name == "rank" else f"{value:.1f}"


def _signed(value: float) -> str:
    return GAP if math.isnan(value) else f"{value:+.1f}"


def _left_out(asked: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    """Why last columns that were asked for are not there."""
    if len(columns) < len(asked):
        told = " or ".join(name for name in asked if name not in columns)
        yield f"Returns have a scale of their own on each task: there is no {told} over tasks."


def _notes(scores: Scores, over: np.ndarray, paper: Mapping[str, np.ndarray]) -> Iterator[str]:
    """What the numbers are over, what an asterisk says, and where there can be none."""
    names = titles(scores.tasks)
    counts = {entry.seeds for entry in scores.entries.values()}
    if counts:
        many = f"{min(counts)}{'' if len(counts) == 1 else f' to {max(counts)}'}"
        yield f"{many} seed{'' if many == '1' else 's'} for each method and task."
    if over.any() and not over.all():
        told = ", ".join(names[task] for task, both in zip(scores.tasks, over, strict=True) if both)
        yield f"Last columns are over the tasks that all methods have: {told}."
    if any(np.isfinite(total).any() for total in paper.values()):
        yield "The paper's last columns are computed again over the tasks and methods shown here."
    elif paper:
        yield "The paper does not print all numbers that its last columns would be over here, so they are left out."
    yield from _tests(scores, names)


def _tests(scores: Scores, names: Mapping[str, str]) -> Iterator[str]:
    tests = {(task, method): entry.test for (task, method), entry in scores.entries.items() if entry.test}
    done = [test.seeds for test in tests.values() if not test.refused]
    if done:
        pairs = f"{min(done)}" if min(done) == max(done) else f"{min(done)} to {max(done)}"
        found = any(test.significant for test in tests.values())
        star, whom = ("An asterisk: ", "this method") if found else ("", "none of the others")
        yield (
            f"{star}{scores.reference} is better than {whom} (exact one-sided Wilcoxon signed-rank test, {pairs} pairs "
            f"of seeds, each averaged over time, p < 0.05)."
        )
    refused: dict[str, list[str]] = defaultdict(list)
    for (task, method), test in tests.items():
        if test.refused:
            refused[test.refused].append(f"{method} on {names[task]}")
    for reason, where in refused.items():
        told = where if len(where) <= 4 else [*where[:3], f"{len(where) - 3} more"]
        yield f"Not tested against {scores.reference}: {', '.join(told)}; {reason}."


def _records(scores: Scores, published: Mapped) -> Iterator[dict[str, Any]]:
    """A line for each method and task, for CSV: numbers with all their digits."""
    for method in scores.methods:
        for task in scores.tasks:
            entry, paper = scores.entries.get((task, method)), published.get(method, {}).get(task)
            test = entry.test if entry else None
            yield {
                "task": task,
                "method": method,
                "value": entry and entry.value,
                "standard_error": entry and entry.error,
                "low": entry and entry.interval[0],
                "high": entry and entry.interval[1],
                "seeds": entry.seeds if entry else 0,
                "decisions": entry and entry.decisions,
                "wilcoxon_p": test and (None if test.refused else test.p),
                "wilcoxon_pairs": test and test.seeds,
                "wilcoxon_refused": test and test.refused,
                "paper": paper and paper.value,
                "paper_error": paper and paper.error,
                "paper_significant": paper and paper.significant,
                "difference": entry.value - paper.value if entry and paper else None,
            }
