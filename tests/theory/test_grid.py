"""Planning and evaluation on a grid against enumeration, long sums and Riccati's equation; the noise that moves it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_are

from ubp2.errors import UserError
from ubp2.theory.grid import Grid, evaluate, evaluate_forever, plan, plan_forever, transitions
from ubp2.theory.noise import NOISES, Noise
from ubp2.theory.systems import SYSTEMS, make_system, random_system

SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("kind", NOISES)
def test_noise_is_drawn_as_it_is_distributed(kind: str) -> None:
    noise = Noise(kind, 0.3)
    draws = noise.draw(np.random.default_rng(0), (20_000,))
    at = np.array([-0.5, -0.31, -0.1, 0.0, 0.2, 0.4])
    np.testing.assert_allclose(noise.below(at), (draws[:, None] <= at).mean(axis=0), atol=0.015)


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("slope", [0.5, 2.0, 6.0])
def test_noise_is_sub_gaussian_with_its_parameter(kind: str, slope: float) -> None:
    """E exp(l x) <= exp(l^2 R^2 / 2), by Riemann-Stieltjes sums over the distribution."""
    noise = Noise(kind, 0.5)
    edges = np.linspace(-6, 6, 24_001)
    moment = np.sum(np.diff(noise.below(edges)) * np.exp(slope * edges[:-1]))
    assert moment <= math.exp(slope**2 * 0.25 / 2) * (1 + 1e-6)


def test_noise_that_there_is_not() -> None:
    with pytest.raises(UserError, match="unknown noise 'gausian'. Did you mean gaussian"):
        Noise("gausian")


def test_the_law_in_two_dimensions_is_what_rounding_gives() -> None:
    grid = Grid((np.linspace(-1, 1, 4), np.linspace(-1, 1, 3)))
    mean = np.random.default_rng(0).uniform(-1, 1, (12, 2, 2))
    noise = Noise("gaussian", 0.4)
    law = transitions(grid, mean, noise)
    rng = np.random.default_rng(1)
    landed = [grid.nearest(mean[5, 1] + noise.draw(rng, (2,))) for _ in range(5000)]
    counted = np.bincount(landed, minlength=12) / 5000
    row = law.under(np.ones(12, int))[5]
    np.testing.assert_allclose(row, counted, atol=0.03)
    np.testing.assert_allclose(law.expect(np.eye(12))[5, 1], row)
    assert np.allclose(law.expect(np.ones((12, 1))), 1.0)


def test_a_plan_is_the_best_of_all_policies() -> None:
    rng = np.random.default_rng(0)
    system = random_system(rng, "rbf", states=3, actions=2, horizon=2)
    last = rng.normal(size=3)
    policy, worth = plan(system.law, system.reward, 2, 0.9, last)
    values = []
    for choice in itertools.product((0, 1), repeat=6):
        own = np.array(choice).reshape(2, 3)
        values.append(evaluate(system.law, own, system.reward[..., None], 0.9, last[:, None])[:, 0])
    np.testing.assert_allclose(worth[0].max(axis=1), np.max(values, axis=0))
    np.testing.assert_allclose(
        evaluate(system.law, policy, system.reward[..., None], 0.9, last[:, None])[:, 0], np.max(values, axis=0)
    )


@given(SEEDS)
def test_without_end_is_the_limit_of_long_horizons(seed: int) -> None:
    system = random_system(np.random.default_rng(seed), "rbf", states=7, actions=3)
    policy, worth = plan_forever(system.law, system.reward, 0.8)
    long = evaluate(system.law, np.tile(policy, (150, 1)), system.reward[..., None], 0.8)
    np.testing.assert_allclose(evaluate_forever(system.law, policy, system.reward[..., None], 0.8), long, atol=1e-8)
    np.testing.assert_allclose(
        plan(system.law, system.reward, 150, 0.8)[1][0].max(axis=1), worth.max(axis=1), atol=1e-7
    )


def test_the_linear_quadratic_optimum_is_riccati_s() -> None:
    """s' = 0.9 s + 0.3 a with cost s^2 + 0.1 a^2, discounted, where no action is cut off."""
    system = make_system("lq", "linear")
    gamma = system.gamma
    root = math.sqrt(gamma)
    p = solve_discrete_are(root * np.array([[0.9]]), root * np.array([[0.3]]), np.eye(1), 0.1 * np.eye(1))[0, 0]
    gain = gamma * 0.3 * p * 0.9 / (0.1 + gamma * 0.09 * p)
    policy, worth = plan_forever(system.law, system.reward, gamma)
    states = system.grid.points[:, 0]
    inside = np.abs(states) < 0.5
    step = system.actions[1, 0] - system.actions[0, 0]
    assert np.max(np.abs(system.actions[policy, 0] + gain * states)[inside]) < step
    value = worth.max(axis=1)
    assert value[inside].max() - value[inside].min() == pytest.approx(p * (states[inside] ** 2).max(), rel=0.05)


@pytest.mark.parametrize(("name", "kernel"), [("lq", "linear"), *((s, k) for s in SYSTEMS for k in ("rbf", "matern"))])
def test_systems_look_like_what_they_were_written_down_as(name: str, kernel: str) -> None:
    system, sketch = make_system(name, kernel), SYSTEMS[name]
    shape = system.reward.shape
    assert np.abs(system.reward - sketch.reward(system.inputs).reshape(shape)).max() < 0.08
    assert np.abs(system.change - sketch.change(system.inputs).reshape(system.change.shape)).max() < 0.05


def test_systems_that_there_are_not() -> None:
    with pytest.raises(UserError, match="unknown system 'hill'. Did you mean hills"):
        make_system("hill", "rbf")
    with pytest.raises(UserError, match="hills is not linear: the linear kernel is for lq"):
        make_system("hills", "linear")
