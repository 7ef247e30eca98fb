"""Bicubic resampling of one axis as a matrix, in the two ways in which vision models were trained with it."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["resampling"]


def resampling(old: int, new: int, *, antialias: bool) -> np.ndarray:
    """Weights [new, old] that take samples at `old` places of an axis to `new` places of the same axis.

    Without `antialias` every new place reads its four neighbours, the border repeated (a = -0.75). With it the kernel
    is as wide as the new places are apart, and what lies outside is left out (a = -0.5). The two differ also where
    there are more new places than old.
    """
    scale = old / new
    weights = np.zeros((new, old))
    for i in range(new):
        if antialias:
            width, centre = max(scale, 1.0), scale * (i + 0.5)
            reach = 2.0 * width
            places = np.arange(max(int(centre - reach + 0.5), 0), min(int(centre + reach + 0.5), old))
            own = _cubic((places - centre + 0.5) / width, -0.5)
            weights[i, places] = own / own.sum()
        else:
            centre = scale * (i + 0.5) - 0.5
            places = math.floor(centre) + np.arange(-1, 3)
            np.add.at(weights[i], np.clip(places, 0, old - 1), _cubic(places - centre, -0.75))
    return weights


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """The cubic convolution kernel of Keys, zero from 2 on."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
