"""Soft actor-critic: targets and losses against NumPy, what one step moves and by how much, and that it learns."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.agents.helpers import (
    MEAN,
    ROWS,
    STD,
    equal_trees,
    finite,
    make_batch,
    make_moved,
    make_sac,
    normalised,
    numpy_members,
    replaced,
    uniform,
    with_sac,
)
from tests.conftest import ACTION, EPISODE, OBS, numpy_mlp, quick_jit
from ubp2.agents import sac
from ubp2.agents.registry import make_agent
from ubp2.agents.sac import State, Transitions
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.models.normalizer import Normalizer
from ubp2.types import RewardTargets

KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def state(config: Config) -> State:
    return make_sac(config)


def numpy_policy(config: Config, state: State, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation before the tanh."""
    output = numpy_mlp(jax.tree.map(np.asarray, state.policy), np.asarray(z, np.float64))
    low, high = config.sac.log_std
    return output[:, :ACTION], np.exp(low + (high - low) * (np.tanh(output[:, ACTION:]) + 1) / 2)


def test_the_target_is_the_lower_critic_less_the_price_of_certainty(config: Config, state: State) -> None:
    """gamma (min Q' - alpha log pi), zero where the task ended; the density is that of SciPy and the tanh's slope."""
    moved = make_moved()
    mean, std = numpy_policy(config, state, np.asarray(moved.z_next))
    before = mean + std * np.asarray(jax.random.normal(KEY, (ROWS, ACTION)), np.float64)
    action = np.tanh(before)
    log_density = np.sum(stats.norm.logpdf(before, mean, std) - np.log(1 - action**2), axis=1)
    soft = numpy_members(state.targets, np.asarray(moved.z_next), action).min(0) - np.exp(-0.7) * log_density
    wanted = 0.9 * np.where(moved.terminated, 0.0, soft)
    found = quick_jit(partial(sac.target_values, config))(state, moved, KEY)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
    assert np.all(np.asarray(found)[np.asarray(moved.terminated)] == 0.0)


def test_the_critic_loss_sums_both_critics_over_decisions_that_exist(state: State) -> None:
    moved, target = make_moved(), uniform(9, ROWS)
    errors = (numpy_members(state.critics, *map(np.asarray, (moved.z, moved.action))) - target) ** 2
    wanted = errors[:, np.asarray(moved.mask) > 0].mean(axis=1).sum()
    assert float(sac.critic_loss(state.critics, moved, target)) == pytest.approx(wanted, rel=1e-4)


def test_the_lower_of_two_critics_has_a_gradient_also_at_ties() -> None:
    """It is a choice and not a share: a share divides by a count that XLA may find to be zero."""
    both = jnp.array([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]])
    np.testing.assert_array_equal(sac.lower(both), [1.0, 2.0, 2.0])
    slope = jax.grad(lambda x: jnp.sum(sac.lower(x)))(both)
    np.testing.assert_array_equal(np.sort(slope, axis=0), [[0.0] * 3, [1.0] * 3])


