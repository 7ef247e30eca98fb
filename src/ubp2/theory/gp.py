"""Exact Gaussian process regression as in appendix D.1, grown observation by observation.

The Cholesky factor of K + s^2 I gets new rows instead of being computed again: m new observations on top of M cost
O(m M^2) in place of O(M^3). Points whose posterior is wanted after every step are `watch`ed: their half-solved
covariances L^-1 k(X, .) get new rows too, and mean and variance on a whole grid, which are sums over rows, new terms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array
from scipy.linalg import solve_triangular

from ubp2.theory.kernels import Kernel

__all__ = ["GP"]


class _Rows(NamedTuple):
    """What an observation adds a row to."""

    inputs: Array  # X
    factor: Array  # L with L L^T = K + s^2 I
    targets: Array  # L^-1 y
    half: Array  # L^-1 k(X, watched)


class GP:
    """Posterior of `outputs` functions with one kernel, seen at the same inputs with noise of variance `variance`.

    The coordinates of the dynamics share kernel and inputs, so that they share the posterior deviation as well.
    """

    def __init__(self, kernel: Kernel, variance: float, watch: Array, outputs: int = 1) -> None:
        self.kernel, self.variance, self.watched = kernel, float(variance), watch
        self._mean, self._left = np.zeros((len(watch), outputs)), kernel.diagonal(watch).astype(float)
        self._count = 0
        self._rows = _Rows(
            np.empty((0, watch.shape[1])), np.empty((0, 0)), np.empty((0, outputs)), np.empty((0, len(watch)))
        )

    def __len__(self) -> int:
        return self._count

    def add(self, x: Array, y: Array) -> None:
        """Observe y [m, outputs] at x [m, d]."""
        old, new = self._count, self._count + len(x)
        below = self._solve(self.kernel(self._seen.inputs, x)).T
        gram = self.kernel(x, x) + self.variance * np.eye(len(x)) - below @ below.T
        corner = np.linalg.cholesky((gram + gram.T) / 2)
        targets, half = (
            solve_triangular(corner, right - below @ above, lower=True, check_finite=False)
            for right, above in ((y, self._seen.targets), (self.kernel(x, self.watched), self._seen.half))
        )
        self._make_room(new)
        rows = self._rows
        rows.inputs[old:new], rows.targets[old:new], rows.half[old:new] = x, targets, half
        rows.factor[old:new, :old], rows.factor[old:new, old:new] = below, corner
        self._mean = self._mean + half.T @ targets
        self._left = self._left - np.einsum("ij,ij->j", half, half)
        self._count = new

    def posterior(self) -> tuple[Array, Array]:
        """Mean [n, outputs] and deviation [n] at the watched points."""
        return self._mean, np.sqrt(np.maximum(self._left, 0.0))

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean [n, outputs] and deviation [n] at any points."""
        half = self._solve(self.kernel(self._seen.inputs, x))
        left = self.kernel.diagonal(x) - np.einsum("ij,ij->j", half, half)
        return half.T @ self._seen.targets, np.sqrt(np.maximum(left, 0.0))

    def gain(self) -> float:
        """Information that the observations gave about one function: log det(I + K / s^2) / 2."""
        return float(np.log(np.diag(self._seen.factor)).sum() - len(self) * math.log(self.variance) / 2)

    @property
    def _seen(self) -> _Rows:
        """The rows in use, as views."""
        n = self._count
        rows = self._rows
        return _Rows(rows.inputs[:n], rows.factor[:n, :n], rows.targets[:n], rows.half[:n])

    def _solve(self, right: Array) -> Array:
        return solve_triangular(self._seen.factor, right, lower=True, check_finite=False) if len(self) else right

    def _make_room(self, count: int) -> None:
        """Room for twice as many observations, when there is none left: copies are rare."""
        if count <= len(self._rows.inputs):
            return
        old, seen = len(self), self._seen
        inputs, targets, half = (np.zeros((2 * count, own.shape[1])) for own in (seen.inputs, seen.targets, seen.half))
        factor = np.zeros((2 * count, 2 * count))
        inputs[:old], targets[:old], half[:old], factor[:old, :old] = seen.inputs, seen.targets, seen.half, seen.factor
        self._rows = _Rows(inputs, factor, targets, half)
