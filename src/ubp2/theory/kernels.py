"""The kernels of the paper's table of information gains, and the growth rates that stand in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from ubp2.errors import UserError, unknown_name

__all__ = ["KERNELS", "NAMES", "Kernel", "rate"]

NAMES = {"linear": "linear", "rbf": "RBF", "matern": "Matérn"}  # as figures and tables call them
KERNELS = tuple(NAMES)
_HALF_INTEGERS: dict[float, Callable[[Array], Array]] = {  # Matern as a polynomial, where it is one
    0.5: lambda z: np.exp(-z),
    1.5: lambda z: (1 + z) * np.exp(-z),
    2.5: lambda z: (1 + z + z * z / 3) * np.exp(-z),
}


@dataclass(frozen=True)
class Kernel:
    """A covariance function of points [n, d] and [m, d].

    `degree` is for the linear kernel: 1 is the paper's x.y; 2 is a linear kernel on 1, x and all products of two
    coordinates, which the reward of a linear-quadratic system needs.
    """

    name: str = "rbf"
    length: float = 0.5
    nu: float = 2.5
    degree: int = 1

    def __post_init__(self) -> None:
        if self.name not in KERNELS:
            raise unknown_name("kernel", self.name, KERNELS)
        if self.name == "matern" and self.nu not in _HALF_INTEGERS:
            raise UserError(f"the Matern kernel is there for nu 0.5, 1.5 and 2.5, got {self.nu}; choose one of these")
        if self.length <= 0:
            raise UserError(f"a kernel's length must be above 0, got {self.length}")

    def __call__(self, x: Array, y: Array) -> Array:
        if self.name == "linear":
            return self._features(x) @ self._features(y).T
        sizes = (x * x).sum(1)[:, None] + (y * y).sum(1)
        squared = sizes - 2 * x @ y.T
        # What rounding leaves of zero has a root near 1e-8, and Matern 1/2 is linear in that.
        squared = np.where(squared > (x.shape[1] + 2) * np.finfo(float).eps * sizes, squared, 0.0)
        if self.name == "rbf":
            return np.exp(-squared / (2 * self.length**2))
        return _HALF_INTEGERS[self.nu](np.sqrt(2 * self.nu * squared) / self.length)

    def diagonal(self, x: Array) -> Array:
        """k(x, x) for each point."""
        return (self._features(x) ** 2).sum(1) if self.name == "linear" else np.ones(len(x))

    def _features(self, x: Array) -> Array:
        if self.degree == 1:
            return x
        products = [x[:, i] * x[:, j] for i in range(x.shape[1]) for j in range(i, x.shape[1])]
        return np.column_stack([np.ones(len(x)), x, *products])


def rate(kernel: Kernel, points: Array, dimension: int) -> Array:
    """How the maximum gain of `points` observations grows at most, by the paper's table, without constants."""
    logarithm = np.log(np.maximum(points, math.e))
    if kernel.name == "linear":
        return dimension * logarithm
    if kernel.name == "rbf":
        return logarithm ** (dimension + 1)
    smooth = 2 * kernel.nu + dimension
    return points ** (dimension / smooth) * logarithm ** (2 * kernel.nu / smooth)
