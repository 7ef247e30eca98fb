"""How fast a curve grows: the exponent p of a fit c N^p, with an interval over repetitions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array
from scipy.stats import t as student

__all__ = ["Estimate", "exponent", "interval"]


class Estimate(NamedTuple):
    """A mean over repetitions and its 95 % interval (Student's; the mean alone where there is one repetition)."""

    mean: float
    low: float
    high: float


def interval(values: Array) -> Estimate:
    """Mean of independent numbers with its 95 % interval."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Estimate(mean, mean, mean)
    half = float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Estimate(mean, mean - half, mean + half)


def exponent(cumulative: Array, first: float = 0.25) -> Estimate:
    """Slope of log cumulative [repeats, N] against log N, from the share `first` of the episodes on."""
    episodes = cumulative.shape[1]
    begin = min(int(first * episodes), episodes - 2)
    x = np.log(np.arange(1, episodes + 1))[begin:]
    y = np.log(np.maximum(cumulative[:, begin:], 1e-12))
    centred = x - x.mean()
    return interval((y - y.mean(axis=1, keepdims=True)) @ centred / (centred @ centred))
