"""Figures that sum methods up over tasks: performance profiles, probability of improvement, bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ubp2.errors import UserError, unknown_name
from ubp2.evaluation.looks import Tasks, budget_of, by_task, legend, look, seeds_of, task_curves, task_scores, title_of
from ubp2.evaluation.plots import STYLE
from ubp2.evaluation.results import Series
from ubp2.evaluation.statistics import (
    interval,
    over_time,
    performance_profile,
    probability_of_improvement,
    standard_error,
)

if TYPE_CHECKING:  # matplotlib takes long to import, and only drawing needs it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bars", "improvement", "profiles"]

_SCORE = "success averaged over time"
_BAR = 0.24  # inches


def profiles(series: Sequence[Series]) -> Figure:
    """Share of runs above each success rate, a line a method, over the tasks that all methods have.

    A method without a number on any task is left out, and costs the others nothing.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    tasks = by_task(series)
    methods = list(next(iter(tasks.values())))
    found = _scores(tasks).values()
    shown = [method for method in methods if any(method in own for own in found)]
    scores = [own for own in found if shown and len(own) == len(shown)]
    if not scores:
        raise UserError(
            "a profile compares methods on tasks that all of them have, at decisions that all of their runs have: "
            f"there is none for {', '.join(methods)}"
        )
    thresholds = np.linspace(0, 1, 101)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.0, 3.0), layout="constrained")
        axes, handles, single = figure.subplots(), [], True
        for number, method in enumerate(methods):
            if method not in shown:  # none of its tasks has a decision that all runs have
                continue
            own, groups = look(number), [task[method] for task in scores]
            low, high = interval(groups, lambda drawn: performance_profile(drawn, thresholds))
            axes.fill_between(thresholds, low, high, color=own.colour, alpha=0.16, linewidth=0, step="post")
            share = performance_profile(groups, thresholds)
            label = f"{method} ({seeds_of(map(len, groups))})"
            every = (4 * number) % 20, 20
            handles += axes.plot(
                thresholds, share, **own.line, linewidth=1.4, markevery=every, drawstyle="steps-post", label=label
            )
            single = single and bool(np.isnan(low).all())
        axes.set(xlim=(0, 1), ylim=(-0.03, 1.03), xlabel=f"τ: {_SCORE} (%)", ylabel="runs above τ (%)")
        axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=""))
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=""))
        shade = "" if single else "; shaded: 95 % stratified bootstrap interval"
        alike = ", each counting alike" if len(scores) > 1 else ""
        legend(figure, handles, f"Runs on {_tasks(len(scores))}{alike}{shade}")
    return figure


def improvement(series: Sequence[Series], reference: str) -> Figure:
    """Probability that a run of `reference` is better than one of each other method, on the tasks that both have."""
    import matplotlib
    from matplotlib.figure import Figure

    tasks = by_task(series)
    methods = list(next(iter(tasks.values())))
    if reference not in methods:
        raise unknown_name("method", reference, methods)
    pairs, scores = {}, _scores(tasks)
    for other in methods:
        both = [own for own in scores.values() if {reference, other} <= set(own)]
        if other != reference and both:
            pairs[other] = [[own[name] for own in both] for name in (reference, other)]
    if not pairs:
        raise UserError(f"no other method has a task in common with {reference}: there is nothing to compare")
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.4, 0.36 * len(pairs) + 1.15), layout="constrained")
        axes = figure.subplots()
        for row, (other, (xs, ys)) in enumerate(pairs.items()):
            _draw_pair(axes, row, xs, ys, look(methods.index(other)).colour)
        counts = {other: _pair(xs, ys) for other, (xs, ys) in pairs.items()}
        same = len(set(counts.values())) == 1
        labels = [other if same else f"{other}\n{count}" for other, count in counts.items()]
        axes.set_yticks(range(len(pairs)), labels, fontsize=7)
        axes.set(xlim=(0, 1), ylim=(len(pairs) - 0.5, -0.5), xlabel=f"P({reference} better), by {_SCORE}")
        axes.axvline(0.5, color="0.4", linewidth=1.0, linestyle="--", zorder=1)
        axes.grid(axis="y", visible=False)
        axes.set_title(f"Probability that {reference} improves on", fontsize=8.5)
        note = "Bar: 95 % stratified bootstrap interval; ties count half"
        figure.supxlabel(f"{note}; {counts.popitem()[1]}" if same else note, fontsize=7)
    return figure


