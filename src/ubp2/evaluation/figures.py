"""Figures that a paper could print, from series of scores; here learning curves, and the names of all others.

Each function returns a matplotlib Figure; `save` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ubp2.errors import UserError
from ubp2.evaluation.bonuses import bonuses
from ubp2.evaluation.curves import Curve, aligned
from ubp2.evaluation.looks import (
    Tasks,
    budget_of,
    by_task,
    columns_for,
    legend,
    look,
    save,
    seeds_of,
    title_of,
    wrapped,
)
from ubp2.evaluation.plots import STYLE
from ubp2.evaluation.results import Series
from ubp2.evaluation.statistics import iqm_band, iqm_curve
from ubp2.evaluation.summaries import bars, improvement, profiles

if TYPE_CHECKING:  # matplotlib takes long to import, and only drawing needs it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bars", "bonuses", "improvement", "learning_curves", "profiles", "save"]

Over = Literal["decisions", "labels"]

_AXES = {"decisions": "decisions", "labels": "labels used"}


def learning_curves(
    series: Sequence[Series], over: Over = "decisions", titles: Mapping[str, str] | None = None
) -> Figure:
    """One panel a task: the interquartile mean over seeds of each method, with its interval.

    A method is drawn on the decisions that all of its seeds have. Over labels, a seed counts at each number of labels
    with its first evaluation there, and what training brings after the last label is a hollow marker: a line up to it
    would look like the worth of one label. The budget stands behind the title of a task whose runs share one.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if over not in _AXES:
        raise UserError(f"learning curves are drawn over {' or '.join(_AXES)}, got '{over}'")
    tasks = by_task(series)
    columns = columns_for(len(tasks))
    rows, width = -(-len(tasks) // columns), {1: 4.6, 2: 3.0, 3: 2.5}.get(columns, 2.1)
    curves = {task: {name: _curves(own, over) for name, own in groups.items()} for task, groups in tasks.items()}
    metrics, ends = {own.metric for own in series}, _ends(curves)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width * columns + 0.3, (2.9 if columns == 1 else 1.9) * rows + 0.2))
        figure.set_layout_engine("constrained", hspace=0.06, wspace=0.04)
        grid = figure.subplots(rows, columns, squeeze=False, sharex=len(set(ends)) == 1, sharey=metrics == {"success"})
        for number, (task, axes, end) in enumerate(zip(tasks, grid.flat, ends, strict=False)):
            _draw_task(axes, curves[task])
            if over == "labels":
                _draw_ends(axes, curves[task], tasks[task])
            runs = [own for seeds in tasks[task].values() for own in seeds]
            budget, left = budget_of(runs), number % columns == 0
            wrapped(axes, title_of(task, titles) + (f" ({budget})" if budget else ""), width)
            if _mixed(tasks):
                _count_seeds(axes, tasks[task])
            _name_axes(axes, over, end, left=left, bottom=number + columns >= len(tasks))
            _scale(axes, runs[0].metric, left=left)
        for axes in list(grid.flat)[len(tasks) :]:
            axes.remove()
        lost = [
            f"{method} on {title_of(task, titles)}"
            for task, groups in tasks.items()
            for method, seeds in groups.items()
            if seeds and not curves[task][method][0].size
        ]
        legend(figure, _methods(tasks), _note(tasks, over, lost))
    return figure


def _curves(series: Sequence[Series], over: Over) -> tuple[np.ndarray, np.ndarray]:
    return aligned(_over_labels(own) if over == "labels" else Curve(own.decision, own.score) for own in series)


def _over_labels(own: Series) -> Curve:
    """The first evaluation at each number of labels."""
    there = np.isfinite(own.score)
    labels, first = np.unique(own.labels[there], return_index=True)
    return Curve(labels.astype(float), own.score[there][first])


def _ends(curves: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]]) -> list[float]:
    """Where the horizontal axis of each task ends: one for all, unless 100 labels of one stand by 10,000 of another."""
    ends = [max((x[-1] for x, _ in groups.values() if x.size), default=0.0) for groups in curves.values()]
    return [max(ends)] * len(ends) if max(ends) <= 2.5 * min(ends) else ends


