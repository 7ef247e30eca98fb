"""Learning curves as a figure: small multiples, one line style a meaning, colours that colour-blind readers can tell.

Runs of one agent on one environment are shown as their mean, with a thin line a seed; the legend counts the seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ubp2.errors import UserError
from ubp2.evaluation.curves import RunCurves, mean_curve, read_run

if TYPE_CHECKING:  # matplotlib takes long to import, and only `plot_runs` needs it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "STYLE", "plot_runs"]

# Okabe and Ito's palette without black and yellow: distinguishable with every common colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_STYLES = ("-", "--", ":")
_APART = 30.0  # between the largest and the smallest value, from which a linear axis hides the small ones
_FORMATS = (".png", ".pdf", ".svg")

STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "legend.handlelength": 2.4,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


class _Panel(NamedTuple):
    """One axes: (metric key, its name in the legend) for each line."""

    title: str
    lines: tuple[tuple[str, str], ...]
    limits: tuple[float, float] | None = None
    budget: bool = False  # counts labels: drawn as steps, with the budget
    apart: bool = False  # lines of different sizes: on a logarithmic axis where that is needed to read them all
    nothing: str = ""  # what to say where all is 0


_PANELS = (
    _Panel(
        "Success at any step",
        (("policy/success_any", "policy"), ("planner/success_any", "planner")),
        limits=(-0.03, 1.03),
    ),
    _Panel(
        "Return of an episode",
        (("policy/return", "policy"), ("planner/return", "planner")),
        nothing="always 0: the environment gives\nno reward, or none was found",
    ),
    _Panel("Labels used", (("labels/used", "labels"),), budget=True),
    _Panel(
        "Uncertainty bonus",
        (("bonus/reward", "reward"), ("bonus/dynamics", "dynamics"), ("bonus/value", "value")),
        apart=True,
    ),
    _Panel(
        "Coefficient λ",
        (("lambda/reward", "reward"), ("lambda/dynamics", "dynamics"), ("lambda/value", "value")),
    ),
    _Panel(
        "Learned reward",
        (("labels/accuracy_before", "accuracy on new labels"), ("reward/rank_correlation", "rank correlation")),
    ),
)


def plot_runs(folders: list[Path], out: Path) -> None:
    """Draw the learning curves of `folders` into `out` (.png, .pdf or .svg)."""
    if out.suffix.lower() not in _FORMATS:
        raise UserError(f"a figure is written as {', '.join(_FORMATS)}, got '{out}'")
    runs = [read_run(folder) for folder in folders]
    panels = [panel for panel in (_with_data(panel, runs) for panel in _PANELS) if panel.lines]
    if not panels:
        raise UserError(f"there is nothing to draw yet: no metrics in {', '.join(map(str, folders))}")
    groups: dict[str, list[RunCurves]] = defaultdict(list)
    alike = len({run.agent for run in runs}) == 1
    for run in runs:
        groups[run.env if alike else f"{run.agent} on {run.env}"].append(run)
    out.parent.mkdir(parents=True, exist_ok=True)
    _draw(panels, groups, out)


def _with_data(panel: _Panel, runs: Sequence[RunCurves]) -> _Panel:
    """The panel with the lines that some run has."""
    found = (line for line in panel.lines if any(run.curve(line[0]).decision.size for run in runs))
    return panel._replace(lines=tuple(found))


def _draw(panels: Sequence[_Panel], groups: dict[str, list[RunCurves]], out: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    # a bare Figure, not pyplot: no window system, nothing global
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.9 * columns, 2.25 * rows + 0.55), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, groups)
        for axes in list(grid.flat)[len(panels) :]:
            axes.remove()
        last = max(row["decision"] for runs in groups.values() for run in runs for row in run.rows)
        grid.flat[0].set_xlim(0, max(last, 1))
        _name_groups(figure, groups)
        figure.savefig(out)


def _draw_panel(axes: Axes, panel: _Panel, groups: dict[str, list[RunCurves]]) -> None:
    """Means thick, single seeds thin. One group: a colour a line; several: a colour a group and a style a line."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    single = len(groups) == 1
    for g, runs in enumerate(groups.values()):
        for i, (key, _) in enumerate(panel.lines):
            look: dict[str, Any] = {
                "color": COLOURS[(i if single else g) % len(COLOURS)],
                "linestyle": "-" if single else _STYLES[i],
                "drawstyle": "steps-post" if panel.budget else "default",
            }
            curves = [curve for run in runs if (curve := run.curve(key)).decision.size]
            if len(curves) > 1:
                for curve in curves:
                    axes.plot(*curve, **look, linewidth=0.6, alpha=0.4)
            mean = mean_curve(curves)
            axes.plot(*mean, **look, linewidth=1.6, marker="o" if mean.decision.size == 1 else "")
    if panel.budget and single:
        _draw_budget(axes, next(iter(groups.values())))
    _name_lines(axes, panel, single)
    axes.set_title(panel.title)
    axes.set_xlabel("decisions")
    axes.tick_params(labelbottom=True)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    if panel.limits:
        axes.set_ylim(*panel.limits)
    curves = [run.curve(key) for runs in groups.values() for run in runs for key, _ in panel.lines]
    _suit(axes, panel, np.concatenate([curve.value for curve in curves]))


