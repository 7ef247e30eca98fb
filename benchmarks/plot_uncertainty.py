"""Show what benchmarks/uncertainty.py measured: the figure and the tables of docs/uncertainty.md.

    python benchmarks/plot_uncertainty.py

In the page a table stands between <!-- table:NAME --> and <!-- end -->.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator
from pages import filled, markdown
from uncertainty import BONUSES, DRAWN, FEW, MANY, REACH, RESULTS, true_reward

from ubp2.bench.report import shown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "uncertainty.md"
FIGURE = ROOT / "docs" / "images" / "uncertainty.png"

Rows = Sequence[dict[str, Any]]


def _last(rows: Rows, setting: str, labels: int) -> list[dict[str, Any]]:
    own = [row for row in rows if row["setting"] == setting and row["labels"] == labels]
    return [row for row in own if row["updates"] == max(row["updates"] for row in own)]


def _each(rows: Rows, name: str, column: str) -> str:
    """One number a seed; none where a bonus is zero everywhere."""
    return " / ".join(shown(row[name][column] if row[name]["near"] else None) for row in rows)


def _mean(rows: Rows, *path: str) -> str:
    return shown(float(np.mean([functools.reduce(lambda value, key: value[key], path, row) for row in rows])))


def tables(rows: Rows) -> dict[str, list[list[str]]]:
    """The tables of the page, each a heading and its rows."""
    fits = [["fit", "away / near by seed", "near", "away", "spread, near", "std, near", "saturated", "accuracy"]]
    for setting in dict.fromkeys(row["setting"] for row in rows):
        own = _last(rows, setting, FEW)
        means = [_mean(own, *path) for path in (("reward", "near"), ("reward", "away"), ("reward_spread", "near"))]
        last = [_mean(own, "reward_std", "near"), _mean(own, "saturated"), _mean(own, "accuracy")]
        fits.append([setting, _each(own, "reward", "ratio"), *means, *last])
    moments = [["bonus", "updates", "near", "away", "away / near by seed"]]
    own = [row for row in rows if row["setting"] == DRAWN[0] and row["labels"] == FEW]
    for name in BONUSES:
        for done in sorted({row["updates"] for row in own}):
            then = [row for row in own if row["updates"] == done]
            numbers = [_mean(then, name, "near"), _mean(then, name, "away"), _each(then, name, "ratio")]
            moments.append([name, str(done), *numbers])
    counts = [["fit", "labels", "near", "away", "away / near by seed", "std, near", "std, away", "saturated"]]
    for setting in DRAWN:
        for labels in (0, FEW, MANY):
            own = _last(rows, setting, labels)
            stds = [_mean(own, "reward_std", "near"), _mean(own, "reward_std", "away"), _mean(own, "saturated")]
            numbers = [_mean(own, "reward", "near"), _mean(own, "reward", "away"), _each(own, "reward", "ratio")]
            counts.append([setting, str(labels), *numbers, *stds])
    return {"fits": fits, "bonuses": moments, "labels": counts}


def render(page: str, rows: Rows) -> str:
    """The page with every table written anew."""
    found = tables(rows)
    return filled(page, lambda name: markdown(found[name]))


def _panel(axes: Axes, title: str, values: np.ndarray, high: float, unit: str, low: float = 0.0) -> None:
    """One map with its colour bar; cividis for the world, viridis for what the agent does not know."""
    side = round(len(values) ** 0.5)
    image = axes.imshow(
        values.reshape(side, side).astype(np.float32),
        origin="lower",
        extent=(-REACH, REACH, -REACH, REACH),
        cmap="cividis" if low < 0 else "viridis",
        vmin=low,
        vmax=high,
        interpolation="bilinear",
    )
    axes.set_title(title, fontsize=9, loc="left")
    axes.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), xticks=[-2, 0, 2], yticks=[-2, 0, 2])
    axes.tick_params(labelsize=7, length=2)
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.03, 0.0, 0.045, 1.0)), extend="neither")
    bar.locator = MaxNLocator(4)
    bar.ax.tick_params(labelsize=7, length=2)
    bar.set_label(unit, fontsize=7.5)


def _visits(axes: Axes, visited: np.ndarray) -> None:
    axes.scatter(*visited[::4].T, s=1.2, color="white", alpha=0.55, linewidths=0)


def _segments(axes: Axes, segments: np.ndarray, labels: int) -> None:
    """Both sides of the first so many comparisons; segments [P, 2, L, 2]."""
    lines = segments[:labels].reshape(-1, *segments.shape[2:])
    axes.add_collection(LineCollection(list(lines), colors="#D55E00", linewidths=0.8 if labels <= FEW else 0.3))


def draw(maps: Any, out: Path) -> None:
    """The world and the bonuses of dynamics and value; below, a row for each fit, the reward's bonus as labels come."""
    visited, segments = maps["visited"], maps["segments"]
    now = maps[f"{DRAWN[0]}/{FEW}"]
    axis = np.linspace(-REACH, REACH, round(now.shape[1] ** 0.5))
    world = true_reward(np.stack(np.meshgrid(axis, axis), axis=-1)).ravel()
    figure, grid = plt.subplots(3, 3, figsize=(9.0, 8.1))
    figure.subplots_adjust(left=0.065, right=0.925, bottom=0.03, top=0.965, wspace=0.42, hspace=0.17)
    _panel(grid[0, 0], "the world", world, 1.0, "true reward", low=-1.0)
    _segments(grid[0, 0], segments, FEW)
    for axes, which, unit in zip(grid[0, 1:], (1, 2), ("disagreement", "standard deviation"), strict=True):
        _panel(axes, f"{BONUSES[which]} bonus", now[which], float(np.percentile(now[which], 99)), unit)
    for axes in grid[0]:
        _visits(axes, visited)
    for row, setting in zip(grid[1:], DRAWN, strict=True):
        found = {"start": "before learning", FEW: f"{FEW} labels", MANY: f"{MANY} labels"}
        values = [maps[f"{setting}/{moment}"][0] for moment in found]
        high = float(np.percentile(np.stack(values), 99))
        for axes, (moment, name), own in zip(row, found.items(), values, strict=True):
            _panel(axes, f"reward bonus, {name}", own, high, "Jensen-Renyi divergence" if moment == MANY else "")
            _segments(axes, segments, moment if isinstance(moment, int) else 0)
        row[0].set_ylabel(setting, fontsize=9)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


def main() -> None:
    with np.load(RESULTS.with_suffix(".npz")) as maps:
        draw(maps, FIGURE)
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["tables"]["uncertainty"]
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
