"""CEM and MPPI on objectives whose optimum is known."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.conftest import quick_jit
from ubp2.config.schema import PlannerConfig
from ubp2.planning.optimizers import Plan, elite_weights, optimize

HORIZON, ACTION = 3, 2
TARGET = np.array([[0.5, -0.3], [0.0, 0.8], [-0.6, 0.1]], np.float32)
SEARCH = PlannerConfig(samples=256, elites=32, iterations=8)
Name = Literal["mppi", "cem"]
both = pytest.mark.parametrize("name", ["mppi", "cem"])


def search(config: PlannerConfig, target: np.ndarray, start: np.ndarray | None = None, hole: float = 2.0) -> Plan:
    """Maximise minus the squared distance to `target`; NaN where the very first action is beyond `hole`."""

    @quick_jit
    def solve(target: Array, start: Array, hole: Array) -> Plan:
        def objective(actions: Array) -> tuple[Array, Array]:
            outside = jnp.any(jnp.abs(actions) > 1.0, axis=(1, 2)) | (actions[:, 0, 0] > hole)
            return jnp.where(outside, jnp.nan, -jnp.sum((actions - target[None]) ** 2, axis=(1, 2))), actions

        return optimize(config, objective, start, jnp.zeros((4, *start.shape)), jax.random.key(0))

    return solve(target, np.zeros_like(target) if start is None else start, hole)


@both
def test_the_optimum_of_a_quadratic_is_found(name: Name) -> None:
    """Inside the box; no sequence outside of it was ever scored."""
    plan = search(dataclasses.replace(SEARCH, optimizer=name), TARGET)
    np.testing.assert_allclose(plan.mean, TARGET, atol=0.08)
    np.testing.assert_allclose(plan.actions[plan.best], TARGET, atol=0.2)
    assert np.sum(plan.weights > 0) == SEARCH.elites
    assert int(plan.broken) == 0
    assert SEARCH.min_std <= np.min(plan.std) and np.max(plan.std) < 0.3


@both
def test_an_optimum_beyond_the_box_is_met_at_its_bound(name: Name) -> None:
    """The best allowed action against a target of 2 and -3 is the bound."""
    target = TARGET.copy()
    target[0] = [2.0, -3.0]
    plan = search(dataclasses.replace(SEARCH, optimizer=name), target)
    np.testing.assert_allclose(plan.mean[0], [1.0, -1.0], atol=0.05)
    np.testing.assert_allclose(plan.mean[1:], target[1:], atol=0.15)


@both
def test_nan_scores_lose(name: Name) -> None:
    """With the optimum in a region of NaN the search ends at the region's border, and says how often it was hit."""
    plan = search(dataclasses.replace(SEARCH, optimizer=name), TARGET, hole=0.1)
    assert np.max(plan.actions[plan.weights > 0, 0, 0]) <= 0.1 and -0.2 < plan.mean[0, 0] <= 0.1
    np.testing.assert_allclose(plan.mean[0, 1], TARGET[0, 1], atol=0.1)
    assert 8 <= int(plan.broken) < 8 * 256


@both
def test_an_objective_of_nothing_but_nan_still_gives_actions(name: Name) -> None:
    """Every score is counted as broken, and the plan is finite and inside the box."""
    plan = search(dataclasses.replace(SEARCH, optimizer=name), TARGET, hole=-2.0)
    assert int(plan.broken) == 8 * 256
    for part in (plan.mean, plan.std, plan.actions, plan.weights):
        assert np.isfinite(part).all()
    assert np.abs(plan.mean).max() <= 1.0 and np.sum(plan.weights) == pytest.approx(1.0, rel=1e-5)


def refit(name: Name, scores: list[float], elites: int) -> Plan:
    """One iteration over given sequences 0.0, 0.1, 0.2, ... of one action, with given scores and no random draw."""
    config = PlannerConfig(optimizer=name, samples=len(scores), elites=elites, iterations=1, min_std=0.01)
    proposals = jnp.arange(len(scores), dtype=jnp.float32)[:, None, None] / 10
    return optimize(config, lambda _: (jnp.array(scores), None), jnp.zeros((1, 1)), proposals, jax.random.key(0))


