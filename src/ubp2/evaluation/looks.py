"""How methods look in every figure of a report, and what all of those figures share: panels, legend, titles, files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill, wrap
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ubp2.errors import UserError
from ubp2.evaluation.curves import Curve, shared
from ubp2.evaluation.plots import COLOURS, STYLE
from ubp2.evaluation.results import Series

if TYPE_CHECKING:  # matplotlib takes long to import, and only drawing needs it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Look",
    "Tasks",
    "budget_of",
    "by_task",
    "columns_for",
    "legend",
    "look",
    "save",
    "seeds_of",
    "task_curves",
    "task_scores",
    "title_of",
    "wrapped",
]

Tasks = Mapping[str, Mapping[str, Sequence[Series]]]  # task, method, seeds

_COLOURS = (*COLOURS, "#000000", "#7A7A7A")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (9, 2.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # 8 colours and 7 markers: no look comes twice before the 57th method
_LETTER = 0.053  # inches, of the mean one in a legend


class Look(NamedTuple):
    """What tells a method from the others, in colour and in grey."""

    colour: str
    dash: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.colour, "linestyle": self.dash, "marker": self.marker, "markersize": 3.4}


def look(number: int) -> Look:
    """The look of the method that stands at `number` in the order of a figure."""
    return Look(*(names[number % len(names)] for names in (_COLOURS, _DASHES, _MARKERS)))


def by_task(series: Iterable[Series]) -> dict[str, dict[str, list[Series]]]:
    """Task, method, seeds: in the order in which they come, of the series that have an evaluation.

    Every task holds the methods of all in one order, with no seeds where it has none.
    """
    known = [own for own in series if np.isfinite(own.score).any()]
    if not known:
        raise UserError("there is nothing to draw: no series has an evaluation with a score")
    methods = dict.fromkeys(own.method for own in known)
    tasks = {own.task: {method: [] for method in methods} for own in known}
    for own in known:
        tasks[own.task][own.method].append(own)
    for task, groups in tasks.items():
        metrics = sorted({own.metric for seeds in groups.values() for own in seeds})
        if len(metrics) > 1:
            raise UserError(
                f"one panel shows one metric, but on {task} there are {' and '.join(metrics)}: draw them apart"
            )
    return tasks


def task_curves(groups: Mapping[str, Sequence[Series]]) -> dict[str, np.ndarray]:
    """The scores [N, T] of each method's runs on a task, at the decisions that every run of every method has.

    They are the decisions of the table. A mean over more of the training is a higher one, so that methods are compared
    over the same of it. Empty where the runs have no decision in common.
    """
    runs = [own for seeds in groups.values() for own in seeds]
    _, values = shared(Curve(own.decision, own.score) for own in runs)
    if not values.size:
        return {}
    owners = np.array([own.method for own in runs])
    return {method: values[owners == method] for method, seeds in groups.items() if seeds}


def task_scores(groups: Mapping[str, Sequence[Series]]) -> dict[str, np.ndarray]:
    """One number a run of each method on a task: its mean over evaluations."""
    return {method: own.mean(axis=1) for method, own in task_curves(groups).items()}


def title_of(task: str, titles: Mapping[str, str] | None = None) -> str:
    """'metaworld/door-close' as 'Door Close', unless `titles` names it."""
    return (titles or {}).get(task) or task.rpartition("/")[2].replace("-", " ").replace("_", " ").title()


def budget_of(series: Iterable[Series]) -> int | None:
    """The label budget, if all have the same."""
    budgets = {own.protocol.get("preferences.budget") for own in series}
    budget = budgets.pop() if len(budgets) == 1 else None
    return int(budget) if budget else None


def seeds_of(counts: Iterable[int]) -> str:
    """'5 seeds', or '5 to 15 seeds' where tasks differ."""
    known = [count for count in counts if count]
    low, high = min(known, default=0), max(known, default=0)
    return f"{low} to {high} seeds" if low < high else "1 seed" if high == 1 else f"{high} seeds"


def columns_for(panels: int) -> int:
    """Panels side by side: one row up to four, then two rows up to ten."""
    return panels if panels <= 4 else min(5, -(-panels // 2))


def wrapped(axes: Axes, title: str, width: float) -> None:
    """A panel's title, in lines that a panel of `width` inches has room for."""
    axes.set_title(fill(title, max(12, int(width / 0.082))), fontsize=8.5)


def legend(figure: Figure, handles: Sequence[Any], note: str = "") -> None:
    """The methods below the panels, in as many columns as fit, under a line that says what is drawn.

    The figure grows by what they take, so that panels keep their size.
    """
    width, height = figure.get_size_inches()
    lines = wrap(note, int(width / _LETTER))
    lengths = [len(handle.get_label()) for handle in handles]
    rows = next((rows for rows in range(1, len(handles)) if _wide(lengths, rows) <= width), len(handles))
    figure.set_size_inches(width, height + 0.155 * (rows + len(lines)) + 0.1)
    below = figure.legend(
        handles=list(handles),
        loc="outside lower center",
        ncols=-(-len(handles) // rows),
        title="\n".join(lines),
        title_fontsize=7,
    )
    below.get_title().set_multialignment("center")


def _wide(lengths: Sequence[int], rows: int) -> float:
    """Inches of a legend that is filled column by column."""
    return sum(0.56 + _LETTER * max(lengths[i : i + rows]) for i in range(0, len(lengths), rows))


def save(
    figure: Figure, target: Path | IO[bytes], format: str | None = None, *, style: Mapping[str, Any] | None = None
) -> None:
    """Write a figure as .png, .pdf or .svg (by its suffix, or `format`) in the style that it was made in.

    Ticks take their style when they are drawn, so a bare `figure.savefig` would look otherwise. No dates: the same
    figure is the same file. `style` goes before that style.
    """
    import matplotlib

    kind = format or (target.suffix.lstrip(".").lower() if isinstance(target, Path) else "")
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
    if kind not in dates:
        raise UserError(f"a figure is written as .png, .pdf or .svg, got '{target}'")
    whole: dict[Any, Any] = {**STYLE, "svg.hashsalt": "ubp2", **(style or {})}
    with matplotlib.rc_context(whole):
        figure.savefig(target, format=kind, metadata=dates[kind])
