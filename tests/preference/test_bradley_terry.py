"""The Bradley-Terry model with numbers worked by hand, and its noisy version against integration."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubp2.preference.bradley_terry import cross_entropy, is_right, logit, probability

LOG3 = math.log(3.0)


def test_probability_by_hand() -> None:
    """e^R1 / (e^R1 + e^R2): 3/4 for a lead of log 3, the other way round 1/4, and no overflow."""
    left, right = jnp.array([LOG3 + 5, 5.0, 2.0, 1e4]), jnp.array([5.0, LOG3 + 5, 2.0, -1e4])
    np.testing.assert_allclose(probability(left, right), [0.75, 0.25, 0.5, 1.0], rtol=1e-5)


def test_logit_without_noise_is_the_difference() -> None:
    """Log odds of Bradley-Terry."""
    np.testing.assert_allclose(logit(jnp.array([3.0, 1.0]), jnp.array([1.0, 4.0])), [2.0, -3.0])


def test_logit_integrates_the_noise_out() -> None:
    """sigmoid(logit) is E sigmoid(x) for x ~ N(m, v), by quadrature, to two hundredths."""
    mean, variance = (x.ravel() for x in np.meshgrid([-4.0, -1.0, 0.0, 0.5, 2.0, 6.0], [0.0, 0.3, 2.0, 10.0, 40.0]))
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    draws = mean[:, None] + np.sqrt(variance)[:, None] * nodes
    expected = (1 / (1 + np.exp(-draws))) @ weights / weights.sum()
    zero = np.zeros_like(mean)
    found = jax.nn.sigmoid(logit(jnp.array(mean), jnp.array(zero), jnp.array(variance)))
    np.testing.assert_allclose(found, expected, atol=0.02)
    ignorant = 1 / (1 + np.exp(-mean))
    assert np.abs(ignorant - expected).max() > 0.1  # without the correction the check would fail


def test_noise_has_a_gradient() -> None:
    """A member that is wrong gains by being unsure, one that is right loses by it."""
    slope = jax.grad(lambda v, label: cross_entropy(logit(jnp.array(2.0), jnp.array(0.0), v), label))
    assert float(slope(1.0, 0.0)) < 0 < float(slope(1.0, 1.0))


@pytest.mark.parametrize(
    ("odds", "label", "expected"),
    [
        (LOG3, 1.0, math.log(4 / 3)),
        (LOG3, 0.0, math.log(4)),
        (LOG3, 0.5, 0.5 * math.log(16 / 3)),
        (0.0, 0.5, math.log(2)),
        (1e4, 0.0, 1e4),
        (-1e4, 0.0, 0.0),
    ],
)
def test_cross_entropy_by_hand(odds: float, label: float, expected: float) -> None:
    """Left, right and tie, and no overflow for odds beyond reason."""
    assert float(cross_entropy(jnp.array(odds), jnp.array(label))) == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_a_tie_costs_least_at_even_odds() -> None:
    """y = 1/2 has its minimum, log 2, at log odds zero."""
    costs = np.asarray(cross_entropy(jnp.linspace(-3, 3, 7), jnp.full(7, 0.5)))
    assert costs.argmin() == 3 and costs[0] == pytest.approx(costs[-1])


def test_is_right_counts_a_tie_as_half() -> None:
    """Two right, two wrong, two ties."""
    logits, label = jnp.array([1.0, -1.0, 1.0, -1.0, 5.0, -5.0]), jnp.array([1.0, 0.0, 0.0, 1.0, 0.5, 0.5])
    assert is_right(logits, label).tolist() == [1.0, 1.0, 0.0, 0.0, 0.5, 0.5]
