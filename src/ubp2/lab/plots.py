"""Two figures of a study: how far probabilities can be believed, and what more labels bring."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from ubp2.evaluation.plots import COLOURS, STYLE
from ubp2.lab.measures import BINS, Reliability
from ubp2.lab.report import Results, chosen, mean, pooled

if TYPE_CHECKING:  # matplotlib takes long to import, and only drawing needs it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["plot_labels", "plot_reliability"]

_COLUMNS = 4
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # seven, and six colours: no look comes twice before the 43rd setting
_DASHES = ("-", "--", ":")


def plot_reliability(results: Results, out: Path) -> None:
    """One panel a setting, at the largest number of labels: its line over those of all, and its bin counts below."""
    import matplotlib
    from matplotlib.figure import Figure

    labels = max(results.what.labels)
    tables = {name: pooled(chosen(results, name, labels)) for name in results.settings}
    most = max(1, *(int(table.count.max()) for table in tables.values()))
    columns = min(_COLUMNS, len(tables))
    rows = -(-len(tables) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(2.1 * columns, 3.4) + 0.3, 2.75 * rows + 0.6), layout="constrained")
        figure.suptitle(
            f"Observed against predicted preference, {labels} labels (grey: the other settings)", fontsize=9
        )
        panels = np.ravel(figure.subfigures(rows, columns, squeeze=False))
        for number, (panel, name) in enumerate(zip(panels, tables, strict=False)):
            _draw_reliability(panel, name, tables, most, left=number % columns == 0)
        figure.savefig(out)


def _draw_reliability(panel: SubFigure, name: str, tables: dict[str, Reliability], most: int, *, left: bool) -> None:
    upper, lower = panel.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.plot((0, 1), (0, 1), color="0.4", linewidth=0.8, linestyle="--")
    for other, table in tables.items():
        look: dict[str, Any] = {"color": "0.8", "linewidth": 0.8, "zorder": 1}
        if other == name:
            look = {
                "color": COLOURS[0],
                "linewidth": 1.6,
                "marker": "o",
                "markersize": 3.5,
                "zorder": 3,
                "clip_on": False,
            }
        filled = table.count > 0
        upper.plot(table.predicted[filled], table.observed[filled], **look)
    edges = np.linspace(0, 1, BINS + 1)
    lower.bar(edges[:-1], tables[name].count, width=1 / BINS, align="edge", color=COLOURS[0], alpha=0.5, linewidth=0)
    upper.set(title=fill(name, 24), xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    lower.set(ylim=(0, 1.05 * most), xlabel="P(first preferred)")
    lower.locator_params(axis="y", nbins=2)
    if left:
        upper.set_ylabel("observed share")
        lower.set_ylabel("pairs")


def plot_labels(results: Results, out: Path) -> None:
    """Rank correlation against the number of labels, one line a setting, with the spread over repeats."""
    import matplotlib
    from matplotlib.figure import Figure

    labels = sorted(set(results.what.labels))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.6, max(3.4, 0.2 * len(results.settings) + 1.0)), layout="constrained")
        axes = figure.subplots()
        _draw_labels(axes, results, labels)
        axes.set_title("Rank correlation with the true reward on held-out states")
        axes.set_xlabel("labels")
        axes.set_xticks(range(len(labels)), [str(count) for count in labels])
        axes.set_xlim(-0.4, len(labels) - 0.6)
        _name_settings(figure, axes)
        figure.savefig(out)


def _draw_labels(axes: Axes, results: Results, labels: list[int]) -> None:
    """Best first at the largest number of labels, so that the legend reads in the order of the lines' ends."""
    points = {
        name: np.array([mean(chosen(results, name, count), "rank_correlation") for count in labels])
        for name in results.settings
    }
    looks = dict(zip(results.settings, _looks(), strict=False))
    best_first = sorted(points, key=lambda name: -np.nan_to_num(points[name][-1, 0], nan=-2.0))
    beside = np.linspace(-0.2, 0.2, len(points)) if len(points) > 1 else np.zeros(1)  # bars stand side by side
    for shift, name in zip(beside, best_first, strict=True):
        middle, spread = points[name].T
        look = {**looks[name], "label": f"{fill(name, 32)} ({middle[-1]:.3f})"}
        where = np.arange(len(labels)) + shift
        axes.errorbar(where, middle, spread, **look, linewidth=1.2, markersize=4, elinewidth=0.7, capsize=1.5)


def _looks() -> Iterator[dict[str, Any]]:
    """Settings differ in marker and colour both, and in dashes from one round of colours to the next."""
    for number, marker in enumerate(cycle(_MARKERS)):
        dashes = _DASHES[number // len(COLOURS) % len(_DASHES)]
        yield {"color": COLOURS[number % len(COLOURS)], "marker": marker, "linestyle": dashes}


def _name_settings(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right upper", title="at the most labels, best first")
