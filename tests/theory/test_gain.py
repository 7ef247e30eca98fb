"""Information gain: monotone, submodular, and the greedy choice as good as it is promised to be."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ubp2.theory.gain import gain_of, greedy_gains, study
from ubp2.theory.gp import GP
from ubp2.theory.kernels import KERNELS, Kernel, rate
from ubp2.theory.lemmas import potential
from ubp2.theory.options import Gain

SEEDS = st.integers(0, 2**32 - 1)
NAMES = st.sampled_from(KERNELS)
VARIANCES = st.sampled_from([0.01, 0.1, 1.0])


def points(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, 2))


@given(SEEDS, NAMES, VARIANCES)
def test_gain_is_monotone(seed: int, name: str, variance: float) -> None:
    x = points(seed, 8)
    gains = [gain_of(Kernel(name), x[:i], variance) for i in range(9)]
    assert gains[0] == 0 and (np.diff(gains) >= -1e-9).all()


@given(SEEDS, NAMES, VARIANCES, st.integers(0, 4), st.integers(0, 4))
def test_gain_is_submodular(seed: int, name: str, variance: float, few: int, more: int) -> None:
    """A point tells less to who knows more."""
    x = points(seed, 1 + few + more)
    new, small, large = x[:1], x[1 : 1 + few], x[1:]

    def told(known: np.ndarray) -> float:
        return gain_of(Kernel(name), np.vstack([known, new]), variance) - gain_of(Kernel(name), known, variance)

    assert told(small) >= told(large) - 1e-8


@given(SEEDS, NAMES)
def test_the_posterior_knows_its_gain(seed: int, name: str) -> None:
    x = points(seed, 6)
    gp = GP(Kernel(name), 0.1, x)
    gp.add(x, np.zeros((6, 1)))
    assert gp.gain() == pytest.approx(gain_of(Kernel(name), x, 0.1), abs=1e-8)


@given(SEEDS, NAMES)
def test_greedy_choice_reaches_its_share_of_the_maximum(seed: int, name: str) -> None:
    x = points(seed, 7)
    kernel = Kernel(name)
    greedy = greedy_gains(kernel, x, 0.1, 3)
    sets = itertools.combinations_with_replacement(range(7), 3)
    best = max(gain_of(kernel, x[list(own)], 0.1) for own in sets)
    assert (1 - 1 / math.e) * best - 1e-9 <= greedy[-1] <= best + 1e-9
    assert greedy[0] == pytest.approx(max(gain_of(kernel, x[i : i + 1], 0.1) for i in range(7)))


def test_rates_of_the_table() -> None:
    at, log = np.array([100.0]), math.log(100)
    assert rate(Kernel("linear"), at, 3)[0] == pytest.approx(3 * log)
    assert rate(Kernel("rbf"), at, 3)[0] == pytest.approx(log**4)
    assert rate(Kernel("matern", nu=1.5), at, 3)[0] == pytest.approx(100**0.5 * log**0.5)


def test_the_linear_gain_grows_by_half_a_logarithm_a_dimension() -> None:
    """log det(I + X^T X / s^2) / 2 with N points spread over d directions: d / 2 log N in the end."""
    gains = greedy_gains(Kernel("linear"), points(0, 200), 0.01, 800)
    assert (gains[799] - gains[399]) / math.log(2) == pytest.approx(1.0, abs=0.05)


@given(SEEDS, NAMES, VARIANCES, st.integers(1, 4))
def test_squared_deviations_of_episodes_are_bounded_by_the_gain(
    seed: int, name: str, variance: float, count: int
) -> None:
    """Lemma 17 of Curi et al., with a model that is fixed within each episode of five steps."""
    x = points(seed, 5 * count)
    gp, deviations = GP(Kernel(name), variance, x), []
    for episode in x.reshape(count, 5, 2):
        deviations.append(gp.predict(episode)[1])
        gp.add(episode, np.zeros((5, 1)))
    check = potential(gp, np.array(deviations))
    assert check.left <= check.right + 1e-9
    assert gp.gain() == pytest.approx(gain_of(Kernel(name), x, variance), abs=1e-8)


def test_the_bound_of_squared_deviations_is_attained() -> None:
    """One step an episode, at a point where the prior is k: the first episode has equality."""
    gp = GP(Kernel("rbf"), 0.1, np.zeros((1, 2)))
    first = gp.predict(np.zeros((1, 2)))[1]
    gp.add(np.zeros((1, 2)), np.zeros((1, 1)))
    check = potential(gp, first[None])
    assert check.left == pytest.approx(check.right) == pytest.approx(1.0)


@pytest.mark.parametrize("count", [20, 21])
def test_growth_is_between_half_of_the_points_and_all(count: int) -> None:
    """Also where half is not a whole number: the rate of the linear kernel is log N."""
    found = study(Gain(points=count, dimensions=(1,), candidates=30)).tables.popitem()[1][0]
    half = count // 2
    assert found["rate's_growth"] == pytest.approx(math.log(math.log(count) / math.log(half)) / math.log(count / half))
    assert found["bound's_exponent"] == pytest.approx(0.5 + 1.5 * found["measured_growth"])


def test_the_corners_can_be_chosen() -> None:
    """The first point of a linear kernel is a corner, whatever the random candidates are."""
    (linear, *_) = study(Gain(points=2, dimensions=(2,), candidates=2)).curves["curves"]
    assert linear["gain"][0] == pytest.approx(0.5 * math.log1p(2 / 0.01))


def test_the_study_has_a_curve_a_kernel_and_dimension() -> None:
    found = study(Gain(points=20, dimensions=(1, 2), candidates=30))
    assert len(found.tables["maximum information gain"]) == len(found.curves["curves"]) == 8
    assert all(own["gain"][-1] == pytest.approx(own["rate"][-1]) for own in found.curves["curves"])
