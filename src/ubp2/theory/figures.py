"""The figure of each study, drawn from the curves in its JSON, so that a file that was written can be drawn again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ubp2.evaluation.looks import legend, look, save
from ubp2.evaluation.plots import COLOURS, STYLE
from ubp2.theory.kernels import NAMES

if TYPE_CHECKING:  # matplotlib takes long to import, and only drawing needs it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "save"]

_PANEL = (3.1, 2.5)  # inches


def draw(study: str, curves: Mapping[str, Any]) -> Figure:
    """The figure of a study, in the style of all figures."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        return _DRAWN[study](curves)


def _panels(count: int, **options: Any) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_PANEL[0] * count, _PANEL[1]), layout="constrained")
    return figure, list(np.ravel(figure.subplots(1, count, **options)))


def _named(figure: Figure, axes: Axes, note: str = "") -> None:
    """The lines of one panel as the legend of all."""
    legend(figure, axes.get_legend_handles_labels()[0], note)


def _gain(curves: Mapping[str, Any]) -> Figure:
    """A panel a dimension: greedy gain, and the table's rate through its last point."""
    dimensions = list(dict.fromkeys(own["dimension"] for own in curves["curves"]))
    figure, panels = _panels(len(dimensions), squeeze=False)
    for axes, dimension in zip(panels, dimensions, strict=True):
        for i, own in enumerate(own for own in curves["curves"] if own["dimension"] == dimension):
            numbers = np.arange(1, len(own["gain"]) + 1)
            axes.plot(numbers, own["gain"], color=look(i).colour, linewidth=1.6, label=own["kernel"])
            axes.plot(numbers[2:], own["rate"][2:], color=look(i).colour, linewidth=0.9, linestyle="--")
        axes.set(title=f"dimension {dimension}", xscale="log", yscale="log", xlabel="observations")
    panels[0].set_ylabel("information gain")
    _named(figure, panels[0], "dashed: the rate of the paper's table, scaled to the last point")
    return figure


def _calibration(curves: Mapping[str, Any]) -> Figure:
    """A panel a kernel: the width that was needed for each noise, and the two bounds."""
    kernels = list(dict.fromkeys(own["kernel"] for own in curves["curves"]))
    figure, panels = _panels(len(kernels), squeeze=False, sharey=True)
    for axes, kernel in zip(panels, kernels, strict=True):
        own = [one for one in curves["curves"] if one["kernel"] == kernel]
        for i, one in enumerate(own):
            axes.plot(
                one["needed"], color=look(i).colour, linestyle=look(i).dash, label=f"needed, {one['noise']} noise"
            )
        axes.plot(own[0]["proved"], color="0.2", linewidth=1.6, label="proved")
        axes.plot(own[0]["printed"], color="0.5", linewidth=1.6, linestyle="--", label="as printed")
        axes.set(title=f"{NAMES[kernel]} kernel", xlabel="observations")
    panels[0].set_ylabel("width β")
    _named(figure, panels[0], f"needed: covers the whole line for {1 - curves['delta']:.0%} of the functions")
    return figure


def _optimism(curves: Mapping[str, Any]) -> Figure:
    """Share of failures against the scale of the coefficients; a scale of 0 stands at the left end."""
    figure, panels = _panels(2, sharey=True)
    scales = np.array(curves["scales"], float)
    shown = np.where(scales > 0, scales, scales[scales > 0].min() / 3)
    for axes, key, title in zip(panels, ("finite", "endless"), ("finite horizon", "infinite horizon"), strict=True):
        for i, policy in enumerate(curves["policies"]):
            share = np.array(curves[key])[:, i]
            axes.plot(shown, share, **look(i).line, label=f"{policy} policy")
        ticks = [(at, f"{scale:g}") for at, scale in zip(shown, scales, strict=True)]
        axes.set(title=title, xscale="log", xlabel="share of the proof's coefficients", ylim=(-0.02, 1))
        axes.set_xticks(*(list(part) for part in zip(*ticks, strict=True)))
        axes.minorticks_off()
    panels[0].set_ylabel("optimism fails")
    _named(figure, panels[0])
    return figure


