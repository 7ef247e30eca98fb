"""Widths and coefficients by hand, and how often the widths cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ubp2.theory.bounds import beta, printed_beta, return_coefficient
from ubp2.theory.calibration import study, trial
from ubp2.theory.growth import exponent, interval
from ubp2.theory.kernels import Kernel
from ubp2.theory.learner import Knowledge
from ubp2.theory.noise import NOISES, Noise
from ubp2.theory.options import Calibration
from ubp2.theory.systems import make_system

SEEDS = st.integers(0, 2**32 - 1)


def test_widths_by_hand() -> None:
    assert beta(1.0, 2.0, math.exp(-6), 0.1, 0.1) == pytest.approx(1 + 4)
    assert beta(1.0, 2.0, math.exp(-6), 0.1, 0.2) == pytest.approx(1 + 2)
    assert printed_beta(1.0, 1.0, math.exp(-6), 0.1) == pytest.approx(1 + 0.1 * 4)


def test_intervals_that_hold_together_share_what_may_fail() -> None:
    """Two coordinates and the reward: a third of 0.3 each, and without data nothing else widens them."""
    system = make_system("pendulum", "rbf")
    root = math.sqrt(2 * math.log(10))
    expected = (system.dynamics_norm + root, system.reward_norm + root)
    assert Knowledge(system).betas(0.3) == pytest.approx(expected)


def test_the_coefficient_of_returns_by_hand() -> None:
    """Two more steps after the first are worth 1 + 0.5 of the span; without end they are worth 2."""
    unit = 0.5 * 3.0 * 2.0 / (0.1 * math.sqrt(2 * math.pi))
    assert return_coefficient(2.0, 3.0, 0.1, 0.5, 3) == pytest.approx(1.5 * unit)
    assert return_coefficient(2.0, 3.0, 0.1, 0.5, None) == pytest.approx(2 * unit)
    assert return_coefficient(2.0, 3.0, 0.1, 0.5, 1) == 0


@given(st.floats(0.0, 2.0), st.floats(0.05, 1.0))
def test_gaussians_are_no_further_apart_than_the_coefficient_says(distance: float, noise: float) -> None:
    """Total variation of two Gaussians, erf(D / (2 sqrt(2) s)), against D / (s sqrt(2 pi))."""
    assert math.erf(distance / (2 * math.sqrt(2) * noise)) <= distance / (noise * math.sqrt(2 * math.pi)) + 1e-12


@pytest.mark.parametrize("kind", NOISES)
def test_the_proved_width_covers_and_the_printed_one_does_not(kind: str) -> None:
    """Of 20 functions at most a tenth may fail; with the noise's own variance the printed width loses many."""
    trials = [trial(Kernel("rbf", 0.3), Noise(kind, 0.1), 30, 0.1, np.random.default_rng(i)) for i in range(20)]
    proved = [bool((own.needed <= own.proved).all()) for own in trials]
    printed = [bool((own.needed <= own.printed).all()) for own in trials]
    assert np.mean(proved) >= 0.9
    assert np.mean(printed) <= 0.8


def test_before_any_observation_the_norm_alone_is_wide_enough() -> None:
    """|f(x)| <= B sqrt(k(x, x)): the first width that is needed is at most B = 1."""
    assert trial(Kernel("rbf", 0.3), Noise("gaussian", 0.1), 1, 0.1, np.random.default_rng(0)).needed[0] <= 1 + 1e-9


def test_the_study_has_a_row_a_kernel_and_noise() -> None:
    found = study(Calibration(repeats=2, points=3))
    assert [row["noise"] for row in found.tables["coverage"]] == 3 * list(NOISES)


@given(st.floats(0.2, 1.2), st.floats(0.1, 10.0), st.floats(0.0, 100.0))
def test_an_exponent_is_found_again_below_any_offset(power: float, constant: float, offset: float) -> None:
    curve = offset + constant * np.arange(1, 101.0) ** power
    found = exponent(np.array([curve, 2 * curve]))
    assert found == pytest.approx((power, power, power))


def test_linear_regret_after_a_costly_start_is_linear() -> None:
    """A fit of log R to log N says 0.5."""
    assert exponent(np.array([100 + np.arange(1, 101.0)])).mean == pytest.approx(1)


def test_the_interval_of_an_exponent_is_over_agents() -> None:
    """One agent stops, the other goes on for ever: together linear, and the interval knows that both happen."""
    numbers = np.arange(1, 101.0)
    found = exponent(np.array([numbers, numbers, np.sqrt(numbers), np.sqrt(numbers)]))
    assert found.low == pytest.approx(0.5) and found.high == pytest.approx(1) and 0.5 < found.mean < 1


def test_an_interval_by_hand() -> None:
    """Two numbers: Student's quantile for one degree of freedom is 12.706."""
    found = interval(np.array([0.0, 2.0]))
    assert (
        found.mean == 1
        and found.high == pytest.approx(1 + 12.706, abs=1e-3)
        and found.low == pytest.approx(2 - found.high)
    )
    assert interval(np.array([3.0])) == (3, 3, 3)
