"""Maximum information gain (appendix D.1) by greedy choice, beside the rates of the paper's table.

Gain is monotone and submodular, so that choosing the point of highest posterior variance again and again reaches at
least 1 - 1/e of the maximum over the points to choose from: that lies between the curve and 1.58 times the curve.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy import ndarray as Array

from ubp2.theory.findings import Findings
from ubp2.theory.kernels import Kernel, rate
from ubp2.theory.options import Gain

__all__ = ["KERNELS_SHOWN", "gain_of", "greedy_gains", "study"]

KERNELS_SHOWN = {
    "linear": Kernel("linear"),
    "RBF": Kernel("rbf", length=0.5),
    "Matérn 5/2": Kernel("matern", length=0.5, nu=2.5),
    "Matérn 3/2": Kernel("matern", length=0.5, nu=1.5),
}
_VARIANCE = 0.01  # of the noise, where k(x, x) is at most 1 (linear: d)


def gain_of(kernel: Kernel, points: Array, variance: float) -> float:
    """Information that observations at `points` [n, d] give: log det(I + K / s^2) / 2."""
    return 0.5 * float(np.linalg.slogdet(np.eye(len(points)) + kernel(points, points) / variance)[1])


def greedy_gains(kernel: Kernel, candidates: Array, variance: float, count: int) -> Array:
    """Gain of the first 1, 2, ... `count` points of a greedy choice among candidates, which may come again."""
    left = kernel.diagonal(candidates).astype(float)  # posterior variance
    half = np.empty((count, len(candidates)))
    gains = np.empty(count)
    for i in range(count):
        best = int(left.argmax())
        gains[i] = 0.5 * np.log1p(left[best] / variance)
        column = kernel(candidates[best : best + 1], candidates)[0] - half[:i, best] @ half[:i]
        half[i] = column / np.sqrt(left[best] + variance)
        left = np.maximum(left - half[i] ** 2, 0.0)
    return gains.cumsum()


def study(options: Gain) -> Findings:
    """A curve a kernel and dimension, and how well the table's rate follows its second half."""
    rng = np.random.default_rng(options.seed)
    numbers = np.arange(1, options.points + 1)
    rows, curves = [], []
    for dimension in options.dimensions:
        corners = np.array(list(itertools.product((-1.0, 1.0), repeat=dimension)))  # where a linear kernel is largest
        candidates = np.vstack([corners, rng.uniform(-1, 1, (options.candidates, dimension))])
        for name, kernel in KERNELS_SHOWN.items():
            gains = greedy_gains(kernel, candidates, _VARIANCE, options.points)
            rates = rate(kernel, numbers.astype(float), dimension)
            half = options.points // 2
            constant = gains[-1] / rates[-1]
            slopes = [np.log(curve[-1] / curve[half - 1]) / np.log(options.points / half) for curve in (gains, rates)]
            rows.append(
                {"kernel": name, "dimension": dimension, f"gain_of_{options.points}": float(gains[-1])}
                | {"constant": float(constant), "measured_growth": float(slopes[0]), "rate's_growth": float(slopes[1])}
                | {"bound's_exponent": float(0.5 + 1.5 * slopes[0])}
            )
            curves.append(
                {"kernel": name, "dimension": dimension, "gain": gains.tolist(), "rate": (constant * rates).tolist()}
            )
    notes = [
        "growth: exponent between half of the observations and all of them; constant: gain divided by the table's "
        "rate at the last observation; bound's exponent: that of sqrt(N) gain^(3/2), the regret bound with "
        "the measured gain.",
        f"The choice is among {options.candidates} random points and the corners of the cube; the maximum over these "
        "lies between the gain and 1.58 times it.",
    ]
    return Findings("gain", {"maximum information gain": rows}, {"curves": curves}, notes)
