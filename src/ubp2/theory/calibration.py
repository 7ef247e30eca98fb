"""How often |f - mu| <= beta sigma holds everywhere and at all times (definition D.1).

Functions are random members of the kernel's space with a known norm. Points are chosen by the upper confidence bound of
what is known so far, because the theorem allows that and an easier choice would be no test of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from ubp2.theory.bounds import beta, printed_beta
from ubp2.theory.findings import Findings
from ubp2.theory.functions import random_member
from ubp2.theory.gp import GP
from ubp2.theory.kernels import Kernel
from ubp2.theory.noise import NOISES, Noise
from ubp2.theory.options import Calibration

__all__ = ["Trial", "study", "trial"]

_NORM, _SCALE = 1.0, 0.1
_KERNELS = {"linear": Kernel("linear"), "rbf": Kernel("rbf", 0.3), "matern": Kernel("matern", 0.3)}
_CONSTANTS = (1.0, 2.0, 3.0)


class Trial(NamedTuple):
    """One function: after each observation, the width that would have been needed, and the two bounds."""

    needed: Array  # [T], max over x of |f - mu| / sigma
    proved: Array  # [T]
    printed: Array  # [T]


def trial(kernel: Kernel, noise: Noise, points: int, delta: float, rng: np.random.Generator) -> Trial:
    """Observe a random function at points of highest upper confidence bound."""
    grid = np.linspace(-1, 1, 201)[:, None]
    truth = random_member(rng, kernel, 1, _NORM)
    values = truth(grid)[:, 0]
    gp = GP(kernel, noise.scale**2, grid)
    rows = np.empty((3, points))
    for t in range(points):
        mean, std = gp.posterior()
        known = std > 1e-9  # where the kernel says that f = mu, as the linear one does at 0
        rows[0, t] = np.max(np.abs(values - mean[:, 0])[known] / std[known])
        rows[1, t] = beta(_NORM, gp.gain(), delta, noise.scale, noise.scale)
        rows[2, t] = printed_beta(_NORM, gp.gain(), delta, noise.scale)
        chosen = int((mean[:, 0] + 2 * std).argmax())
        gp.add(grid[chosen : chosen + 1], values[chosen] + noise.draw(rng, (1, 1)))
    return Trial(*rows)


def study(options: Calibration) -> Findings:
    """Coverage of each width for each kernel and kind of noise, and the curves of what was needed."""
    rows, curves = [], []
    for number, (name, kernel) in enumerate(_KERNELS.items()):
        for kind in NOISES:
            trials = [
                trial(kernel, Noise(kind, _SCALE), options.points, options.delta, np.random.default_rng(seed))
                for seed in ([options.seed, number, NOISES.index(kind), repeat] for repeat in range(options.repeats))
            ]
            needed, proved, printed = (np.array(rows) for rows in zip(*trials, strict=True))
            quantile = np.quantile(needed, 1 - options.delta, axis=0)
            ever = float(np.quantile(needed.max(axis=1), 1 - options.delta))
            last = float(proved[:, -1].mean())
            widths = {"proved": proved, "printed": printed} | {f"beta_{c:g}": np.array(c) for c in _CONSTANTS}
            shares = {label: float((needed <= width).all(axis=1).mean()) for label, width in widths.items()}
            rows.append(
                {"kernel": name, "noise": kind, **shares, "needed": ever, "beta": last, "wider_by": last / ever}
            )
            curves.append(
                {"kernel": name, "noise": kind, "needed": quantile.tolist()}
                | {"proved": proved.mean(axis=0).tolist(), "printed": printed.mean(axis=0).tolist()}
            )
    notes = [
        f"Shares of {options.repeats} functions (norm {_NORM:g}, noise {_SCALE:g}) for which the interval held at all "
        f"points after each of 0 to {options.points - 1} observations; {1 - options.delta:g} is promised. needed: the "
        f"width that would have covered {1 - options.delta:g} of them; beta: the proved width at the end."
    ]
    return Findings("calibration", {"coverage": rows}, {"curves": curves, "delta": options.delta}, notes)
