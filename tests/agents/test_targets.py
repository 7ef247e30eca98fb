"""What the updates of UBP2 put together: targets and loss of Eq. 5, and the scale of Eq. 6, against plain NumPy."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.agents.helpers import numpy_members
from tests.agents.test_ubp2 import BATCH, COUNT, HORIZON, MIXED, STATS, make_state, uniform
from tests.conftest import OBS, member, noisy, numpy_mlp, quick_jit
from ubp2.agents import learning
from ubp2.agents.learning import State
from ubp2.config.schema import Config
from ubp2.models import world_model
from ubp2.models.networks import MLP
from ubp2.models.world_model import WorldModel
from ubp2.types import Batch

GAMMA = 0.9
UNITS = np.array([[0.1, 0.5], [-0.2, 2.0], [0.3, 1.0]], np.float32)  # level and scale of each reward member
PAIRS = [(0, 1), (0, 2), (1, 2)]


@pytest.fixture(scope="module")
def state(config: Config, networks: tuple[WorldModel, MLP]) -> State:
    """A state in which nothing is zero, and whose target values are not its values."""
    model, policy = networks
    return make_state(config)._replace(
        model=model, policy=policy, target_value=noisy(model.value, 0.3), reward_units=jnp.asarray(UNITS)
    )


def test_targets_take_the_lower_of_two_target_members_and_end_with_the_task(config: Config, state: State) -> None:
    """Any two of the three, drawn anew for each update; the action is the policy's at the state that followed."""
    z_next, reward = uniform(20, HORIZON, COUNT, OBS), uniform(21, HORIZON, COUNT)
    targets = quick_jit(partial(learning._td_targets, config))
    action, _ = quick_jit(partial(world_model.policy, config.model))(state.policy, z_next, jax.random.key(0))
    values = numpy_members(state.target_value, z_next, np.asarray(action))
    wanted = {pair: reward + GAMMA * ~BATCH.terminated * np.minimum(values[pair[0]], values[pair[1]]) for pair in PAIRS}
    drawn = set()
    for seed in range(12):
        found = np.asarray(targets(state, z_next, reward, BATCH, (jax.random.key(0), jax.random.key(seed))))
        fitting = [pair for pair in PAIRS if np.allclose(found, wanted[pair], rtol=1e-3, atol=1e-3)]
        assert len(fitting) == 1
        drawn |= set(fitting)
    assert drawn == set(PAIRS)


def one_sequence(number: int) -> Batch:
    """One column of the batch."""
    obs, action, terminated, mask, index = (np.asarray(part)[:, number : number + 1] for part in BATCH[:5])
    return Batch(obs, action, terminated, mask, index)  # type: ignore[arg-type]


def test_the_value_learns_from_rollout_and_reward_of_one_member(config: Config, state: State) -> None:
    """Eq. 5 of a single sequence under each member in turn, target values of zero: what is found is one of the three.

    Imagined states are the member's own from the first one on; its reward is that of the real states, in its units.
    """
    state = state._replace(target_value=jax.tree.map(jnp.zeros_like, state.target_value))
    batch = one_sequence(COUNT - 1)
    deviation = np.sqrt(np.asarray(STATS.square) / np.asarray(STATS.count))
    z = np.asarray(batch.obs, np.float64) / deviation
    actions, wanted = np.asarray(batch.action, np.float64), []
    rewards = numpy_members(state.model.reward, z[:-1], actions)  # [E, H, 1]
    for m, (level, scale) in enumerate(UNITS):
        states = [z[0]]
        for action in actions[:-1]:
            own = member(state.model.dynamics, m)
            states.append(states[-1] + numpy_mlp(own, np.concatenate([states[-1], action], -1)))
        target = (rewards[m] - level) / scale
        errors = ((numpy_members(state.model.value, np.stack(states), actions) - target) ** 2).mean(axis=0)
        wanted.append((target.mean(), np.mean(GAMMA ** np.arange(HORIZON)[:, None] * errors)))
    loss = quick_jit(lambda key: learning.model_loss(config, state, batch, MIXED, key, state.model)[1][2])
    drawn = set()
    for seed in range(12):
        metrics = loss(jax.random.key(seed))
        found = float(metrics["value/target"]), float(metrics["loss/value"])
        fitting = [m for m in range(3) if np.allclose(found, wanted[m], rtol=2e-3)]
        assert len(fitting) == 1, (found, wanted)
        drawn |= set(fitting)
    assert drawn == {0, 1, 2}


@pytest.mark.parametrize(("before", "size"), [(4.0, 3.0), (1.0, 0.01)])
def test_the_policy_learns_in_units_of_the_range_of_values(
    config: Config, state: State, before: float, size: float
) -> None:
    """Eq. 6 with the mean value over a running 5 to 95 % range, which is at least one and counts no masked state."""
    own = dataclasses.replace(config, training=dataclasses.replace(config.training, entropy=0.1))
    value = eqx.tree_at(lambda v: v.weights[-1], state.model.value, size * state.model.value.weights[-1])
    model, key = eqx.tree_at(lambda m: m.value, state.model, value), jax.random.key(3)
    state, z = state._replace(value_scale=jnp.float32(before)), 2.0 * uniform(22, HORIZON, COUNT, OBS)
    z[-1, :3] *= 5.0  # these are masked
    learn: Any = quick_jit(lambda mask: learning._policy_loss(own, state, model, z, mask, key, state.policy))
    action, log_density = quick_jit(partial(world_model.policy, own.model))(state.policy, z, key)
    values = numpy_members(value, z, np.asarray(action)).mean(axis=0)
    width, other = (np.subtract(*np.percentile(x, [95, 5])) for x in (values[np.asarray(BATCH.mask) > 0], values))
    assert abs(width - other) > 0.03 * width, "the mask must matter"
    scale = max(before + 0.01 * (width - before), 1.0)
    assert (scale == 1.0) == (size < 1.0)
    weights = GAMMA ** np.arange(HORIZON)[:, None] * np.asarray(BATCH.mask)
    wanted = -np.sum(weights * (values / scale - 0.1 * np.asarray(log_density))) / np.sum(np.asarray(BATCH.mask))
    loss, (found, _) = learn(BATCH.mask)
    assert float(loss) == pytest.approx(wanted, rel=2e-3)
    assert float(found) - before == pytest.approx(scale - before, rel=1e-2, abs=1e-6)
    loss, (found, _) = learn(np.zeros_like(BATCH.mask))
    assert (float(loss), float(found)) == (0.0, before), "without a real state nothing is learned"
