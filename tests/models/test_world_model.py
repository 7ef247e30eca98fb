"""The world model: scan against loop, densities against integrals, and what holds at initialisation."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import ACTION, OBS, member, noisy, numpy_mlp, quick_jit
from ubp2.config.schema import Config, ModelConfig
from ubp2.models import normalizer, world_model
from ubp2.models.networks import MLP
from ubp2.models.world_model import WorldModel

HORIZON, COUNT = 4, 5
reward = quick_jit(world_model.reward, static_argnums=0)
policy = quick_jit(world_model.policy, static_argnums=0)
normalize = quick_jit(normalizer.normalize, static_argnums=0)

CLIPPED = ModelConfig(obs_floor=0.01, obs_limit=10.0, obs_tail=0.0)  # as of old


def inputs(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


class Case(NamedTuple):
    """A model in one of the two spaces, whose dynamics move states clearly, and some states [N, Z]."""

    model: WorldModel
    z: np.ndarray
    dim: int


@pytest.fixture(scope="module", params=["observation", "latent"])
def case(request: pytest.FixtureRequest, config: Config) -> Case:
    model_config = dataclasses.replace(config.model, space=request.param)
    model, _ = quick_jit(partial(world_model.init, model_config, OBS, ACTION))(jax.random.key(0))
    model = noisy(model, 0.3)
    stats = normalizer.Normalizer(jnp.array(4.0), jnp.zeros(OBS), jnp.full(OBS, 4.0))
    encode = quick_jit(partial(world_model.encode, model_config))
    z = np.asarray(encode(model, stats, inputs(COUNT, OBS)))
    return Case(model, z, OBS if request.param == "observation" else 16)


def step(model: WorldModel, number: int, z: np.ndarray, action: np.ndarray) -> np.ndarray:
    """One dynamics member on its own: what it adds to an observation, or a softmax of eights in latent space."""
    output = numpy_mlp(member(model.dynamics, number), np.concatenate([z, action], -1))
    return z + output if model.encoder is None else squeezed(output)


def squeezed(output: np.ndarray) -> np.ndarray:
    """A softmax of eights."""
    groups = np.exp(output.reshape(*output.shape[:-1], -1, 8))
    return (groups / groups.sum(-1, keepdims=True)).reshape(output.shape)


def test_a_latent_comes_from_linear_layernorm_and_simnorm(config: Config) -> None:
    """As in TD-MPC2, in encoder and dynamics: the size of the last linear layer does not count, its LayerNorm does."""
    model_config = dataclasses.replace(config.model, space="latent")
    made, _ = quick_jit(partial(world_model.init, model_config, OBS, ACTION))(jax.random.key(0))
    assert made.encoder is not None and len(made.encoder.scales) == len(made.encoder.weights) == 2
    assert len(made.dynamics.scales) == len(made.dynamics.weights)
    assert len(made.reward.scales) < len(made.reward.weights)
    model, obs = noisy(made, 0.3), inputs(COUNT, OBS)
    stats = normalizer.Normalizer(jnp.array(4.0), jnp.zeros(OBS), jnp.full(OBS, 4.0))
    encode = quick_jit(partial(world_model.encode, model_config))
    z = np.asarray(encode(model, stats, obs))
    np.testing.assert_allclose(z, squeezed(numpy_mlp(model.encoder, obs)), atol=1e-5)
    louder = eqx.tree_at(lambda m: (m.weights[-1], m.biases[-1]), model.encoder, replace_fn=lambda p: 50 * p)
    np.testing.assert_allclose(encode(eqx.tree_at(lambda m: m.encoder, model, louder), stats, obs), z, atol=1e-4)
    next_members, action = quick_jit(world_model.next_members), inputs(COUNT, ACTION, seed=1)
    louder = eqx.tree_at(lambda m: (m.weights[-1], m.biases[-1]), model.dynamics, replace_fn=lambda p: 50 * p)
    same, loud = (next_members(own, z, action) for own in (model, eqx.tree_at(lambda m: m.dynamics, model, louder)))
    np.testing.assert_allclose(same, loud, atol=1e-4)


def test_rollout_equals_a_loop_over_members_and_steps(case: Case) -> None:
    """The scan gives every member its own trajectory, starting with the state itself."""
    actions = inputs(HORIZON, COUNT, ACTION)
    states = np.asarray(quick_jit(world_model.rollout)(case.model, case.z, actions))
    assert states.shape == (3, HORIZON + 1, COUNT, case.dim)
    for number in range(3):
        state = case.z
        np.testing.assert_array_equal(states[number, 0], state)
        for t in range(HORIZON):
            state = step(case.model, number, state, actions[t])
            np.testing.assert_allclose(states[number, t + 1], state, rtol=1e-3, atol=1e-4)
    assert states[:, -1].std(axis=0).mean() > 0.01  # members do differ


def test_members_step_a_shared_state_and_states_of_their_own(case: Case) -> None:
    """next_members and next_own are one step of the same dynamics."""
    action = inputs(COUNT, ACTION)
    shared = quick_jit(world_model.next_members)(case.model, case.z, action)
    expected = [step(case.model, number, case.z, action) for number in range(3)]
    np.testing.assert_allclose(shared, expected, rtol=1e-3, atol=1e-4)
    own = np.stack([case.z + 0.1 * number for number in range(3)])
    expected = [step(case.model, number, own[number], action) for number in range(3)]
    np.testing.assert_allclose(quick_jit(world_model.next_own)(case.model, own, action), expected, rtol=1e-3, atol=1e-4)


def test_states_are_normal_observations_or_groups_of_probabilities(case: Case) -> None:
    """Observation space keeps the normalised observation; latents sum to one in eights and depend on it."""
    assert case.z.shape == (COUNT, case.dim)
    if case.model.encoder is None:
        np.testing.assert_allclose(case.z, inputs(COUNT, OBS), rtol=1e-6)
    else:
        np.testing.assert_allclose(case.z.reshape(COUNT, 2, 8).sum(-1), 1.0, rtol=1e-5)
        assert case.z.std(axis=0).mean() > 1e-3


def test_fresh_dynamics_of_observations_change_almost_nothing(fresh: tuple[WorldModel, MLP]) -> None:
    """Residual dynamics start near the identity, with members that differ."""
    z = inputs(COUNT, OBS)
    change = np.asarray(quick_jit(world_model.next_members)(fresh[0], z, inputs(COUNT, ACTION))) - z
    assert 0 < np.abs(change).max() < 0.1 and change.std(axis=0).max() > 1e-4


def constant_policy(mean: list[float], raw: list[float]) -> MLP:
    """A policy that outputs the same for every state."""
    outputs = np.array(mean + raw, np.float32)
    hidden = np.ones(4, np.float32)
    network = jax.eval_shape(lambda: MLP([OBS, 4, len(outputs)], key=jax.random.key(0)))
    parts = ([np.ones((OBS, 4), np.float32), np.zeros((4, len(outputs)), np.float32)], [hidden, outputs])
    return eqx.tree_at(lambda m: (m.weights, m.biases, m.scales, m.offsets), network, (*parts, [hidden], [hidden]))


@pytest.mark.parametrize(("mean", "raw"), [(0.0, 0.7), (0.6, 0.5), (-0.8, 0.8)])
def test_policy_density_is_the_change_of_variables_and_integrates_to_one(mean: float, raw: float) -> None:
    """The returned log density is that of tanh of a Gaussian, at every action drawn."""
    z = np.zeros((40_000, OBS), np.float32)
    action, log_density = policy(ModelConfig(), constant_policy([mean], [raw]), z, jax.random.key(1))
    a, density = np.asarray(action, np.float64)[:, 0], np.asarray(log_density)
    std = np.exp(-10 + 6 * (np.tanh(raw) + 1))  # log std in [-10, 2]
    inside = np.abs(a) < 0.999  # beyond, atanh of a float32 has lost its digits
    before = np.arctanh(a[inside])
    normal = -0.5 * ((before - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(density[inside], normal - np.log(1 - a[inside] ** 2), atol=5e-3)
    order = np.argsort(a)
    assert np.trapezoid(np.exp(density)[order], a[order]) == pytest.approx(1.0, abs=0.02)


def test_policy_density_adds_over_actions_and_is_finite_far_out() -> None:
    """Two independent actions: the sum of both log densities; a saturated action still has one."""
    z, key = np.zeros((7, OBS), np.float32), jax.random.key(2)
    action, both = policy(ModelConfig(), constant_policy([0.3, -0.5], [0.1, 0.6]), z, key)
    std = np.exp(-10 + 6 * (np.tanh([0.1, 0.6]) + 1))
    before = np.arctanh(np.asarray(action, np.float64))
    each = (
        -0.5 * ((before - [0.3, -0.5]) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi)) - np.log(1 - np.tanh(before) ** 2)
    )
    np.testing.assert_allclose(both, each.sum(-1), atol=1e-2)
    action, log_density = policy(ModelConfig(), constant_policy([50.0, -50.0], [2.0, 2.0]), z, key)
    assert np.abs(action).min() == 1.0 and np.isfinite(log_density).all()


def test_policy_at_scale_zero_is_its_mode() -> None:
    """Without noise the action is tanh of the mean, whatever the key."""
    network, z = constant_policy([0.4, -2.0], [0.5, 0.5]), np.zeros((7, OBS), np.float32)
    for seed in range(3):
        action, _ = policy(ModelConfig(), network, z, jax.random.key(seed), 0.0)
        np.testing.assert_allclose(action, np.tile(np.tanh([0.4, -2.0]), (7, 1)), rtol=1e-6)


def test_reward_is_bounded_by_its_head(config: Config, networks: tuple[WorldModel, MLP]) -> None:
    """tanh keeps the mean in [-1, 1], linear does not; the log std stays in its range either way."""
    model = eqx.tree_at(lambda m: m.reward.weights[-1], networks[0], networks[0].reward.weights[-1] * 50)
    z, action = 3 * inputs(50, OBS), inputs(50, ACTION)
    bounded = dataclasses.replace(config.model, reward_head="tanh")
    mean, log_std = (np.asarray(x) for x in reward(bounded, model, z, action))
    assert mean.shape == log_std.shape == (3, 50)
    assert 0.99 < np.abs(mean).max() <= 1.0
    assert -2.0 <= log_std.min() < -1.9 and 0.9 < log_std.max() <= 1.0
    free, same = reward(config.model, model, z, action)
    assert np.abs(free).max() > 2.0
    np.testing.assert_allclose(np.tanh(free), mean, atol=1e-6)
    np.testing.assert_allclose(same, log_std, rtol=1e-6)


def test_reward_noise_starts_at_its_initial_value(config: Config, fresh: tuple[WorldModel, MLP]) -> None:
    """An output of zero means log std = -1, wherever the range lies."""
    silent = eqx.tree_at(lambda m: m.reward.weights[-1], fresh[0], 0 * fresh[0].reward.weights[-1])
    for limits in ((-2.0, 1.0), (-5.0, 2.0)):
        model_config = dataclasses.replace(config.model, reward_log_std=limits)
        mean, log_std = reward(model_config, silent, inputs(50, OBS), inputs(50, ACTION))
        np.testing.assert_allclose(log_std, -1.0, atol=1e-6)
        assert not mean.any()


def test_a_fresh_reward_is_blind_to_actions_but_not_to_states(config: Config, fresh: tuple[WorldModel, MLP]) -> None:
    """No opinion on actions before a label has spoken, yet a gradient by which every member can learn one."""
    z, one, other = inputs(50, OBS), inputs(50, ACTION, seed=1), inputs(50, ACTION, seed=2)
    mean = np.asarray(reward(config.model, fresh[0], z, one)[0])
    np.testing.assert_array_equal(mean, reward(config.model, fresh[0], z, other)[0])
    assert mean.std(axis=1).min() > 1e-2 and mean.std(axis=0).mean() > 1e-2
    gradient = quick_jit(
        jax.grad(lambda m: jnp.sum(world_model.reward(config.model, m, jnp.array(z), jnp.array(one))[0]))
    )(fresh[0])
    assert np.abs(gradient.reward.weights[0][:, OBS:]).max(axis=(1, 2)).min() > 1e-3


@pytest.mark.parametrize("head", ["scalar", "twohot"])
def test_a_fresh_value_is_zero(config: Config, head: str) -> None:
    """Both value heads start at no return at all."""

    @quick_jit
    def values() -> jax.Array:
        model_config = dataclasses.replace(config.model, value_head=head)
        model, _ = world_model.init(model_config, OBS, ACTION, jax.random.key(0))
        return world_model.value(model_config, model.value, jnp.ones((COUNT, OBS)), jnp.ones((COUNT, ACTION)))

    np.testing.assert_allclose(values(), np.zeros((3, COUNT)), atol=1e-5)


@quick_jit
def observed(rows: jax.Array) -> normalizer.Normalizer:
    start = normalizer.init(rows.shape[1])
    return jax.lax.scan(lambda stats, row: (normalizer.observe(stats, row), None), start, rows)[0]


def test_normalizer_equals_numpy() -> None:
    """Running statistics are the mean and standard deviation, for coordinates of very different size."""
    rows = np.random.default_rng(0).normal([0.0, 100.0, -3.0], [1.0, 5.0, 0.05], (500, 3))
    stats = observed(rows.astype(np.float32))  # type: ignore[arg-type]
    np.testing.assert_allclose(stats.mean, rows.mean(0), rtol=1e-3, atol=1e-4)
    expected = (rows[:50] - rows.mean(0)) / rows.std(0)
    found = normalize(ModelConfig(obs_floor=0.01), stats, rows[:50].astype(np.float32))
    np.testing.assert_allclose(found, expected, atol=5e-3)


def test_normalizer_is_safe_where_nothing_varies() -> None:
    """A constant coordinate becomes zero, small noise on it stays small, an outlier is limited."""
    stats = observed(np.full((500, 3), 3.0, np.float32))  # type: ignore[arg-type]
    obs = np.array([[3.0, 3.001, 1e6]], np.float32)
    np.testing.assert_allclose(normalize(CLIPPED, stats, obs), [[0.0, 0.1, 10.0]], atol=1e-3)
    np.testing.assert_allclose(normalize(ModelConfig(), stats, obs), [[0.0, 0.1, 10 + np.log(1e8)]], rtol=0.01)


def test_normalizer_before_anything_was_seen_is_finite() -> None:
    """The first plan of a run has no statistics to go by."""
    obs = np.array([[0.0, -1e9, 1e9]], np.float32)
    assert np.isfinite(normalize(ModelConfig(), normalizer.init(3), obs)).all()


def test_normalizer_shows_how_far_a_coordinate_moved_that_rested_so_far() -> None:
    """A drawer 0.1 and 0.2 from where it always was, and 2 and 4: each is apart from the next; the clip hid them all.

    Drawer Open is solved at about 0.17.
    """
    stats = observed(np.full((500, 1), -0.3, np.float32))  # type: ignore[arg-type]
    moved = -0.3 + np.array([[0.1], [0.2], [2.0], [4.0]], np.float32)
    assert np.ptp(normalize(CLIPPED, stats, moved)) < 1e-4
    found = np.ravel(normalize(ModelConfig(), stats, moved))
    np.testing.assert_allclose(found, 10 + np.log1p([0.0, 10.0, 190.0, 390.0]), rtol=1e-4)
    assert np.all(np.diff(found) > 0.5)


def test_the_tail_of_the_normalizer_by_hand() -> None:
    """Odd and continuous: x up to the limit of 5, and sign(x) (5 + tail log(|x| - 4)) beyond. Without a tail it clips.

    The three settings may be traced numbers, so that seeds of one program can differ in them.
    """
    stats = normalizer.Normalizer(jnp.array(4.0), jnp.zeros(1), jnp.full(1, 16.0))  # a deviation of 2
    obs = 2.0 * np.array([[-np.inf], [-9.0], [-5.0], [-1.0], [0.0], [4.999], [5.001], [9.0]], np.float32)

    @quick_jit
    def traced(floor: jax.Array, limit: jax.Array, tail: jax.Array) -> jax.Array:
        config = dataclasses.replace(ModelConfig(), obs_floor=floor, obs_limit=limit, obs_tail=tail)
        return normalizer.normalize(config, stats, jnp.asarray(obs))[:, 0]

    by_hand = [-5 - 2 * np.log(5), -5.0, -1.0, 0.0, 4.999, 5 + 2 * np.log(1.001), 5 + 2 * np.log(5)]
    found = np.asarray(traced(0.01, 5.0, 2.0))
    np.testing.assert_allclose(found[1:], by_hand, rtol=1e-5)
    assert np.isfinite(found).all() and found[0] < found[1]
    fixed = normalize(ModelConfig(obs_floor=0.01, obs_limit=5.0, obs_tail=2.0), stats, obs)[:, 0]
    np.testing.assert_array_equal(found, fixed)
    np.testing.assert_array_equal(traced(0.01, 5.0, 0.0), np.clip(obs[:, 0] / 2, -5, 5))
    np.testing.assert_allclose(traced(4.0, 5.0, 0.0), np.clip(obs[:, 0] / 4, -5, 5), rtol=1e-6)
