"""Noise that is sub-Gaussian with a given parameter: how it is drawn and how it is distributed.

All kinds are symmetric and R-sub-Gaussian for R = `scale`: uniform and Rademacher noise of deviation R are, and so is a
Gaussian of deviation R cut off at 1.5 R (its deviation is 0.74 R).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array
from scipy.special import ndtr, ndtri

from ubp2.errors import unknown_name

__all__ = ["NOISES", "Noise"]

NOISES = ("gaussian", "uniform", "rademacher", "truncated")
_CUT = 1.5
_WIDTH = math.sqrt(3)  # half the width of a uniform distribution of deviation 1


@dataclass(frozen=True)
class Noise:
    """A kind of noise and its sub-Gaussian parameter."""

    kind: str = "gaussian"
    scale: float = 0.1

    def __post_init__(self) -> None:
        if self.kind not in NOISES:
            raise unknown_name("noise", self.kind, NOISES)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Independent draws."""
        if self.kind == "gaussian":
            return self.scale * rng.standard_normal(shape)
        if self.kind == "uniform":
            return self.scale * rng.uniform(-_WIDTH, _WIDTH, shape)
        if self.kind == "rademacher":
            return self.scale * (2.0 * rng.integers(0, 2, shape) - 1)
        return self.scale * ndtri(ndtr(-_CUT) + (1 - 2 * ndtr(-_CUT)) * rng.random(shape))

    def below(self, z: Array) -> Array:
        """P(noise <= z)."""
        unit = z / self.scale
        if self.kind == "gaussian":
            return ndtr(unit)
        if self.kind == "uniform":
            return np.clip((unit + _WIDTH) / (2 * _WIDTH), 0.0, 1.0)
        if self.kind == "rademacher":
            return np.where(unit < -1, 0.0, np.where(unit < 1, 0.5, 1.0))
        return np.clip((ndtr(unit) - ndtr(-_CUT)) / (1 - 2 * ndtr(-_CUT)), 0.0, 1.0)
