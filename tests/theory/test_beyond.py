"""What goes beyond the paper: rewards from comparisons, and ensembles beside the posterior."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from ubp2.theory import ensembles
from ubp2.theory.comparisons import ComparisonGP
from ubp2.theory.kernels import Kernel
from ubp2.theory.learner import Beliefs
from ubp2.theory.options import Ensembles, Preferences
from ubp2.theory.preferences import AGENTS, _judged, run, study
from ubp2.theory.systems import make_system

SEEDS = st.integers(0, 2**32 - 1)
KERNEL = Kernel("rbf", 0.5)


def compared(seed: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, ComparisonGP]:
    """Inputs, functionals, labels and the process that has seen them."""
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-1, 1, (6, 2))
    visits = rng.integers(-2, 3, (count, 6)).astype(float)
    labels = rng.integers(0, 2, count).astype(float)
    gp = ComparisonGP(KERNEL, inputs)
    gp.add(visits, labels)
    return inputs, visits, labels, gp


@given(SEEDS, st.integers(1, 8))
@settings(max_examples=25)
def test_the_mode_is_the_maximum_of_the_posterior(seed: int, count: int) -> None:
    """Against a general optimiser, in the coordinates r = L z, where the prior of z is standard."""
    inputs, visits, labels, gp = compared(seed, count)
    root = np.linalg.cholesky(KERNEL(inputs, inputs) + 1e-10 * np.eye(6))

    def loss(z: np.ndarray) -> float:
        logits = visits @ root @ z
        return float(0.5 * z @ z + np.sum(np.logaddexp(0, logits) - labels * logits))

    def slope(z: np.ndarray) -> np.ndarray:
        return z + root.T @ visits.T @ (expit(visits @ root @ z) - labels)

    best = minimize(loss, np.zeros(6), jac=slope, tol=1e-12)
    np.testing.assert_allclose(gp.posterior()[0], root @ best.x, atol=1e-4)


@given(SEEDS, st.integers(1, 8))
@settings(max_examples=25)
def test_the_deviation_is_laplace_s(seed: int, count: int) -> None:
    """(K^-1 + C^T W C)^-1 at the mode, of rewards and of their differences to a mean."""
    inputs, visits, _, gp = compared(seed, count)
    gram = KERNEL(inputs, inputs) + 1e-9 * np.eye(6)
    mode, std = gp.posterior()
    chance = expit(visits @ mode)
    covariance = np.linalg.inv(np.linalg.inv(gram) + visits.T @ ((chance * (1 - chance))[:, None] * visits))
    np.testing.assert_allclose(std**2, np.diag(covariance), atol=1e-5)
    weights = np.full(6, 1 / 6)
    apart = np.eye(6) - weights
    relative, relative_std = gp.posterior(weights)
    np.testing.assert_allclose(relative, mode - mode @ weights, atol=1e-9)
    np.testing.assert_allclose(relative_std**2, np.diag(apart @ covariance @ apart.T), atol=1e-5)


def test_comparisons_do_not_see_a_constant_and_differences_do_not_need_it() -> None:
    """After many comparisons of two points the difference is known; the rewards themselves are not."""
    gp = ComparisonGP(Kernel("linear", degree=2), np.array([[-1.0], [1.0]]))
    visits = np.tile([[5.0, -5.0]], (200, 1))
    gp.add(visits, (np.arange(200) % 10 > 2).astype(float))
    assert gp.posterior()[1].min() > 1
    assert gp.posterior(np.array([0.5, 0.5]))[1].max() < 0.05


def test_without_comparisons_the_posterior_is_the_prior() -> None:
    gp = ComparisonGP(KERNEL, np.zeros((1, 2)))
    mean, std = gp.posterior()
    assert mean[0] == 0 and std[0] == pytest.approx(1)


def test_the_study_of_comparisons_has_every_agent() -> None:
    rows = study(Preferences(episodes=5, repeats=1)).tables.popitem()[1]
    assert [row["agent"] for row in rows] == list(AGENTS)
    assert all(row["bonus_first"] > 0 for row in rows)


def test_rewards_are_learned_from_comparisons_and_differences_are_known_sooner() -> None:
    """A teacher who was misunderstood would give a correlation below 0."""
    system = make_system("hills", "rbf")
    names = ("comparisons, bonus of differences", "comparisons, bonus of the reward itself")
    relative, absolute = (
        [run(system, AGENTS[name], 15, 40, np.random.default_rng(seed)) for seed in range(6)] for name in names
    )
    assert min(own.correlation for own in relative) > 0.4
    assert np.mean([own.bonus[-1] for own in relative]) < 0.8 * np.mean([own.bonus[-1] for own in absolute])


def test_coverage_by_hand() -> None:
    """Three pairs, of which the first two were visited: differences to their mean reward, in deviations."""
    system = make_system("hills", "rbf")._replace(reward=np.array([[0.0, 2.0, 4.0]]))
    mean, std = np.array([[0.0, 1.0, 4.5]]), np.array([[0.2, 0.3, 1.3]])  # off by 0.5, 0.5 and 1
    beliefs = Beliefs(system.law, mean, std, std)
    covered, correlation = _judged(system, beliefs, np.array([1.0, 1.0, 0.0]))
    assert covered == (0.5, pytest.approx(2 / 3))
    assert correlation == pytest.approx(np.corrcoef([0, 2, 4], [0, 1, 4.5])[0, 1])


@pytest.mark.slow
def test_ensembles_learn_the_data_and_the_posterior_knows_more() -> None:
    found = ensembles.study(Ensembles(repeats=2, points=20, members=2, updates=200))
    regions = {(row["model"], row["region"]): row for row in found.tables["by region"]}
    assert len(regions) == 4 * 3
    for model in ensembles.VARIANTS:
        assert regions[model, "data"]["error"] < 0.5
        assert regions[model, "gap"]["JRD"] <= np.log(2) + 1e-6
    assert regions["exact posterior", "gap"]["deviation"] > regions["exact posterior", "data"]["deviation"]
    spreads = [found.curves["models"][name]["std"] for name in ensembles.VARIANTS]
    assert all(a != b for a, b in itertools.combinations(spreads, 2))  # each variant is one
