"""Metrics of finished and running runs, read back as curves. Knows the run folder, not how it is drawn."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ubp2.storage.runs import Run, read_metrics

__all__ = ["Curve", "RunCurves", "aligned", "mean_curve", "read_run", "shared"]


class Curve(NamedTuple):
    """One metric of one run."""

    decision: np.ndarray  # [T] increasing
    value: np.ndarray  # [T]


class RunCurves(NamedTuple):
    """What a figure needs of a run."""

    env: str
    agent: str
    seed: int
    budget: int | None
    rows: list[dict[str, Any]]

    def curve(self, key: str) -> Curve:
        """The metric `key`; empty where the run has none. Gaps (null, NaN) are left out."""
        points = {row["decision"]: row[key] for row in self.rows if _is_number(row.get(key))}
        decisions = sorted(points)
        return Curve(np.array(decisions, float), np.array([points[d] for d in decisions], float))


def read_run(run: Path) -> RunCurves:
    """Read the configuration and the metrics of a run folder."""
    config = Run.open(run).config
    return RunCurves(config.env, config.agent, config.seed, config.preferences.budget, read_metrics(run))


def mean_curve(curves: Iterable[Curve]) -> Curve:
    """Mean over runs on the decisions that all of them cover; linear between the measurements of each."""
    curves = [curve for curve in curves if curve.decision.size]
    if not curves:
        return Curve(np.array([]), np.array([]))
    grid = _covered(curves)
    return Curve(grid, np.mean(_on(grid, curves), axis=0))


def aligned(curves: Iterable[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """Seeds as one matrix, for lines: the decisions [T] that all have, and the values [N, T] there, in order.

    Only what was measured is used, as long as that keeps more than half of the evaluations that the sparsest seed has
    in the span that all cover; where evaluations fall between each other's, values are linear between measurements.
    Gaps (NaN) count as not measured; a seed that is nothing but gaps is left out. Seeds without a common span: T is 0.
    """
    known = [Curve(decision[there], value[there]) for decision, value in curves for there in [~np.isnan(value)]]
    known = [curve for curve in known if curve.decision.size]
    if not known:
        return np.zeros(0), np.zeros((0, 0))
    grid = _covered(known)
    shared = [np.isin(grid, curve.decision) for curve in known]
    common = np.all(shared, axis=0)
    if common.any() and 2 * common.sum() > min(own.sum() for own in shared):
        grid = grid[common]
    return grid, _on(grid, known)


def shared(curves: Iterable[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """Seeds as one matrix, for numbers: the decisions [T] at which all were measured, and the values [N, T] there.

    Nothing is filled in; gaps (NaN) count as not measured.
    """
    known = [Curve(decision[there], value[there]) for decision, value in curves for there in [~np.isnan(value)]]
    if not known:
        return np.zeros(0), np.zeros((0, 0))
    common = functools.reduce(np.intersect1d, (curve.decision for curve in known))
    return common, np.stack([curve.value[np.searchsorted(curve.decision, common)] for curve in known])


def _covered(curves: Sequence[Curve]) -> np.ndarray:
    """Decisions at which some curve is measured, from where the last one starts to where the first one ends."""
    start = max(curve.decision[0] for curve in curves)
    end = min(curve.decision[-1] for curve in curves)
    grid = np.unique(np.concatenate([curve.decision for curve in curves]))
    return grid[(grid >= start) & (grid <= end)]


def _on(grid: np.ndarray, curves: Sequence[Curve]) -> np.ndarray:
    return np.stack([np.interp(grid, curve.decision, curve.value) for curve in curves])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and bool(np.isfinite(value))