def _draw_pair(axes: Axes, row: int, xs: Sequence[np.ndarray], ys: Sequence[np.ndarray], colour: str) -> None:
    count = len(xs)
    low, high = interval([*xs, *ys], lambda drawn: probability_of_improvement(drawn[:count], drawn[count:]))
    middle = probability_of_improvement(xs, ys)
    known = np.isfinite(low)
    if known:
        axes.plot((low, high), (row, row), color=colour, linewidth=5, alpha=0.4, solid_capstyle="butt", zorder=2)
    axes.plot(middle, row, "o", color=colour, markersize=5, zorder=3, clip_on=False)
    text = f"{middle:.2f} [{low:.2f}, {high:.2f}]" if known else f"{middle:.2f}"
    axes.annotate(
        text, (1, row), (6, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center", fontsize=7
    )


def _pair(xs: Sequence[np.ndarray], ys: Sequence[np.ndarray]) -> str:
    """Seeds of either side, and tasks."""
    first, second = (seeds_of(map(len, side)).removesuffix("s").removesuffix(" seed") for side in (xs, ys))
    return f"{first} against {second} seeds, {_tasks(len(xs))}"


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _scores(tasks: Tasks) -> dict[str, dict[str, np.ndarray]]:
    """Success of each run of each method on each task; returns are refused: each task has a scale of its own."""
    for task, groups in tasks.items():
        if any(own.metric != "success" for seeds in groups.values() for own in seeds):
            raise UserError(
                f"only success rates can be summed up over tasks, and {task} has none: its score is a return"
            )
    return {task: task_scores(groups) for task, groups in tasks.items()}


def bars(series: Sequence[Series], titles: Mapping[str, str] | None = None) -> Figure:
    """A group of bars a task, one a method, as the paper's sensitivity figure has them.

    In each bar the interquartile mean over seeds averaged over time, and in brackets the standard error at the final
    evaluation; before it the label budget. Methods stand in the order of the legend, so that grey prints can be read.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    tasks = by_task(series)
    methods = list(next(iter(tasks.values())))
    with matplotlib.rc_context(STYLE):
        figure = Figure(layout="constrained")
        axes, top = figure.subplots(), 0.0
        ticks: dict[float, str] = {}
        for task, groups in tasks.items():
            there = [(i, method) for i, method in enumerate(methods) if groups[method]]
            curves, scale = task_curves(groups), 100 if _metric(groups) == "success" else 1
            for row, (number, method) in enumerate(there):
                _draw_bar(axes, top + row, curves.get(method), scale, look(number).colour)
                ticks[top + row] = str(budget_of(groups[method]) or "")
            _name_task(axes, top + (len(there) - 1) / 2, title_of(task, titles), bool(any(ticks.values())))
            top += len(there) + 0.6
        figure.set_size_inches(6.0, _BAR * top + 0.5)
        axes.set_yticks(list(ticks), list(ticks.values()), fontsize=7)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(top - 0.9, -0.7)
        axes.grid(axis="y", visible=False)
        _name_score(axes, {own.metric for own in series})
        counts = {method: seeds_of(len(groups[method]) for groups in tasks.values()) for method in methods}
        handles = [Patch(color=look(i).colour, label=f"{name} ({counts[name]})") for i, name in enumerate(methods)]
        note = "Bar: interquartile mean over seeds, averaged over time (standard error at the final evaluation)"
        legend(figure, handles, note + ("; before it: the label budget" if any(ticks.values()) else ""))
    return figure


def _metric(groups: Mapping[str, Sequence[Series]]) -> str:
    """What a task is scored by; `by_task` has refused several."""
    return next(own.metric for seeds in groups.values() for own in seeds)


def _draw_bar(axes: Axes, row: float, curves: np.ndarray | None, scale: int, colour: str) -> None:
    """One bar of the curves [N, T] of a method; its numbers stand inside where there is room, else behind it."""
    from matplotlib.colors import to_rgb

    if curves is None:
        axes.annotate(
            "no decision that all runs have", (0, row), (3, 0), textcoords="offset points", va="center", fontsize=6.5
        )
        return
    value, error = scale * over_time(curves), scale * standard_error(curves[:, -1])
    axes.barh(row, value, height=0.86, color=colour, zorder=2)
    text = f"{value:.1f}" + (f" ({error:.1f})" if np.isfinite(error) else "")
    inside = scale == 100 and value > 22
    dark = float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) < 0.55
    axes.annotate(
        text,
        (value, row),
        (-3 if inside else 3, 0),
        textcoords="offset points",
        ha="right" if inside else "left",
        va="center",
        fontsize=7,
        color="white" if inside and dark else "black",
        zorder=4,
    )


def _name_task(axes: Axes, row: float, title: str, budgets: bool) -> None:
    axes.annotate(
        title,
        (0, row),
        (-38 if budgets else -8, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=8,
        fontweight="bold",
    )


def _name_score(axes: Axes, metrics: set[str]) -> None:
    if metrics == {"success"}:
        axes.set_xlim(0, 100)
    axes.set_xlabel("success (%)" if metrics == {"success"} else " or ".join(sorted(metrics)))
