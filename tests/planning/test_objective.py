"""Eq. 1 against a plain Python loop, and the planner on top of it."""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from tests.conftest import ACTION, OBS, member, numpy_mlp, quick_jit
from ubp2.config.schema import Config
from ubp2.models import imagination, world_model
from ubp2.models.networks import MLP
from ubp2.models.world_model import WorldModel
from ubp2.planning import objective, optimizers
from ubp2.planning.planner import Decision, Steering, plan
from ubp2.types import Scores

COUNT, HORIZON, GAMMA = 5, 3, 0.9
Z = np.array([0.4, -0.7, 1.1], np.float32)
UNITS = np.array([[0.1, 0.5], [-0.2, 2.0], [0.0, 1.0]], np.float32)  # level and scale of each reward member


def jrd(mean: list[float], std: list[float]) -> float:
    """Jensen-Renyi divergence by its definition, pair by pair."""
    members = len(mean)
    overlap = sum(
        math.exp(-((mean[i] - mean[j]) ** 2) / (2 * (std[i] ** 2 + std[j] ** 2)))
        / math.sqrt(2 * math.pi * (std[i] ** 2 + std[j] ** 2))
        for i in range(members)
        for j in range(members)
    )
    entropies = [math.log(2 * s * math.sqrt(math.pi)) for s in std]
    return max(-math.log(overlap / members**2) - sum(entropies) / members, 0.0)


def slowly(config: Config, model: WorldModel, policy: MLP, actions: np.ndarray, key: Array) -> Scores:
    """Eq. 1 one sequence, one step and one member at a time, in double precision."""
    terms, ends = np.zeros((5, COUNT)), []
    for n, sequence in enumerate(actions):
        state = Z.astype(np.float64)
        for t, action in enumerate(sequence):
            x = np.concatenate([state, action])
            rewards = [numpy_mlp(member(model.reward, i), x) for i in range(3)]
            means = [(output[0] - level) / scale for output, (level, scale) in zip(rewards, UNITS, strict=True)]
            stds = [math.exp(-2 + 3 / (1 + math.exp(-output[1] - math.log(0.5)))) for output in rewards]  # 1/3 at zero
            nexts = np.stack([state + numpy_mlp(member(model.dynamics, i), x) for i in range(3)])
            terms[0, n] += GAMMA**t * np.mean(means)
            terms[1, n] += GAMMA**t * jrd(means, stds)
            terms[2, n] += GAMMA**t * np.linalg.norm(nexts.std(axis=0))
            state = nexts.mean(axis=0)
        ends.append(state)
    last = np.array(ends, np.float32)
    noise = np.tile(jax.random.normal(key, (ACTION,)), (COUNT, 1))  # a_H ~ pi(s_H), one draw for all sequences
    final, _ = quick_jit(partial(world_model.policy_from_noise, config.model))(policy, last, noise)
    for n in range(COUNT):
        x = np.concatenate([last[n], final[n]])
        values = [numpy_mlp(member(model.value, i), x)[0] for i in range(3)]
        terms[3, n], terms[4, n] = GAMMA**HORIZON * np.mean(values), GAMMA**HORIZON * np.std(values)
    return Scores(*terms)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def scored(config: Config, networks: tuple[WorldModel, MLP]) -> tuple[Scores, Scores]:
    """What the module computes and what the loop computes for the same sequences."""
    actions = np.random.default_rng(0).uniform(-1, 1, (COUNT, HORIZON, ACTION)).astype(np.float32)
    key = jax.random.key(3)
    model, policy = networks
    noise = jax.random.normal(key, (ACTION,))

    @quick_jit
    def score(model: WorldModel, policy: MLP) -> Scores:
        ready = imagination.prepare(model, policy, jnp.float32)
        return objective.optimistic_return(
            config, model, ready, jnp.array(Z), jnp.array(actions), noise, jnp.array(UNITS)
        )

    return score(model, policy), slowly(config, *networks, actions, key)


@pytest.mark.parametrize("term", Scores._fields)
def test_each_term_equals_the_loop(scored: tuple[Scores, Scores], term: str) -> None:
    """Every sum of Eq. 1 on its own, none of them zero or the same for all sequences."""
    fast, slow = (np.asarray(getattr(scores, term)) for scores in scored)
    np.testing.assert_allclose(fast, slow, rtol=2e-3, atol=1e-4)
    assert np.std(slow) > 1e-3


def test_zero_optimism_is_the_mean_return(scored: tuple[Scores, Scores]) -> None:
    """With lambda = 0 only mean rewards and the mean value remain."""
    fast, slow = scored
    np.testing.assert_allclose(objective.total(fast, jnp.zeros(3)), slow.reward + slow.value, rtol=2e-3, atol=1e-4)


def test_total_gives_each_bonus_its_own_coefficient() -> None:
    """1 + 4 + 10 * 2 + 100 * 3 + 1000 * 5, in the order reward, dynamics, value."""
    scores = Scores(*(jnp.array([x]) for x in (1.0, 2.0, 3.0, 4.0, 5.0)))
    assert objective.total(scores, jnp.array([10.0, 100.0, 1000.0])).tolist() == [5325.0]


