"""Learning: what an update changes and what it leaves alone, the coefficients, the gate, and no true reward."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.agents.helpers import reward_loss
from tests.conftest import ACTION, EPISODE, OBS, add, noisy, quick_jit
from ubp2 import replay
from ubp2.agents import learning, reward, ubp2
from ubp2.agents.learning import State
from ubp2.agents.registry import make_agent
from ubp2.config.schema import LAMBDA_RANGE, Config
from ubp2.errors import UserError
from ubp2.models.networks import MLP
from ubp2.models.normalizer import Normalizer
from ubp2.models.world_model import WorldModel
from ubp2.training import programs
from ubp2.types import Batch, Frame, Preferences, RewardTargets, Segments

HORIZON, COUNT, PAIRS, LENGTH = 3, 16, 8, 4
GROUPS = ("dynamics", "reward", "value")


def uniform(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def make_batch() -> Batch:
    """Random decisions; the last step of a few sequences is beyond their end, and one task ends."""
    mask, terminated = np.ones((HORIZON, COUNT), np.float32), np.zeros((HORIZON, COUNT), bool)
    mask[-1, :3], terminated[1, 0] = 0.0, True
    obs, action = uniform(0, HORIZON + 1, COUNT, OBS), uniform(1, HORIZON, COUNT, ACTION)
    return Batch(obs, action, terminated, mask, np.zeros((HORIZON, COUNT), np.int32))  # type: ignore[arg-type]


def make_pairs(labels: Any) -> Preferences:
    obs, action = uniform(2, 2, PAIRS, LENGTH, OBS), uniform(3, 2, PAIRS, LENGTH, ACTION)
    weight, count = np.ones(PAIRS, np.float32), np.int32(PAIRS)
    labels = np.asarray(labels, np.float32)
    return Preferences(obs[0], action[0], obs[1], action[1], labels, weight, count)  # type: ignore[arg-type]


STATS = Normalizer(*(np.float32(x) for x in (100.0, np.zeros(OBS), np.full(OBS, 25.0))))  # type: ignore[arg-type]
BATCH, MIXED = make_batch(), make_pairs([1, 0, 0.5, 1, 0, 1, 1, 0])


def make_state(config: Config) -> State:
    """A fresh state that has seen observations of mean 0 and deviation 1/2."""
    return quick_jit(partial(ubp2.init, config, OBS, ACTION))(jax.random.key(0))._replace(stats=STATS)


@pytest.fixture(scope="module")
def state(config: Config) -> State:
    return make_state(config)


@pytest.fixture(scope="module")
def lively(state: State, networks: tuple[WorldModel, MLP]) -> State:
    """A state in which nothing is zero."""
    return state._replace(model=networks[0], policy=networks[1], target_value=noisy(networks[0].value, 0.1))


@pytest.fixture(scope="module")
def update(config: Config) -> Callable[..., tuple[State, dict[str, Any]]]:
    return quick_jit(partial(learning.update, config))


@pytest.fixture(scope="module")
def gradient(config: Config) -> Callable[[State, WorldModel, Preferences], WorldModel]:
    """Gradient of the model's loss, before any clipping: gradient(state, model, pairs)."""

    @quick_jit
    def gradient(state: State, model: WorldModel, pairs: Preferences) -> WorldModel:
        loss = partial(learning.model_loss, config, state, BATCH, pairs, jax.random.key(1))
        return jax.grad(lambda m: loss(m)[0])(model)

    return gradient


def changed(before: Any, after: Any) -> list[bool]:
    return [
        bool(np.any(np.asarray(a) != np.asarray(b)))
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    ]


def members(ensemble: Any, which: list[int] | slice) -> Any:
    return jax.tree.map(lambda p: np.asarray(p)[which], ensemble)


