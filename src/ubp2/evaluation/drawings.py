"""Which figures a report has, and each as files and for its page."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ubp2.evaluation import looks, page
from ubp2.evaluation.results import Results, Series
from ubp2.evaluation.scores import Scores, counted, titles

if TYPE_CHECKING:  # matplotlib takes long to import, and only drawing needs it
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "Drawn", "draw", "save"]

FIGURES = ("curves", "curves-labels", "bars", "profile", "improvement", "bonuses")
_HEAVY = 1_500_000  # bytes of an SVG above which the page shows a PNG


class Drawn(NamedTuple):
    """A figure, with what is written below it and what stands for it where it cannot be seen."""

    name: str
    figure: Figure
    caption: str
    alt: str


def draw(results: Results, scores: Scores, bars: bool) -> Iterator[Drawn]:
    """Figures of the series that the table counts, with methods in one order so that each keeps its colour.

    Those that ask for no labels come last: they are not in the figure over labels.
    """
    from ubp2.evaluation import figures

    names = titles(scores.tasks)
    series = [one for task in scores.tasks for method in scores.methods for one in counted(results, task, method)]
    if not series:
        return
    asking = {one.method for one in series if np.nan_to_num(one.labels).any()}
    series.sort(key=lambda one: one.method not in asking)
    methods = ", ".join(dict.fromkeys(one.method for one in series))
    what = f"{methods} on {', '.join(names[task] for task in dict.fromkeys(one.task for one in series))}"
    numbers = "The tables of this page have the numbers."
    over_decisions = "Success over decisions." if scores.scale == 100 else "Return over decisions."
    alt = f"Learning curves over decisions: {what}. {numbers}"
    yield Drawn("curves", figures.learning_curves(series, titles=names), over_decisions, alt)
    asked = [one for one in series if one.method in asking and np.isfinite(one.labels).all()]
    if asked:
        left = sorted({one.method for one in series} - {one.method for one in asked})
        caption = "Over the labels used: what so many answers were enough for."
        caption += f" Without labels: {'; '.join(left)}." if left else ""
        drawn = figures.learning_curves(asked, over="labels", titles=names)
        yield Drawn("curves-labels", drawn, caption, f"Learning curves over labels: {what}. {numbers}")
    if bars:
        yield Drawn(
            "bars", figures.bars(series, titles=names),
            "Interquartile mean averaged over time (standard error at the end); before it the label budget.",
            f"Bars of the main table: {what}. {numbers}",
        )  # fmt: skip
    yield from _comparisons(series, scores)
    bonus = figures.bonuses(series, titles=names)
    if bonus is not None:
        yield Drawn(
            "bonuses", bonus, "Uncertainty bonus and its coefficient λ over decisions, mean over seeds.",
            f"Uncertainty bonus and coefficient over decisions: {what}.",
        )  # fmt: skip


def _comparisons(series: Sequence[Series], scores: Scores) -> Iterator[Drawn]:
    """Profile and probability of improvement, where there is success and something to compare."""
    from ubp2.evaluation import figures

    there = [method for method in scores.methods if any(one.method == method for one in series)]
    if scores.scale != 100 or len(there) < 2:
        return
    if scores.complete:
        yield Drawn(
            "profile", figures.profiles(series),
            "Performance profile: share of runs whose success, averaged over time, is above each level.",
            f"Performance profile of {', '.join(there)}.",
        )  # fmt: skip
    with_reference = {task for task, method in scores.entries if method == scores.reference}
    others = {method for task, method in scores.entries if task in with_reference and method != scores.reference}
    if others:
        yield Drawn(
            "improvement", figures.improvement(series, scores.reference),
            f"Probability that a run of {scores.reference} is better than one of each other method, with its interval.",
            f"Probability of improvement of {scores.reference} over {', '.join(sorted(others))}.",
        )  # fmt: skip


def save(one: Drawn, folder: Path) -> str:
    """Write a figure as PNG and PDF, and give it as HTML: an SVG, or the PNG where that would be heavy."""
    files = [f"figures/{one.name}.{kind}" for kind in ("png", "pdf")]
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        looks.save(one.figure, folder / name)
    stream = io.BytesIO()  # letters as outlines: a phone has not the font that the layout was made for
    looks.save(one.figure, stream, "svg", style={"svg.fonttype": "path"})
    data, kind = stream.getvalue(), "image/svg+xml"
    if len(data) > _HEAVY:
        data, kind = (folder / files[0]).read_bytes(), "image/png"
    return page.image(data, kind, one.alt, one.caption, files, one.figure.get_figwidth())