def _suit(axes: Axes, panel: _Panel, values: np.ndarray) -> None:
    """An axis for values of very different sizes, or for nothing but zeros."""
    if panel.apart and values.min() > 0 and values.max() / values.min() > _APART:
        axes.set_yscale("log")
        axes.set_title(f"{panel.title} (log)")
    if panel.nothing and not values.any():
        axes.set_ylim(-1, 1)
        axes.set_yticks([0])
        axes.text(0.5, 0.2, panel.nothing, transform=axes.transAxes, ha="center", va="center", fontsize=7, color="0.3")


def _draw_budget(axes: Axes, runs: list[RunCurves]) -> None:
    """The budget as a dashed line, where all runs have the same."""
    budgets = {run.budget for run in runs}
    budget = budgets.pop()
    if not budgets and budget:
        axes.axhline(budget, color="0.4", linestyle="--", linewidth=1.0)
        axes.annotate(
            "budget",
            (0.02, budget),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=7,
            color="0.3",
        )
        axes.set_ylim(0, budget * 1.15)


def _name_lines(axes: Axes, panel: _Panel, single: bool) -> None:
    """A legend for the lines of one panel; grey where colour means the group."""
    from matplotlib.lines import Line2D

    if panel.budget:  # its title names its only line
        return
    handles = [
        Line2D(
            [],
            [],
            color=COLOURS[i] if single else "0.3",
            linestyle="-" if single else _STYLES[i],
            linewidth=1.6,
            label=name,
        )
        for i, (_, name) in enumerate(panel.lines)
    ]
    axes.legend(handles=handles, loc="best")


def _name_groups(figure: Figure, groups: dict[str, list[RunCurves]]) -> None:
    """What is drawn and how many seeds stand behind each mean, above and below the panels."""
    from matplotlib.lines import Line2D

    if len(groups) == 1:
        ((env, runs),) = groups.items()
        if len(runs) == 1:
            figure.suptitle(f"{env}, seed {runs[0].seed}", fontsize=10)
            return
        figure.suptitle(env, fontsize=10)
        handles = [
            Line2D([], [], color="0.3", linewidth=1.6, label=_seeds(runs)),
            Line2D([], [], color="0.3", linewidth=0.6, alpha=0.6, label="each seed"),
        ]
    else:
        handles = [
            Line2D([], [], color=COLOURS[g % len(COLOURS)], linewidth=1.6, label=f"{env}, {_seeds(runs)}")
            for g, (env, runs) in enumerate(groups.items())
        ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)))


def _seeds(runs: list[RunCurves]) -> str:
    return "one seed" if len(runs) == 1 else f"mean of {len(runs)} seeds"
