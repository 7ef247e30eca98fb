"""How fast a curve grows: the exponent p of C + c N^p, with an interval over repetitions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array
from scipy.stats import t as student

__all__ = ["Estimate", "exponent", "few", "interval"]

_RESAMPLES = 2000
_ENOUGH = 5  # repetitions from which on an interval says something


class Estimate(NamedTuple):
    """A number and its 95 % interval over repetitions; the number alone where there is one repetition."""

    mean: float
    low: float
    high: float


def interval(values: Array) -> Estimate:
    """Mean of independent numbers with its 95 % interval (Student's)."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Estimate(mean, mean, mean)
    half = float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Estimate(mean, mean - half, mean + half)


def few(repeats: int) -> list[str]:
    """A warning for the notes of a study whose repetitions are too few for its intervals; else nothing."""
    if repeats >= _ENOUGH:
        return []
    how = (
        f"Only {repeats} agents a row: intervals of so few say little, and those of exponents are far too narrow"
        if repeats > 1
        else "Only 1 agent a row: there are no intervals, and their ends repeat the number"
    )
    return [f"{how}. Take --repeats 10 or more before you read anything into them."]


def exponent(cumulative: Array) -> Estimate:
    """Exponent p for which the mean curve [repeats, N] is C + c N^p at N, N / 2 and N / 4.

    p = log2 of what the second half adds over what the second quarter adds. Increments do not see the offset C, what
    the first episodes cost: with an offset, a fit of log R to log N finds linear regret sublinear. The interval comes
    from agents that are drawn again (percentiles of the bootstrap). Up to three episodes at the end are left out.
    """
    quarter = cumulative.shape[1] // 4
    early = cumulative[:, 2 * quarter - 1] - cumulative[:, quarter - 1]
    late = cumulative[:, 4 * quarter - 1] - cumulative[:, 2 * quarter - 1]

    def estimate(agents: Array) -> Array:
        adds = (np.maximum(own[agents].mean(axis=-1), 1e-12) for own in (late, early))
        return np.subtract(*(np.log2(own) for own in adds))

    count = len(cumulative)
    drawn = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
    low, high = np.quantile(estimate(drawn), (0.025, 0.975))
    return Estimate(float(estimate(np.arange(count))), float(low), float(high))