def test_a_cem_refit_by_hand() -> None:
    """The three best of six are 0.3, 0.0 and 0.5: their plain mean and deviation; infinities and NaN are broken."""
    plan = refit("cem", [2.0, math.nan, math.inf, 3.0, -math.inf, 1.0], 3)
    assert plan.weights.tolist() == pytest.approx([1 / 3, 0, 0, 1 / 3, 0, 1 / 3]) and int(plan.best) == 3
    assert plan.mean.item() == pytest.approx(0.8 / 3, rel=1e-5)
    assert plan.std.item() == pytest.approx(np.std([0.3, 0.0, 0.5]), rel=1e-4)
    assert int(plan.broken) == 3


def test_an_mppi_refit_by_hand() -> None:
    """Scores 3 and 1 are one deviation from their mean: weights e^2 and e^-2 at temperature 1/2."""
    plan = refit("mppi", [1.0, -5.0, math.nan, 3.0], 2)
    weight = 1 / (1 + math.exp(-4))
    assert plan.weights.tolist() == pytest.approx([1 - weight, 0, 0, weight], rel=1e-3) and int(plan.best) == 3
    assert plan.mean.item() == pytest.approx(0.3 * weight, rel=1e-4)
    assert plan.std.item() == pytest.approx(0.3 * math.sqrt(weight * (1 - weight)), rel=1e-3)


@both
def test_broken_scores_weigh_nothing_even_among_the_elites(name: Name) -> None:
    """With fewer sound scores than elites, the sound ones alone refit the distribution."""
    plan = refit(name, [math.nan, math.nan, 1.0, 1.0, math.nan, math.nan], 4)
    assert plan.weights.tolist() == pytest.approx([0.0, 0.0, 0.5, 0.5, 0.0, 0.0])
    assert plan.mean.item() == pytest.approx(0.25)


def test_elite_weights_do_not_depend_on_the_scale_of_the_reward() -> None:
    """A hundred times the score plus seven weighs the same; equal scores weigh equally; CEM always does."""
    scores = np.array([3.0, 2.5, 1.0, -1.0], np.float32)
    weights = quick_jit(elite_weights, static_argnums=0)
    mppi = weights(SEARCH, scores)
    np.testing.assert_allclose(weights(SEARCH, 100 * scores + 7), mppi, rtol=1e-3)
    assert np.all(np.diff(mppi) < 0) and np.sum(mppi) == pytest.approx(1.0, rel=1e-5)
    np.testing.assert_allclose(weights(SEARCH, np.full(4, 5.0, np.float32)), 0.25, rtol=1e-5)
    np.testing.assert_allclose(weights(dataclasses.replace(SEARCH, optimizer="cem"), scores), 0.25)
    sharper = weights(dataclasses.replace(SEARCH, temperature=0.1), scores)
    assert sharper[0] > mppi[0]


@both
def test_a_warm_start_helps(name: Name) -> None:
    """With one short-sighted iteration, starting at the optimum ends nearer to it than starting far off."""
    config = dataclasses.replace(SEARCH, optimizer=name, iterations=1, max_std=0.3)
    near, far = (np.abs(search(config, TARGET, start).mean - TARGET).max() for start in (TARGET, -TARGET))
    assert near < 0.15 and far > 3 * near


def test_the_proposals_take_part() -> None:
    """A good proposal wins where the draws cannot reach it."""
    config = PlannerConfig(samples=64, elites=4, iterations=2, min_std=0.01, max_std=0.01)
    proposal = jnp.full((1, 1, 1), 0.9)
    plan = optimize(config, lambda a: (a[:, 0, 0], 2 * a[:, 0, 0]), jnp.full((1, 1), -0.9), proposal, jax.random.key(0))
    assert plan.actions[plan.best].item() == pytest.approx(0.9)
    assert plan.details[plan.best].item() == pytest.approx(1.8), "what the objective says is kept for each sequence"


def test_ties_beyond_the_elites_go_to_the_first() -> None:
    """Never more than the elites, also when more of them have the same score."""
    weights = elite_weights(PlannerConfig(optimizer="cem", samples=5, elites=2), jnp.array([1.0, 2.0, 2.0, 2.0, 0.0]))
    assert weights.tolist() == [0.0, 0.5, 0.5, 0.0, 0.0]