def _draw_task(axes: Axes, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    shade = 0.18 if len(curves) <= 4 else 0.1
    for number, (x, values) in enumerate(curves.values()):
        if not x.size:
            continue
        own, middle = look(number), iqm_curve(values)
        if len(values) > 1:
            low, high = iqm_band(values)
            axes.fill_between(x, low, high, color=own.colour, alpha=shade, linewidth=0, zorder=2)
        every = (0.02 + 0.03 * number, 0.24) if x.size > 6 else None
        axes.plot(
            x, middle, **own.line, linewidth=1.4, markevery=every, zorder=3 + len(curves) - number, clip_on=x.size > 1
        )


def _draw_ends(
    axes: Axes, curves: Mapping[str, tuple[np.ndarray, np.ndarray]], groups: Mapping[str, Sequence[Series]]
) -> None:
    """Where training ends, over the last number of labels."""
    for number, (name, (x, _)) in enumerate(curves.items()):
        _, values = _curves(groups[name], "decisions")
        if x.size and values.size:
            own = look(number)
            looks: dict[str, Any] = {"color": own.colour, "marker": own.marker, "markerfacecolor": "none"}
            axes.plot(x[-1:], iqm_curve(values[:, -1:]), **looks, markersize=5, zorder=20, clip_on=False)


def _mixed(tasks: Tasks) -> bool:
    """Whether tasks differ in their numbers of seeds."""
    return len({tuple(map(len, groups.values())) for groups in tasks.values()}) > 1


def _count_seeds(axes: Axes, groups: Mapping[str, Sequence[Series]]) -> None:
    """Seeds of each method between title and panel, where tasks differ in them."""
    counts = [len(seeds) for seeds in groups.values()]
    there = sorted({count for count in counts if count})
    text = seeds_of(there) if len(there) == 1 else f"seeds: {', '.join(map(str, counts))}"
    axes.set_title(axes.get_title(loc="left"), fontsize=8.5, pad=13)
    axes.annotate(
        text, (0, 1), (0, 3), xycoords="axes fraction", textcoords="offset points", fontsize=6.5, color="0.35"
    )


def _name_axes(axes: Axes, over: Over, end: float, *, left: bool, bottom: bool) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_xlim(0, 1.02 * max(end, 1.0))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if bottom:
        axes.set_xlabel(_AXES[over])
        axes.tick_params(labelbottom=True)
    if left:
        axes.tick_params(labelleft=True)


def _scale(axes: Axes, metric: str, *, left: bool) -> None:
    from matplotlib.ticker import PercentFormatter

    if metric == "success":
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=""))
    if left:
        axes.set_ylabel("success (%)" if metric == "success" else metric)


def _methods(tasks: Tasks) -> list:
    """A line of the legend for each method, with its seeds."""
    from matplotlib.lines import Line2D

    names = next(iter(tasks.values()))
    return [
        Line2D(
            [], [], **look(i).line, linewidth=1.4, label=f"{name} ({seeds_of(len(g[name]) for g in tasks.values())})"
        )
        for i, name in enumerate(names)
    ]


def _note(tasks: Tasks, over: Over, lost: Sequence[str]) -> str:
    counts = {len(seeds) for groups in tasks.values() for seeds in groups.values()}
    parts = ["Line: interquartile mean over seeds" if max(counts) > 1 else "Line: the only seed"]
    if max(counts) > 1:
        parts.append("shaded: 95 % bootstrap interval" + (" (one seed has none)" if 1 in counts else ""))
    if over == "labels":
        parts.append("hollow: the end of training")
    if any(budget_of(own for seeds in groups.values() for own in seeds) for groups in tasks.values()):
        parts.append("in brackets: the label budget")
    if _mixed(tasks):
        parts.append("seeds of each panel in the order of the legend")
    if lost:
        parts.append(f"not drawn, because its seeds have no decision in common: {', '.join(lost)}")
    return "; ".join(parts)
