"""Uncertainty bonus and λ over time, from run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ubp2.evaluation.curves import Curve, RunCurves, mean_curve, read_run
from ubp2.evaluation.looks import legend, look, seeds_of, title_of
from ubp2.evaluation.plots import STYLE
from ubp2.evaluation.results import Series

if TYPE_CHECKING:  # matplotlib takes long to import, and only drawing needs it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bonuses"]

_BONUSES = tuple(
    (f"{kind}/{name}", f"{title}, {name}")
    for kind, title in (("bonus", "Bonus"), ("lambda", "λ"))
    for name in ("reward", "dynamics", "value")
)
_POINTS = 200  # of a line that has one value for each hundred decisions


def bonuses(series: Sequence[Series], titles: Mapping[str, str] | None = None) -> Figure | None:
    """Uncertainty bonus and λ over time, mean over the seeds of a method: one row a task, one column a quantity.

    Read from the run folders of the series; None where no run has either.
    """
    import matplotlib
    from matplotlib.figure import Figure

    tasks: dict[str, dict[str, list[RunCurves]]] = {}
    for own in series:
        if own.folder is not None:
            tasks.setdefault(own.task, {}).setdefault(own.method, []).append(read_run(own.folder))
    means = {
        (task, method, key): _thinned(mean_curve(run.curve(key) for run in runs))
        for task, groups in tasks.items()
        for method, runs in groups.items()
        for key, _ in _BONUSES
    }
    shown = {place: curve for place, curve in means.items() if curve.decision.size}
    keys = [(key, title) for key, title in _BONUSES if any(place[2] == key for place in shown)]
    rows = [task for task in tasks if any(place[0] == task for place in shown)]
    names = list(dict.fromkeys(own.method for own in series))  # a method looks as in the other figures
    if not keys:
        return None
    with matplotlib.rc_context(STYLE):
        size = (max(1.75 * len(keys), 3.4) + 0.4, 1.4 * len(rows) + 0.4)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(rows), len(keys), squeeze=False, sharex="row")
        for i, task in enumerate(rows):
            for j, (key, title) in enumerate(keys):
                lines = {names.index(m): curve for (t, m, k), curve in shown.items() if (t, k) == (task, key)}
                _draw_bonus(grid[i, j], lines, title if i == 0 else "", last=i == len(rows) - 1)
            grid[i, 0].set_ylabel(title_of(task, titles))
        legend(figure, _means(names, tasks, {method for _, method, _ in shown}), "Line: mean over seeds")
    return figure


def _draw_bonus(axes: Axes, lines: Mapping[int, Curve], title: str, *, last: bool) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    for number, curve in lines.items():
        step = max(1, curve.decision.size // 4)
        axes.plot(*curve, **look(number).line, linewidth=1.2, markevery=(number * step // 8 % step, step))
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.set_title(title, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    if last:
        axes.set_xlabel("decisions")


def _means(names: Sequence[str], tasks: Mapping[str, Mapping[str, Sequence[RunCurves]]], shown: set[str]) -> list:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], **look(number).line, linewidth=1.2, label=f"{name} ({counts})")
        for number, name in enumerate(names)
        for counts in [seeds_of(len(groups.get(name, ())) for groups in tasks.values())]
        if name in shown
    ]


def _thinned(curve: Curve) -> Curve:
    """Means of neighbours, so that a line has no more points than a panel can show."""
    if curve.decision.size <= _POINTS:
        return curve
    parts = [np.array_split(values, _POINTS) for values in curve]
    return Curve(*(np.array([part.mean() for part in own]) for own in parts))