@pytest.fixture(scope="module")
def decide(config: Config, networks: tuple[WorldModel, MLP]):
    """The planner as decide(coefficients, explore, seed), for twenty keys at once.

    With a horizon of one the action is the whole sequence, and a policy without noise makes its value certain.
    """
    short = dataclasses.replace(config, planner=dataclasses.replace(config.planner, horizon=1))
    model, policy = networks
    quiet = policy.biases[-1].at[ACTION:].set(-20.0)
    policy = eqx.tree_at(lambda m: m.biases[-1], policy, quiet)

    @quick_jit
    def decide(coefficients: Array, explore: Array, keys: Array) -> tuple[Decision, Array]:
        steering = Steering(coefficients, explore)
        decisions = jax.vmap(lambda k: plan(short, model, policy, jnp.array(Z), jnp.zeros((1, ACTION)), steering, k))(
            keys
        )
        states = jnp.broadcast_to(Z, (len(keys), OBS))
        rewards, _ = world_model.reward(short.model, model, states, decisions.action)
        return decisions, jnp.mean(rewards, axis=0)

    return lambda coefficients, explore, seed: decide(
        np.array(coefficients, np.float32), np.float32(explore), jax.random.split(jax.random.key(seed), 20)
    )


def test_a_plan_is_a_function_of_its_key(decide) -> None:
    """The same keys decide the same, others differently."""
    first, again, other = (decide([1, 1, 1], 1, seed)[0] for seed in (0, 0, 1))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.abs(first.action - other.action).min(axis=1).max() > 1e-3


def test_without_exploration_the_scored_action_is_done(decide) -> None:
    """explore = 0: the reported reward is that of the action itself; explore = 1 adds noise to it afterwards."""
    calm, calm_reward = decide([0, 0, 0], 0, 0)
    np.testing.assert_allclose(calm.scores.reward, calm_reward, atol=1e-5)
    noisy, noisy_reward = decide([0, 0, 0], 1, 0)
    assert np.abs(noisy.scores.reward - noisy_reward).max() > 1e-3


def test_without_exploration_the_best_elite_is_taken(decide) -> None:
    """Greedy plans score at least as well as those drawn among the elites, key by key."""
    best, drawn = (decide([0, 0, 0], explore, 0)[0].scores for explore in (0, 1))
    best, drawn = (np.asarray(scores.reward + scores.value) for scores in (best, drawn))
    assert np.all(best >= drawn - 1e-5) and np.any(best > drawn + 1e-5)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_coefficient_steers_towards_its_uncertainty(decide, which: int) -> None:
    """A large lambda finds actions with more of that bonus than the plain plan has."""
    coefficients = [0.0, 0.0, 0.0]
    coefficients[which] = 100.0
    name = ("reward_bonus", "dynamics_bonus", "value_bonus")[which]
    curious, plain = (np.asarray(getattr(decide(c, 0, 0)[0].scores, name)) for c in (coefficients, [0.0, 0.0, 0.0]))
    assert np.mean(curious) > np.mean(plain) + 0.01


@pytest.mark.parametrize(("optimizer", "spread"), [("cem", 1.0), ("mppi", 2.0)])
def test_exploring_by_cem_has_the_variance_of_its_distribution(
    config: Config, networks: tuple[WorldModel, MLP], optimizer: str, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draw from N(mean, std^2); an elite has that variance already, and mppi adds noise to one, as TD-MPC2 does."""
    elites = jnp.array([-0.2, 0.2])[:, None, None] * jnp.ones((1, HORIZON, ACTION)) + 0.1
    scores = Scores(*(jnp.zeros(2) for _ in Scores._fields))
    still = jnp.full((HORIZON, ACTION), 0.2)
    found = optimizers.Plan(still * 0 + 0.1, still, elites, jnp.full(2, 0.5), jnp.array(1), scores, jnp.array(0))
    monkeypatch.setattr(optimizers, "optimize", lambda *_: found)
    own = dataclasses.replace(config, planner=dataclasses.replace(config.planner, optimizer=optimizer))
    keys = jax.random.split(jax.random.key(0), 4000)

    def act(explore: float) -> np.ndarray:
        steering = Steering(jnp.zeros(3), jnp.array(explore))
        z, start = jnp.array(Z), jnp.zeros((HORIZON, ACTION))
        return np.asarray(quick_jit(jax.vmap(lambda k: plan(own, *networks, z, start, steering, k).action))(keys))

    drawn = act(1.0)
    np.testing.assert_allclose(np.mean(drawn, axis=0), 0.1, atol=0.02)
    np.testing.assert_allclose(np.var(drawn, axis=0) / 0.2**2, spread, rtol=0.1)
    np.testing.assert_allclose(act(0.0), 0.3, rtol=1e-6)  # the best sequence


def test_actions_stay_inside_the_box(decide) -> None:
    """Noise on top of a plan at the bound is clipped; some action does touch it."""
    actions = np.abs(decide([1, 1, 1], 1, 5)[0].action)
    assert actions.max() == 1.0 and np.isfinite(actions).all()


def test_the_rest_of_a_plan_starts_the_next(config: Config, networks: tuple[WorldModel, MLP]) -> None:
    """What follows is the mean moved up by one decision, with nothing known about the new last one."""
    steering = Steering(jnp.zeros(3), jnp.zeros(()))
    decision = quick_jit(partial(plan, config))(*networks, Z, jnp.zeros((HORIZON, ACTION)), steering, jax.random.key(0))
    assert decision.following.shape == (HORIZON, ACTION) and int(decision.broken) == 0
    assert not decision.following[-1].any() and np.abs(decision.following[:-1]).min() > 0
