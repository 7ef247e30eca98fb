"""Kernels and the exact posterior: numbers worked by hand, the closed form, and what holds for all data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gamma, kv

from ubp2.errors import UserError
from ubp2.theory.functions import nearest, random_member
from ubp2.theory.gp import GP
from ubp2.theory.kernels import KERNELS, Kernel

SEEDS = st.integers(0, 2**32 - 1)
NAMES = st.sampled_from(KERNELS)


def data(seed: int, points: int, dimension: int = 2, outputs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (points, dimension)), rng.normal(size=(points, outputs))


def closed_form(kernel: Kernel, variance: float, x: np.ndarray, y: np.ndarray, at: np.ndarray) -> tuple:
    """The two lines of the appendix."""
    inverse = np.linalg.inv(kernel(x, x) + variance * np.eye(len(x)))
    cross = kernel(x, at)
    return cross.T @ inverse @ y, kernel.diagonal(at) - np.einsum("ij,ik,kj->j", cross, inverse, cross)


def test_kernels_by_hand() -> None:
    x, y = np.array([[1.0, 2.0]]), np.array([[0.5, -1.0]])
    distance = math.hypot(0.5, 3.0)
    assert Kernel("linear")(x, y)[0, 0] == pytest.approx(-1.5)
    assert Kernel("linear", degree=2)(x, y)[0, 0] == pytest.approx(1 - 1.5 + 0.25 + 2 * -0.5 + 4 * 1)
    assert Kernel("rbf", 0.7)(x, y)[0, 0] == pytest.approx(math.exp(-(distance**2) / (2 * 0.49)))


@pytest.mark.parametrize("name", ["rbf", "matern"])
def test_a_point_is_as_like_itself_as_can_be(name: str) -> None:
    """Exactly 1, as `diagonal` says: for Matern 1/2 what rounding leaves of zero is 6e-8."""
    x = np.random.default_rng(0).normal(3.0, 5.0, (200, 4))
    kernel = Kernel(name, 0.6, 0.5)
    np.testing.assert_array_equal(np.diag(kernel(x, x)), kernel.diagonal(x))
    near = np.array([[0.0], [1e-6]])
    assert Kernel("matern", 0.6, 0.5)(near, near)[0, 1] == pytest.approx(1 - 1e-6 / 0.6, abs=1e-9)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_is_the_table_s_formula(nu: float) -> None:
    at = np.array([[0.3], [1.1]])
    z = math.sqrt(2 * nu) * at[:, 0] / 0.6
    expected = z**nu * kv(nu, z) / (gamma(nu) * 2 ** (nu - 1))
    np.testing.assert_allclose(Kernel("matern", 0.6, nu)(at, np.zeros((1, 1)))[:, 0], expected, rtol=1e-12)


def test_kernels_that_there_are_not() -> None:
    with pytest.raises(UserError, match="unknown kernel 'rbv'. Did you mean rbf"):
        Kernel("rbv")
    with pytest.raises(UserError, match="nu 0.5, 1.5 and 2.5, got 1.0"):
        Kernel("matern", nu=1.0)
    with pytest.raises(UserError, match="length must be above 0, got 0"):
        Kernel("rbf", length=0)


def test_one_observation_by_hand() -> None:
    gp = GP(Kernel("rbf", 1.0), 0.25, np.array([[0.0], [1.0]]))
    gp.add(np.zeros((1, 1)), np.array([[2.0]]))
    mean, std = gp.posterior()
    k = math.exp(-0.5)
    np.testing.assert_allclose(mean[:, 0], [2 / 1.25, 2 * k / 1.25])
    np.testing.assert_allclose(std**2, [1 - 1 / 1.25, 1 - k * k / 1.25])
    assert gp.gain() == pytest.approx(0.5 * math.log(1 + 1 / 0.25))


@given(SEEDS, NAMES, st.lists(st.integers(1, 6), min_size=1, max_size=5), st.sampled_from([0.01, 0.1, 1.0]))
def test_posterior_in_steps_is_the_closed_form(seed: int, name: str, steps: list[int], variance: float) -> None:
    kernel = Kernel(name)
    x, y = data(seed, sum(steps), outputs=2)
    at, _ = data(seed + 1, 7)
    gp = GP(kernel, variance, at, outputs=2)
    for end, size in zip(np.cumsum(steps), steps, strict=True):
        gp.add(x[end - size : end], y[end - size : end])
    mean, var = closed_form(kernel, variance, x, y, at)
    for found in (gp.posterior(), gp.predict(at)):
        np.testing.assert_allclose(found[0], mean, atol=1e-7)
        np.testing.assert_allclose(found[1] ** 2, var, atol=1e-7)


@given(SEEDS, NAMES)
def test_deviation_never_grows_with_data_and_not_beyond_the_prior(seed: int, name: str) -> None:
    kernel = Kernel(name)
    x, y = data(seed, 8)
    at, _ = data(seed + 1, 20)
    gp, before = GP(kernel, 0.01, at), np.sqrt(kernel.diagonal(at))
    for i in range(8):
        gp.add(x[i : i + 1], y[i : i + 1])
        after = gp.posterior()[1]
        assert (after <= before + 1e-9).all()
        before = after


@given(SEEDS, NAMES)
def test_the_order_of_observations_does_not_matter(seed: int, name: str) -> None:
    x, y = data(seed, 9)
    order = np.random.default_rng(seed).permutation(9)
    found = []
    for own in (np.arange(9), order):
        gp = GP(Kernel(name), 0.1, x)
        gp.add(x[own], y[own])
        found.append((*gp.posterior(), gp.gain()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


@given(SEEDS, NAMES, st.floats(0.1, 5.0))
def test_a_random_member_has_its_norm_and_reproduces(seed: int, name: str, norm: float) -> None:
    """|f(x)| <= ||f|| sqrt(k(x, x)): what makes a norm worth knowing."""
    member = random_member(np.random.default_rng(seed), Kernel(name), 2, norm)
    at, _ = data(seed + 1, 30)
    assert member.norm == pytest.approx(norm)
    assert (np.abs(member(at)[:, 0]) <= norm * np.sqrt(member.kernel.diagonal(at)) + 1e-9).all()


def test_the_nearest_member_fits_what_lies_in_the_space() -> None:
    x, _ = data(0, 40)
    fitted = nearest(Kernel("linear"), x, x @ [[2.0], [-1.0]], ridge=1e-9)
    np.testing.assert_allclose(fitted(np.eye(2))[:, 0], [2.0, -1.0], atol=1e-6)
    assert fitted.norm == pytest.approx(math.sqrt(5), abs=1e-6)