def _simulation(curves: Mapping[str, Any]) -> Figure:
    """Difference of returns against its bound: every point lies below the line."""
    figure, panels = _panels(2, sharey=True, sharex=True)
    difference = np.array(curves["difference"])
    for axes, key, title in zip(
        panels, ("imagined", "real"), ("sums in the mean model", "sums in the true system"), strict=True
    ):
        bound = np.array(curves[key])
        axes.scatter(bound, difference, s=6, color=COLOURS[0], alpha=0.5, linewidths=0)
        ends = np.array([min(difference.min(), bound.min()), bound.max()])
        axes.plot(ends, ends, color="0.4", linestyle="--", linewidth=0.9)
        axes.set(title=title, xscale="log", yscale="log", xlabel="bound")
    panels[0].set_ylabel("difference of returns")
    return figure


def _draw_regret(axes: Axes, cumulative: Mapping[str, Any]) -> None:
    """Mean over agents on logarithmic axes, with the middle half of them; a slope of 1 is linear regret."""
    for i, (label, rows) in enumerate(cumulative.items()):
        values = np.array(rows)
        numbers = np.arange(1, values.shape[1] + 1)
        low, high = np.quantile(values, (0.25, 0.75), axis=0)
        axes.plot(numbers, values.mean(axis=0), **_line(i), label=label)
        axes.fill_between(numbers, low, high, color=look(i).colour, alpha=0.15, linewidth=0)
    axes.set(xscale="log", yscale="log", xlabel="episodes", ylabel="cumulative regret")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")


def _line(number: int) -> dict[str, Any]:
    """A look without markers: curves have a point an episode."""
    return {"color": look(number).colour, "linestyle": look(number).dash, "linewidth": 1.5}


def _regret(curves: Mapping[str, Any]) -> Figure:
    """The same curves on logarithmic and on plain axes."""
    figure, (left, right) = _panels(2)
    _draw_regret(left, curves["cumulative"])
    _draw_regret(right, curves["cumulative"])
    right.set(xscale="linear", yscale="linear", ylabel="", ylim=(0, None), xlim=(0, None))
    left.set_title(curves["title"])
    _named(figure, left, "mean over agents, with the middle half of them")
    return figure


def _preferences(curves: Mapping[str, Any]) -> Figure:
    figure, (left, right) = _panels(2)
    _draw_regret(left, curves["cumulative"])
    left.set_title(curves["title"])
    for i, own in enumerate(curves["reward deviation"].values()):
        right.plot(np.arange(1, len(own) + 1), own, **_line(i))
    right.set(title="deviation of the reward", xlabel="episodes", ylim=(0, None))
    _named(figure, left, "right: along the episode, before learning from it")
    return figure


def _ensembles(curves: Mapping[str, Any]) -> Figure:
    """A panel a model: mean and two deviations, and the divergence below."""
    from matplotlib.figure import Figure

    models = curves["models"]
    figure = Figure(figsize=(2.5 * len(models), 3.4), layout="constrained")
    rows = figure.subplots(2, len(models), sharex=True, sharey="row", height_ratios=(3, 1), squeeze=False)
    grid = np.array(curves["grid"])
    for (above, below), (label, own) in zip(rows.T, models.items(), strict=True):
        mean, std = np.array(own["mean"]), np.array(own["std"])
        above.fill_between(grid, mean - 2 * std, mean + 2 * std, color=COLOURS[0], alpha=0.25, linewidth=0)
        above.plot(grid, mean, color=COLOURS[0], label="mean, with two deviations")
        above.plot(grid, curves["truth"], color="0.2", linestyle="--", linewidth=1.0, label="truth")
        above.scatter(curves["x"], curves["y"], s=6, color=COLOURS[1], linewidths=0, label="observations", zorder=3)
        above.set_title(label)
        below.plot(grid, std, color=COLOURS[0], label="deviation")
        if "divergence" in own:
            below.plot(grid, own["divergence"], color=COLOURS[2], linestyle=":", label="JRD")
    rows[1, 0].set_ylim(0, 1.05 * max(max(own["std"] + own.get("divergence", [])) for own in models.values()))
    handles = [handle for axes in (rows[0, -1], rows[1, -1]) for handle in axes.get_legend_handles_labels()[0]]
    legend(figure, handles)
    return figure


_DRAWN: Mapping[str, Callable[[Mapping[str, Any]], Figure]] = {
    "gain": _gain,
    "calibration": _calibration,
    "optimism": _optimism,
    "simulation": _simulation,
    "regret": _regret,
    "suboptimality": _regret,
    "preferences": _preferences,
    "ensembles": _ensembles,
}
