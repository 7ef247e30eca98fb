"""MRN: the gradient through the critics' step against finite differences, and when the step is taken."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.agents.helpers import (
    ROWS,
    equal_trees,
    finite,
    make_batch,
    make_moved,
    make_pairs,
    make_pebble,
    normalised,
    replaced,
    uniform,
    with_sac,
)
from tests.conftest import ACTION, OBS, quick_jit
from ubp2.agents import mrn, sac
from ubp2.agents.pebble import State
from ubp2.agents.registry import make_agent
from ubp2.config.schema import Config
from ubp2.models.networks import MLP

KEY = jax.random.key(5)
MOVED, PAIRS, FUTURE = make_moved(), make_pairs(), uniform(11, ROWS)
EVERY, RATE, WEIGHT = 4, 0.05, 0.1
Tree = Any


@pytest.fixture(scope="module")
def own(config: Config) -> Config:
    """A large step of the critics, so that the reward has much to say."""
    return with_sac(config, learning_rate=RATE, mrn_every=EVERY, mrn_weight=WEIGHT)


@pytest.fixture(scope="module")
def state(own: Config) -> State:
    return make_pebble(own, sessions=1)


def doubles(tree: Tree) -> Tree:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def outputs(network: Tree, x: Any) -> Any:
    """Every member of an ensemble, written out plainly and in the type of its parameters: [N, in] -> [E, N, out]."""

    def one(weights: list[Any], biases: list[Any], scales: list[Any], offsets: list[Any]) -> Any:
        hidden = x
        for weight, bias, scale, offset in zip(weights[:-1], biases[:-1], scales, offsets, strict=True):
            hidden = hidden @ weight + bias
            hidden = (hidden - hidden.mean(-1, keepdims=True)) / jnp.sqrt(hidden.var(-1, keepdims=True) + 1e-5)
            hidden = hidden * scale + offset
            hidden = hidden * jnp.tanh(jnp.logaddexp(0.0, hidden))
        return hidden @ weights[-1] + biases[-1]

    return jax.vmap(one)(network.weights, network.biases, network.scales, network.offsets)


@jax.jit
def reference(critics: MLP, members: MLP) -> Any:
    """The outer loss in double precision, by the paper: an SGD step of both critics, then their cross-entropies."""
    moved = jnp.concatenate([MOVED.z, MOVED.action], axis=-1).astype(float)
    mask = jnp.asarray(MOVED.mask, float)
    target = jnp.tanh(outputs(members, moved)[..., 0]).mean(0) + FUTURE

    def inner(critics: MLP) -> Any:
        errors = (outputs(critics, moved)[..., 0] - target) ** 2
        return (errors * mask).sum() / mask.sum()

    ahead = jax.tree.map(lambda now, slope: now - RATE * slope, critics, jax.grad(inner)(critics))
    sides = ((PAIRS.left_obs, PAIRS.left_action), (PAIRS.right_obs, PAIRS.right_action))
    firsts = [np.concatenate([normalised(np.asarray(o)[:, 0]), np.asarray(a)[:, 0]], -1) for o, a in sides]
    left, right = (outputs(ahead, first.astype(np.float64))[..., 0] for first in firsts)  # [2, P]
    label, weight = (np.asarray(x, np.float64) for x in (PAIRS.label, PAIRS.weight))
    answers = label * jnp.log1p(jnp.exp(right - left)) + (1 - label) * jnp.log1p(jnp.exp(left - right))
    return WEIGHT * (weight * answers).sum() / weight.sum()


@pytest.fixture(scope="module")
def loss(state: State) -> Callable[[Tree], float]:
    """The reference as a function of the members."""

    def loss(members: Tree) -> float:
        with jax.enable_x64(True):
            return float(reference(doubles(state.sac.critics), doubles(members)))

    return loss


@pytest.fixture(scope="module")
def gradient(own: Config, state: State) -> Tree:
    """What the code under test says, in single precision."""
    return quick_jit(jax.grad(partial(mrn.outer_loss, own, state, MOVED, PAIRS, FUTURE)))(state.reward)


def slope(loss: Callable[[Tree], float], members: Tree, direction: Tree, step: float = 1e-4) -> float:
    """Central finite difference along a direction."""
    ahead, behind = (jax.tree.map(lambda p, d, s=s: p + s * d, doubles(members), direction) for s in (step, -step))
    return (loss(ahead) - loss(behind)) / (2 * step)


def test_the_outer_loss_is_that_of_critics_one_step_on(own: Config, state: State, loss) -> None:
    found = float(mrn.outer_loss(own, state, MOVED, PAIRS, FUTURE, state.reward))
    assert found == pytest.approx(loss(state.reward), rel=1e-4)


def test_its_gradient_along_random_directions(state: State, loss, gradient: Tree) -> None:
    rng, size = (
        np.random.default_rng(0),
        float(np.sqrt(sum(np.sum(doubles(g) ** 2) for g in jax.tree.leaves(gradient)))),
    )
    slopes = []
    for _ in range(5):
        direction = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), state.reward)
        parts = jax.tree.map(lambda g, d: float(np.sum(np.asarray(g, np.float64) * d)), gradient, direction)
        wanted = slope(loss, state.reward, direction)
        assert abs(sum(jax.tree.leaves(parts)) - wanted) < 2e-3 * size, "small beside the gradient's length"
        slopes.append(abs(wanted))
    assert np.median(slopes) > 0.1 * size


def test_its_gradient_for_single_weights(state: State, loss, gradient: Tree) -> None:
    """The largest entry of every kind of parameter, in every member."""
    leaves, tree = jax.tree.flatten(doubles(state.reward))
    for number, found in enumerate(np.asarray(g, np.float64) for g in jax.tree.leaves(gradient)):
        for member in range(len(found)):
            place = (member, *np.unravel_index(np.argmax(np.abs(found[member])), found[member].shape))
            units = [np.zeros_like(leaf) for leaf in leaves]
            units[number][place] = 1.0
            wanted = slope(loss, state.reward, jax.tree.unflatten(tree, units))
            assert found[place] == pytest.approx(wanted, rel=5e-3, abs=1e-8)


@pytest.fixture(scope="module")
def before(own: Config) -> Callable[[State], State]:
    return quick_jit(lambda state: mrn.before(own, state, MOVED, PAIRS, KEY))


def at(state: State, updates: int, sessions: int = 1) -> State:
    return state._replace(sac=state.sac._replace(updates=jnp.int32(updates)), sessions=jnp.int32(sessions))


@pytest.mark.parametrize("updates", [0, 1, EVERY - 1, EVERY, EVERY + 1, 3 * EVERY])
@pytest.mark.parametrize("sessions", [0, 1, 2])
def test_it_steps_once_there_are_labels_and_when_it_is_due(state: State, before, updates: int, sessions: int) -> None:
    now = at(state, updates, sessions)
    after = before(now)
    if sessions and updates % EVERY == 0:
        assert not equal_trees(after.reward, now.reward) and finite(after)
        assert not equal_trees(after.reward_optimizer, now.reward_optimizer)
    else:
        assert equal_trees(after, now)
    assert equal_trees(after.sac, now.sac), "the critics' step was in the mind"


def test_the_step_lowers_the_outer_loss(own: Config, state: State) -> None:
    """With a target that it computes itself: the loss is asked with the same one before and after."""
    small = with_sac(own, learning_rate=2e-3)
    future = sac.target_values(small, state.sac, MOVED, KEY)
    loss = quick_jit(partial(mrn.outer_loss, own, state, MOVED, PAIRS, future))
    start = at(state, EVERY)
    step = quick_jit(lambda state: mrn.before(small, state, MOVED, PAIRS, KEY))
    found = [float(loss(start.reward))]
    for _ in range(5):
        start = step(start)
        found.append(float(loss(start.reward)))
    assert all(later < earlier for earlier, later in itertools.pairwise(found)), found


def test_the_agent_is_pebble_that_does_this_before_its_updates(own: Config, state: State) -> None:
    updates = {name: quick_jit(make_agent(replaced(own, agent=name), OBS, ACTION).update) for name in ("pebble", "mrn")}
    batch = make_batch()

    def after(name: str, updates_so_far: int, sessions: int) -> State:
        return updates[name](at(state, updates_so_far, sessions), batch, PAIRS, KEY)[0]

    for number, sessions in ((EVERY, 0), (EVERY + 1, 1)):
        ours, theirs = after("mrn", number, sessions), after("pebble", number, sessions)
        assert equal_trees(ours.reward, theirs.reward)
    ours, theirs = after("mrn", EVERY, 1), after("pebble", EVERY, 1)
    assert not equal_trees(ours.reward, theirs.reward) and equal_trees(theirs.reward, state.reward)
    assert not equal_trees(ours.sac.critics, theirs.sac.critics), "the new reward pays at once"
