"""What keeps a few comparisons from being overlearned: each option against numbers worked by hand."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.agents.helpers import reward_loss
from tests.agents.test_ubp2 import BATCH, MIXED, PAIRS, STATS, make_state, members, trained
from tests.conftest import OBS, quick_jit
from ubp2.agents import learning, reward
from ubp2.config.schema import Config, ModelConfig
from ubp2.models import world_model
from ubp2.models.networks import MLP
from ubp2.models.world_model import WorldModel


def vary(config: Config, section: str, **changes: Any) -> Config:
    return dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **changes)})


def test_smoothed_labels() -> None:
    """A tenth of the answers are coin flips: half of those are right anyway, and a tie stays one."""
    assert reward.smoothed(jnp.array([1.0, 0.0, 0.5]), 0.1).tolist() == pytest.approx([0.95, 0.05, 0.5])


def test_smoothing_puts_an_end_to_certainty(config: Config, networks: tuple[WorldModel, MLP]) -> None:
    """Labels that a steep model answers rightly: its loss asks for more steepness, and with smoothing for less."""
    steep = eqx.tree_at(lambda m: m.reward.weights[-1], networks[0], 30 * networks[0].reward.weights[-1])
    slopes = []
    for share in (0.0, 0.3):
        own = vary(config, "preferences", smoothing=share, stop_accuracy=None, center=0.0)
        own = vary(own, "model", reward_head="linear", reward_likelihood="mean")
        logits = quick_jit(partial(reward.preference_logits, own))(steep, STATS, MIXED)
        pairs = MIXED._replace(label=(logits[0] > 0).astype(jnp.float32))

        def loss(scale: jax.Array, own: Config = own, pairs: Any = pairs) -> jax.Array:
            model = eqx.tree_at(lambda m: m.reward.weights[-1], steep, scale * steep.reward.weights[-1])
            alone = eqx.tree_at(lambda m: m.reward, model, jax.tree.map(lambda p: p[:1], model.reward))
            return reward_loss(own, alone, STATS, pairs, BATCH)

        slopes.append(float(quick_jit(jax.grad(loss))(jnp.ones(()))))
    assert slopes[0] <= 0 < slopes[1]


def test_crops_are_stretches_of_one_length_within_a_pair() -> None:
    """Each row is a run of equal weights that sum to the segment's length, as long on the left as on the right."""
    parts = np.asarray(reward._crops(MIXED, 2, jax.random.key(3)))
    length = MIXED.left_action.shape[1]
    assert parts.shape == (2 * PAIRS, length)
    np.testing.assert_allclose(parts.sum(axis=1), length, rtol=1e-6)
    own = (parts > 0).sum(axis=1)
    assert set(own) <= {2, 3, 4} and len(set(own)) > 1
    np.testing.assert_array_equal(own[:PAIRS], own[PAIRS:])
    for row in parts > 0:
        assert (np.diff(np.flatnonzero(row)) == 1).all()


def test_a_crop_of_all_is_the_segment(config: Config, networks: tuple[WorldModel, MLP]) -> None:
    whole = reward.preference_logits(config, networks[0], STATS, MIXED)
    parts = reward._crops(MIXED, MIXED.left_action.shape[1], jax.random.key(0))
    np.testing.assert_allclose(reward.preference_logits(config, networks[0], STATS, MIXED, parts), whole, rtol=1e-5)


def test_a_reward_of_the_state_stays_blind_to_actions(config: Config) -> None:
    """After updates it gives one reward to all actions in a state; by default it does not."""
    for inputs, blind in (("state", True), ("state-action", False)):
        own = vary(config, "model", reward_inputs=inputs)
        state = trained(quick_jit(partial(learning.update, own)), make_state(own), MIXED, 3)
        rows = np.asarray(state.model.reward.weights[0])[:, OBS:]
        assert np.any(rows) != blind, inputs


def test_anchors_pull_each_member_home(config: Config) -> None:
    """Without a label the pull is all there is: a member displaced by d comes back by rate * anchor * d a step."""
    own = vary(config, "preferences", anchor=2.0, center=0.0)
    state = make_state(own)
    assert state.reward_anchor is not None
    moved = eqx.tree_at(lambda m: m.reward.biases[-1], state.model, state.model.reward.biases[-1] + 1.0)
    silent = MIXED._replace(weight=np.zeros(PAIRS, np.float32))
    after, _ = quick_jit(partial(learning.update, own))(state._replace(model=moved), BATCH, silent, jax.random.key(0))
    left = np.asarray(after.model.reward.biases[-1] - state.reward_anchor.biases[-1])
    np.testing.assert_allclose(left, 1.0 - 2.0 * own.training.learning_rate, rtol=1e-5)
    assert make_state(config).reward_anchor is None  # and costs nothing where it is off


def test_bootstrapped_members_learn_from_their_own_pairs(config: Config, networks: tuple[WorldModel, MLP]) -> None:
    """A member for whom all weights are zero gets no gradient, the others do."""
    own = vary(config, "preferences", stop_accuracy=None, center=0.0)
    weight = np.ones((own.model.reward_members, PAIRS), np.float32)
    weight[1] = 0.0
    pairs = MIXED._replace(weight=weight)  # type: ignore[arg-type]

    def loss(model: WorldModel) -> jax.Array:
        return reward_loss(own, model, STATS, pairs, BATCH)

    slope = quick_jit(jax.grad(loss))(networks[0])
    assert not np.any(members(slope.reward.weights[-1], [1]))
    assert np.any(members(slope.reward.weights[-1], [0])) and np.any(members(slope.reward.weights[-1], [2]))


def test_units_follow_mean_and_deviation() -> None:
    """Rewards of 2 +- 3 and of 0: the running numbers approach each at their rate; what is masked does not count."""
    values = jnp.array([[[-1.0, 5.0], [100.0, 2.0]], [[0.0, 0.0], [7.0, 7.0]]])
    mask = jnp.array([[1.0, 1.0], [0.0, 0.0]])
    moved = reward.track_units(jnp.array([[0.0, 1.0], [0.0, 1.0]]), values, mask)
    assert moved is not None
    np.testing.assert_allclose(moved, [[0.01 * 2.0, 1.0 + 0.01 * (3.0 - 1.0)], [0.0, 0.99]], rtol=1e-6)
    assert reward.track_units(None, values, mask) is None


def test_members_that_agree_but_for_level_and_scale_agree_in_their_units() -> None:
    raw = jnp.array([[4.5, 0.5], [30.0, -10.0]])
    units = jnp.array([[0.5, 2.0], [-10.0, 20.0]])
    np.testing.assert_allclose(world_model.in_units(units, raw), [[2.0, 0.0], [2.0, 0.0]])
    np.testing.assert_allclose(world_model.in_units(None, raw), raw)
    for likelihood, length in (
        ("mean", 1.0),
        ("marginal", np.array([[2.0], [20.0]])),
    ):
        model = dataclasses.replace(ModelConfig(), reward_likelihood=likelihood)
        mean, log_std = world_model.counted(model, units, raw, jnp.log(length * jnp.array([[0.3, 0.6]] * 2)))
        np.testing.assert_allclose(mean, [[2.0, 0.0], [2.0, 0.0]])
        np.testing.assert_allclose(jnp.exp(log_std), [[0.3, 0.6]] * 2, rtol=1e-6)
        assert world_model.counted(model, None, raw, log_std) == (raw, log_std)
    flat = world_model.in_units(jnp.array([[0.5, 1e-6]] * 2), raw)
    np.testing.assert_allclose(flat[0], [40.0, 0.0], rtol=1e-6)  # noise is not blown up beyond a tenth