def trained(update: Callable[..., tuple[State, dict[str, Any]]], state: State, supervision: Any, steps: int) -> State:
    """So many updates on the same batch; every number that comes out is finite."""
    for step in range(steps):
        state, metrics = update(state, BATCH, supervision, jax.random.key(step))
        assert all(np.isfinite(x).all() for x in metrics.values()), metrics
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    return state


def test_an_update_changes_every_parameter_and_no_statistics(state: State, update) -> None:
    """After three steps every array of every network, of the targets and of the coefficients has moved."""
    after = trained(update, state, MIXED, 3)
    for group in ("model", "policy", "target_value", "target_policy"):
        assert all(changed(getattr(state, group), getattr(after, group))), group
    assert np.all(np.asarray(after.log_lambda) != np.asarray(state.log_lambda))
    assert not any(changed(state.stats, after.stats))


def test_an_update_in_latent_space_with_two_hot_values(config: Config) -> None:
    """The other space and the other head: everything moves, the encoder included."""
    model = dataclasses.replace(config.model, space="latent", value_head="twohot")
    config = dataclasses.replace(config, model=model)
    state = make_state(config)
    after = trained(quick_jit(partial(learning.update, config)), state, MIXED, 3)
    assert state.model.encoder is not None and all(changed(state.model, after.model))
    assert all(changed(state.policy, after.policy))


