"""Functions that lie in a reproducing kernel Hilbert space by construction, with the norm that they have there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from ubp2.theory.kernels import Kernel

__all__ = ["Member", "nearest", "random_member"]


class Member(NamedTuple):
    """f = sum_i weights_i k(centres_i, .); several columns of weights are several functions."""

    kernel: Kernel
    centres: Array  # [m, d]
    weights: Array  # [m, outputs]

    def __call__(self, x: Array) -> Array:
        return self.kernel(x, self.centres) @ self.weights

    @property
    def norm(self) -> float:
        """The largest norm of the functions, sqrt(w^T K w)."""
        squared = np.einsum("io,ij,jo->o", self.weights, self.kernel(self.centres, self.centres), self.weights)
        return float(np.sqrt(max(squared.max(), 0.0)))


def random_member(
    rng: np.random.Generator, kernel: Kernel, dimension: int, norm: float, outputs: int = 1, centres: int = 20
) -> Member:
    """A function with random centres in [-1, 1]^d and random weights, scaled to the norm."""
    where = rng.uniform(-1, 1, (centres, dimension))
    member = Member(kernel, where, rng.standard_normal((centres, outputs)))
    gram = kernel(where, where)
    norms = np.sqrt(np.einsum("io,ij,jo->o", member.weights, gram, member.weights))
    return member._replace(weights=member.weights * norm / norms)


def nearest(kernel: Kernel, x: Array, y: Array, ridge: float = 1e-3) -> Member:
    """The function of the space that fits y at x by ridge regression."""
    return Member(kernel, x, np.linalg.solve(kernel(x, x) + ridge * np.eye(len(x)), y))
