"""Coefficients of the theory: confidence widths (beta) and what an error of the model costs in return (lambda)."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["beta", "printed_beta", "return_coefficient"]


def beta(norm: float, gain: float, delta: float, noise: float, deviation: float) -> float:
    """Width for which |f - mu| <= beta sigma everywhere and at all times, with probability 1 - delta.

    From the self-normalised inequality of Abbasi-Yadkori for f of norm at most `norm`, R-sub-Gaussian noise with R =
    `noise`, and a posterior that is computed with variance deviation^2:
    beta = B + R / s sqrt(2 (gain + log(1 / delta))), with the gain of the data at hand in place of its maximum.
    """
    return norm + noise / deviation * math.sqrt(2 * (gain + math.log(1 / delta)))


def printed_beta(norm: float, gain: float, delta: float, noise: float) -> float:
    """B + R sqrt(2 (gain + 1 + log(1 / delta))): Theorem 2 of Chowdhury and Gopalan as the paper prints it.

    Theirs holds for a posterior computed with variance 1 + 2 / T. The paper's posterior has the noise's own variance,
    and with it the factor in front of the root must be R / s, not R: see `beta`.
    """
    return norm + noise * math.sqrt(2 * (gain + 1 + math.log(1 / delta)))


def return_coefficient(beta: float, span: float, noise: float, gamma: float, horizon: int | None) -> float:
    """Lambda of the lemma on returns: |eta(pi, p*) - eta(pi, mu)| <= lambda Sigma(pi) under Gaussian noise.

    Two Gaussians of deviation `noise` whose means lie D apart differ by at most D / (noise sqrt(2 pi)) in total
    variation, so that the expectation of a value function differs by at most its span times that. The span of the
    value of `horizon` - 1 more steps (None: infinitely many) is at most their discounted number times that of the
    reward.
    """
    steps = 1 / (1 - gamma) if horizon is None else float(np.sum(gamma ** np.arange(max(horizon - 1, 0))))
    return gamma * steps * span * beta / (noise * math.sqrt(2 * math.pi))