def test_targets_follow_at_their_rate(config: Config, lively: State, update) -> None:
    """One step of Polyak averaging towards the new value and the new policy."""
    after, _ = update(lively, BATCH, MIXED, jax.random.key(0))
    pairs = (
        (lively.target_value, after.target_value, after.model.value, config.training.value_target_rate),
        (lively.target_policy, after.target_policy, after.policy, config.optimism.target_policy_rate),
    )
    for old, new, source, rate in pairs:
        for a, b, s in zip(*(jax.tree.leaves(tree) for tree in (old, new, source)), strict=True):
            np.testing.assert_allclose(b, (1 - rate) * np.asarray(a) + rate * np.asarray(s), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("group", GROUPS)
def test_members_learn_independently(lively: State, gradient, group: str) -> None:
    """Another member's parameters do not enter the gradient of this one."""
    ensemble = getattr(lively.model, group)
    moved = jax.tree.map(lambda p: np.asarray(p) + np.array([0, 1, 0]).reshape(3, *[1] * (p.ndim - 1)) * 0.1, ensemble)
    moved = jax.tree.map(lambda p: p.astype(np.float32), moved)
    before = getattr(gradient(lively, lively.model, MIXED), group)
    after = getattr(gradient(lively, eqx.tree_at(lambda m: getattr(m, group), lively.model, moved), MIXED), group)
    others, own = [0, 2], [1]
    for a, b in zip(jax.tree.leaves(members(before, others)), jax.tree.leaves(members(after, others)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert all(changed(members(before, own), members(after, own)))


def test_members_learn_as_if_alone(lively: State, gradient) -> None:
    """The dynamics and reward gradients of member i are those of a model that has no other member."""
    together = gradient(lively, lively.model, MIXED)
    for i in range(2):
        only = [members(getattr(lively.model, group), slice(i, i + 1)) for group in ("dynamics", "reward")]
        alone = gradient(lively, eqx.tree_at(lambda m: (m.dynamics, m.reward), lively.model, only), MIXED)
        for group in ("dynamics", "reward"):
            a, b = members(getattr(together, group), [i]), getattr(alone, group)
            for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
                assert np.abs(x).max() > 0
                np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


def still(policy: MLP, action: float) -> MLP:
    """A policy that does the same everywhere."""
    output = np.full(2 * ACTION, -20.0, np.float32)  # the least standard deviation, e^-10
    output[:ACTION] = np.arctanh(action)
    weights = np.zeros_like(policy.weights[-1])
    return eqx.tree_at(lambda m: (m.weights[-1], m.biases[-1]), policy, (weights, output))


def test_lambda_rises_where_the_policy_is_less_curious_than_its_target(config: Config, lively: State, update) -> None:
    """Eq. 2: each coefficient goes up by one Adam step if sigma(policy) < sigma(target policy), else down."""
    rate, start = config.optimism.learning_rate, np.asarray(lively.log_lambda)
    z = 2 * BATCH.obs[0]  # what the statistics make of the observations
    sigma = quick_jit(partial(learning.uncertainties, config))
    for action in (0.9, -0.9):
        policy, target = still(lively.policy, action), still(lively.policy, -action)
        after, _ = update(lively._replace(policy=policy, target_policy=target), BATCH, MIXED, jax.random.key(0))
        actions = (np.full((COUNT, ACTION), a, np.float32) for a in (action, -action))
        current, slow = (np.asarray(sigma(after.model, lively.reward_units, z, a)).mean(axis=1) for a in actions)
        assert np.abs(current - slow).min() > 0.008
        np.testing.assert_allclose(after.log_lambda - start, -rate * np.sign(current - slow), rtol=1e-2)


def test_lambda_stays_without_autotuning(config: Config, lively: State) -> None:
    """Fixed coefficients stay at their initial values, though the two policies differ in uncertainty."""
    fixed = dataclasses.replace(config, optimism=dataclasses.replace(config.optimism, autotune=False))
    tune = quick_jit(partial(learning._tune, fixed))
    policies = still(lively.policy, 0.9), still(lively.policy, -0.9)
    state = lively._replace(target_policy=policies[1])
    log_lambda, _, bonus = tune(state, lively.model, policies[0], BATCH.obs[0], jax.random.key(0))
    np.testing.assert_array_equal(log_lambda, lively.log_lambda)
    assert np.all(np.asarray(bonus) > 0)


def test_lambda_is_kept_in_its_range(config: Config, lively: State) -> None:
    """Pushed on at the border, a coefficient does not pass it."""
    low, high = np.log(LAMBDA_RANGE).astype(np.float32)
    tune = quick_jit(partial(learning._tune, config))
    policies = still(lively.policy, 0.9), still(lively.policy, -0.9)
    for border in (low, high):
        for policy, target in (policies, policies[::-1]):
            state = lively._replace(target_policy=target, log_lambda=jnp.full(3, border))
            log_lambda, *_ = tune(state, lively.model, policy, BATCH.obs[0], jax.random.key(0))
            assert np.all(log_lambda >= low - 1e-6) and np.all(log_lambda <= high + 1e-6)


@pytest.mark.parametrize("off", [0, 1, 2])
def test_a_bonus_that_is_off_has_no_coefficient(config: Config, state: State, off: int) -> None:
    """Exactly the one that was switched off is zero; the others are lambda."""
    optimism = dataclasses.replace(config.optimism, **{("reward", "dynamics", "value")[off]: False})
    state = state._replace(log_lambda=jnp.log(jnp.array([2.0, 3.0, 4.0])))
    expected = np.array([2.0, 3.0, 4.0])
    expected[off] = 0.0
    np.testing.assert_allclose(
        ubp2.coefficients(dataclasses.replace(config, optimism=optimism), state.log_lambda), expected, rtol=1e-5
    )


def test_a_member_that_answers_well_enough_gets_no_reward_gradient(config: Config, lively: State, gradient) -> None:
    """Labels that member 0 gives itself: it is at accuracy one and rests, while the others go on."""
    logits = quick_jit(partial(reward.preference_logits, config))(lively.model, lively.stats, MIXED)
    labels = np.asarray(logits)[0] > 0
    right = ((np.asarray(logits) > 0) == labels).mean(axis=1)
    assert right[0] == 1.0 and right[1:].max() < 0.97
    found = gradient(lively, lively.model, make_pairs(labels)).reward
    size = [max(float(np.abs(p[i]).max()) for p in jax.tree.leaves(found)) for i in range(3)]
    assert size[0] == 0.0 and min(size[1:]) > 1e-4


@pytest.fixture(scope="module")
def descend(config: Config) -> Callable[[WorldModel, Any, float], WorldModel]:
    """One plain step on what teaches the reward alone, with the gate open: descend(model, supervision, rate)."""
    ungated = dataclasses.replace(config, preferences=dataclasses.replace(config.preferences, stop_accuracy=None))

    def descend(model: WorldModel, supervision: Any, rate: float) -> WorldModel:
        slope = jax.grad(lambda m: reward_loss(ungated, m, STATS, supervision, BATCH))(model)
        return jax.tree.map(lambda p, g: p - rate * g, model, slope)

    return quick_jit(descend)


def test_the_gate_can_be_switched_off(config: Config, lively: State, descend) -> None:
    """stop_accuracy = None: member 0 goes on although it has everything right."""
    logits = quick_jit(partial(reward.preference_logits, config))(lively.model, STATS, MIXED)
    after = descend(lively.model, make_pairs(np.asarray(logits)[0] > 0), 1.0)
    assert np.abs(after.reward.weights[-1][0] - lively.model.reward.weights[-1][0]).max() > 1e-4


def test_learning_from_comparisons_fits_them(state: State, update) -> None:
    """Eight labels without ties are learned by all members until they rest."""
    pairs = make_pairs([1, 0, 0, 1, 0, 1, 1, 0])
    for step in range(150):
        state, metrics = update(state, BATCH, pairs, jax.random.key(step))
    assert float(metrics["reward/train_accuracy"]) > 0.95


def test_ceiling_regression_reaches_its_target(config: Config, state: State, descend) -> None:
    """In ceiling mode the mean reward is driven to the true one on a small batch, masked entries aside."""
    target = 0.8 * np.tanh(BATCH.obs[:-1, :, 0] + BATCH.action[..., 1])
    supervision = RewardTargets(np.where(BATCH.mask > 0, target, 1e3).astype(np.float32))  # type: ignore[arg-type]
    predict = quick_jit(partial(ubp2.predict_reward, config))

    def error(model: WorldModel) -> float:
        now = state._replace(model=model)
        found = predict(now, BATCH.obs[:-1].reshape(-1, OBS), BATCH.action.reshape(-1, ACTION))
        return float(np.abs((np.asarray(found).reshape(target.shape) - target) * BATCH.mask).mean())

    model = state.model
    for _ in range(1000):
        model = descend(model, supervision, 0.03)
    assert error(state.model) > 0.2 and error(model) < 0.06


def paths(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


def test_nothing_that_is_learned_from_has_a_reward_field(config: Config, state: State) -> None:
    """In an ordinary run no leaf of memory or batches names a reward; in the state only the learned model does."""
    memory = programs.memory(config, OBS, ACTION, EPISODE)
    assert memory.true_rewards is None and not [path for path in paths(memory) if "reward" in path]
    for kind in (Frame, Batch, Segments, Preferences, replay.Replay):
        assert not [name for name in kind._fields if "reward" in name or "return" in name], kind
    named = [path for path in paths(state) if "reward" in path]
    learned = r"\.reward(_anchor)?\.(weights|biases|scales|offsets)\[|^\.reward_units$"
    assert named and all(re.search(learned, path) for path in named)
    ceiling = programs.memory(dataclasses.replace(config, ceiling=True), OBS, ACTION, EPISODE)
    assert [path for path in paths(ceiling) if "reward" in path]  # the check does see one where there is one


def test_the_true_reward_reaches_nothing(config: Config, state: State) -> None:
    """Recording a decision with a reward of NaN leaves the same state and memory as with zero."""
    frame = Frame(uniform(4, OBS), uniform(5, ACTION), np.bool_(False), np.int32(0), np.int32(0))  # type: ignore
    record = quick_jit(partial(programs._record, make_agent(config, OBS, ACTION)))
    memory, last = programs.memory(config, OBS, ACTION, EPISODE), (uniform(6, OBS), np.bool_(False))
    after = [record(state.stats, memory, frame, *last, np.float32(reward)) for reward in (0.0, np.nan)]
    assert not any(changed(*after)) and any(changed(memory, after[0][1]))
    memory = programs.memory(dataclasses.replace(config, ceiling=True), OBS, ACTION, EPISODE)
    assert any(changed(*(record(state.stats, memory, frame, *last, np.float32(reward)) for reward in (0.0, np.nan))))


def test_the_last_observation_of_an_episode_takes_a_slot_and_is_observed(config: Config, state: State) -> None:
    """One call with `ended` writes what two calls wrote: the decision, then its outcome with a zero action."""
    agent = make_agent(config, OBS, ACTION)
    record = quick_jit(partial(programs._record, agent))
    frame = Frame(uniform(4, OBS), uniform(5, ACTION), np.bool_(True), np.int32(3), np.int32(7))  # type: ignore
    memory, last = programs.memory(config, OBS, ACTION, EPISODE), uniform(6, OBS)
    going, kept = record(state.stats, memory, frame, last, np.bool_(False), np.float32(0.0))
    over, closed = record(state.stats, memory, frame, last, np.bool_(True), np.float32(0.0))
    assert (int(kept.replay.total), int(closed.replay.total)) == (1, 2)
    closing = Frame(last, np.zeros(ACTION, np.float32), np.bool_(False), np.int32(3), np.int32(8))  # type: ignore
    expected = add(kept.replay, closing)
    assert not any(changed(expected, closed.replay))
    assert not any(changed(agent.observe(going, last), over)) and any(changed(going, over))


def test_segment_returns_are_sums_of_predicted_rewards(config: Config, lively: State) -> None:
    """Summed over the segment for each member; their mean is what predict_reward says."""
    obs, action, none = uniform(6, PAIRS, LENGTH, OBS), uniform(7, PAIRS, LENGTH, ACTION), np.zeros(PAIRS, np.int32)
    returns = quick_jit(partial(ubp2.segment_returns, config))(lively, Segments(obs, action, none, none))  # type: ignore
    predict = quick_jit(partial(ubp2.predict_reward, config))
    rewards = np.asarray(predict(lively, obs.reshape(-1, OBS), action.reshape(-1, ACTION))).reshape(PAIRS, LENGTH)
    assert returns.shape == (3, PAIRS)
    np.testing.assert_allclose(np.mean(returns, axis=0), rewards.sum(axis=1), rtol=1e-4, atol=1e-5)


def test_without_exploration_neither_plan_nor_policy_has_bonus_or_noise(config: Config, lively: State) -> None:
    """explore = 0: lambda does not matter to the plan, and the policy is its mode whatever the key."""
    plan, react = (quick_jit(partial(act, config)) for act in (ubp2.act_by_plan, ubp2.act_by_policy))
    carry, obs = np.zeros((HORIZON, ACTION), np.float32), uniform(8, OBS)
    large = lively._replace(log_lambda=jnp.full(3, 4.0))
    for explore, alike in ((0.0, True), (1.0, False)):
        a, b = (plan(s, carry, obs, np.float32(explore), jax.random.key(0)).action for s in (lively, large))
        assert np.array_equal(a, b) == alike
        a, b = (react(lively, carry, obs, np.float32(explore), jax.random.key(k)).action for k in (0, 1))
        assert np.array_equal(a, b) == alike


def test_agents_by_name(config: Config) -> None:
    """The registry builds the named agent and refuses others."""
    assert make_agent(config, OBS, ACTION).carry().shape == (HORIZON, ACTION)
    with pytest.raises(UserError, match="unknown agent 'ubp3'"):
        make_agent(dataclasses.replace(config, agent="ubp3"), OBS, ACTION)  # type: ignore[arg-type]