def test_transitions_are_first_decisions_in_normalised_units(config: Config, state: State) -> None:
    batch = make_batch()
    moved = sac.transitions(config, state, batch)
    for found, obs in ((moved.z, batch.obs[0]), (moved.z_next, batch.obs[1])):
        np.testing.assert_allclose(found, (np.asarray(obs) - MEAN) / STD, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(moved.action, batch.action[0])
    np.testing.assert_array_equal(moved.mask, batch.mask[0])


def test_targets_follow_every_so_many_updates_and_only_then(config: Config, state: State) -> None:
    learn = quick_jit(partial(sac.learn, with_sac(config, target_every=3, target_rate=0.25)))
    for update in range(1, 7):
        following, metrics = learn(state, make_moved(update), uniform(update, ROWS), jax.random.key(update))
        assert int(following.updates) == update and finite(metrics)
        if update % 3:
            assert equal_trees(following.targets, state.targets)
        else:
            step = jax.tree.map(lambda old, now: 0.75 * old + 0.25 * now, state.targets, following.critics)
            wanted = zip(jax.tree.leaves(step), jax.tree.leaves(following.targets), strict=True)
            assert all(np.allclose(a, b, atol=1e-6) for a, b in wanted)
        assert not equal_trees(following.critics, state.critics) and not equal_trees(following.policy, state.policy)
        state = following


def test_decisions_that_do_not_exist_teach_nothing(config: Config, state: State) -> None:
    """Whatever stands in masked rows, the step is the same."""
    moved, reward = make_moved(), uniform(1, ROWS)
    masked = np.asarray(moved.mask) == 0
    other = moved._replace(
        z=jnp.where(masked[:, None], 7.0, moved.z),
        action=jnp.where(masked[:, None], -1.0, moved.action),
        z_next=jnp.where(masked[:, None], -7.0, moved.z_next),
    )
    learn = quick_jit(partial(sac.learn, config))
    one = learn(state, moved, reward, KEY)[0]
    two = learn(state, other, jnp.where(masked, 1e3, reward), KEY)[0]
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize(("spread", "rises"), [(-0.5, True), (0.9, False)])
def test_the_temperature_rises_below_the_target_entropy_and_falls_above(
    config: Config, state: State, spread: float, rises: bool
) -> None:
    """The target is minus the number of actions; `spread` is what the policy's deviation is read from."""
    outputs = jnp.concatenate([jnp.zeros(ACTION), jnp.full(ACTION, spread)])
    layers = (jnp.zeros_like(state.policy.weights[-1]), outputs)
    policy = eqx.tree_at(lambda p: (p.weights[-1], p.biases[-1]), state.policy, layers)
    now = state._replace(policy=policy)
    following, metrics = quick_jit(partial(sac.learn, config))(now, make_moved(), uniform(1, ROWS), KEY)
    assert (float(metrics["policy/entropy"]) < -ACTION) == rises, "the policy is not what this test is about"
    assert (float(following.log_alpha) > float(now.log_alpha)) == rises
    assert float(metrics["sac/alpha"]) == pytest.approx(np.exp(float(following.log_alpha)), rel=1e-5)


def test_without_exploration_the_action_is_the_mode(config: Config, state: State) -> None:
    obs = 2.0 * uniform(5, ROWS, OBS)
    act = quick_jit(
        lambda explore, key: jax.vmap(lambda o: sac.act(config, state, jnp.zeros(()), o, explore, key).action)(obs)
    )
    modes, again = act(0.0, KEY), act(0.0, jax.random.key(4))
    np.testing.assert_array_equal(modes, again)
    mean, _ = numpy_policy(config, state, normalised(obs))
    np.testing.assert_allclose(modes, np.tanh(mean), rtol=1e-3, atol=1e-5)
    tried = [np.asarray(act(1.0, jax.random.key(i))) for i in range(2)]
    assert np.all(tried[0] != tried[1]) and all(np.abs(x).max() <= 1.0 for x in (modes, *tried))


def test_critics_as_new_and_nothing_else(config: Config, state: State) -> None:
    learned = quick_jit(partial(sac.learn, config))(state, make_moved(), uniform(1, ROWS), KEY)[0]
    after = quick_jit(partial(sac.reset_critics, config))(learned, KEY)
    assert equal_trees(after.critics, after.targets) and not equal_trees(after.critics, learned.critics)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(after.critic_optimizer))
    kept = ("policy", "log_alpha", "stats", "updates", "policy_optimizer", "alpha_optimizer")
    assert equal_trees([getattr(after, name) for name in kept], [getattr(learned, name) for name in kept])
    one, other = (jax.tree.map(lambda leaf, i=i: leaf[i], after.critics) for i in range(2))
    assert not equal_trees(one, other), "two critics that are one are no two"


def test_it_learns_to_choose_the_best_action(config: Config) -> None:
    """One decision, worth -(a - 0.5)^2 on each axis whatever the state: the mode of the policy gets there."""
    own = with_sac(config, learning_rate=1e-2, alpha=0.02)
    start = quick_jit(partial(sac.init, own, OBS, ACTION))(jax.random.key(0))
    start = start._replace(stats=Normalizer(jnp.ones(()), jnp.zeros(OBS), jnp.ones(OBS)))  # observations as they are

    def step(state: State, key: jax.Array) -> tuple[State, jax.Array]:
        k_obs, k_action, k_learn = jax.random.split(key, 3)
        z = jax.random.normal(k_obs, (64, OBS))
        action = jax.random.uniform(k_action, (64, ACTION), minval=-1.0)
        moved = Transitions(z, action, z, jnp.ones(64, bool), jnp.ones(64))
        state, metrics = sac.learn(own, state, moved, -jnp.sum((action - 0.5) ** 2, axis=-1), k_learn)
        return state, metrics["loss/critic"]

    after, error = quick_jit(lambda s: jax.lax.scan(step, s, jax.random.split(KEY, 1000)))(start)
    assert float(jnp.mean(error[-20:])) < 0.1 * float(jnp.mean(error[:20]))
    act = jax.vmap(lambda obs: sac.act(own, after, jnp.zeros(()), obs, jnp.float32(0.0), KEY).action)
    np.testing.assert_allclose(act(uniform(8, 20, OBS)), 0.5, atol=0.15)


def test_the_agent_learns_from_the_true_reward_of_the_first_decision(config: Config, state: State) -> None:
    agent = make_agent(replaced(config, agent="sac", ceiling=True), OBS, ACTION)
    assert agent.fit is None
    batch, reward = make_batch(), uniform(2, 1, ROWS)
    found, _ = quick_jit(agent.update)(state, batch, RewardTargets(reward), KEY)
    wanted, _ = quick_jit(partial(sac.learn, config))(state, sac.transitions(config, state, batch), reward[0], KEY)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_without_the_true_reward_it_is_refused() -> None:
    with pytest.raises(UserError, match="agent sac learns from the true reward: add --ceiling, or use --agent pebble"):
        resolve(Config(agent="sac"), EPISODE)
    assert resolve(Config(agent="sac", ceiling=True), EPISODE).evaluation.controllers == ("policy",)
