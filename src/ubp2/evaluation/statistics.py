"""Numbers over seeds that one can trust with few of them: the interquartile mean and bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["interval", "iqm"]

RESAMPLES = 5000


def iqm(scores: np.ndarray) -> float:
    """Mean of the middle half: a quarter of the scores, rounded down, is left out at each end."""
    ordered = np.sort(np.asarray(scores, float), axis=None)
    if not ordered.size:
        raise ValueError("the interquartile mean of no scores")
    cut = ordered.size // 4
    return float(ordered[cut : ordered.size - cut].mean())


def interval(
    groups: Sequence[np.ndarray],
    statistic: Callable[[Sequence[np.ndarray]], float],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Bootstrap interval of a statistic of groups of scores (tasks, methods): seeds are drawn again within each group.

    Percentiles of the statistic over resamples; the same call gives the same interval.
    """
    generator = np.random.default_rng(seed)
    draws = [
        statistic([group[generator.integers(0, len(group), len(group))] for group in groups]) for _ in range(RESAMPLES)
    ]
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(draws, [tail, 100 - tail])
    return float(low), float(high)
