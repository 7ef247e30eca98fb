"""A Gaussian process on rewards that is learned from comparisons: Bradley-Terry likelihood, Laplace's approximation.

A comparison sees a linear functional of the reward, the difference of the sums over two segments, through a logistic
likelihood. So the posterior over all rewards follows from one over the differences that were compared (Rasmussen and
Williams, algorithms 3.1 and 3.2, with the functionals in place of points).
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray as Array
from scipy.linalg import cholesky, solve_triangular
from scipy.special import expit

from ubp2.theory.kernels import Kernel

__all__ = ["ComparisonGP"]

_STEPS, _TOLERANCE = 50, 1e-8


class ComparisonGP:
    """Rewards at fixed inputs, given which of two segments was preferred."""

    def __init__(self, kernel: Kernel, inputs: Array) -> None:
        self._gram = kernel(inputs, inputs)
        self._functionals = np.empty((0, len(inputs)))  # visits of the first segment minus those of the second
        self._labels = np.empty(0)  # 1 where the first was preferred

    def add(self, visits: Array, labels: Array) -> None:
        """Take in comparisons: differences of visits [m, inputs] and whether the first segment was preferred [m]."""
        self._functionals = np.vstack([self._functionals, visits])
        self._labels = np.append(self._labels, labels)

    def posterior(self, reference: Array | None = None) -> tuple[Array, Array]:
        """Mean and deviation [inputs] of rewards, or of their differences to the mean with weights `reference`.

        Comparisons of segments of one length do not see a constant, so that the deviation of a reward itself never
        falls below that of the constant; that of a difference does.
        """
        weights = np.zeros(len(self._gram)) if reference is None else reference
        shift = self._gram @ weights
        prior = np.diag(self._gram) - 2 * shift + weights @ shift
        if not len(self._labels):
            return np.zeros(len(self._gram)), np.sqrt(np.maximum(prior, 0.0))
        cross = self._functionals @ self._gram  # [m, inputs]
        cross_own = cross - (cross @ weights)[:, None]
        slope, factor, root = self._mode(cross @ self._functionals.T)
        half = solve_triangular(factor, root[:, None] * cross_own, lower=True)
        return cross_own.T @ slope, np.sqrt(np.maximum(prior - np.einsum("ij,ij->j", half, half), 0.0))

    def _mode(self, gram: Array) -> tuple[Array, Array, Array]:
        """Newton's method: gradient of the log likelihood at the mode, factor of I + W^1/2 K W^1/2, and W^1/2."""
        value = np.zeros(len(gram))
        for _ in range(_STEPS):
            chance = expit(value)
            slope = self._labels - chance
            root = np.sqrt(chance * (1 - chance))
            factor = cholesky(np.eye(len(gram)) + root[:, None] * gram * root, lower=True)
            right = root**2 * value + slope
            inner = solve_triangular(factor, root * (gram @ right), lower=True)
            step = gram @ (right - root * solve_triangular(factor.T, inner, lower=False))
            done = np.max(np.abs(step - value)) < _TOLERANCE
            value = step
            if done:
                break
        return slope, factor, root
