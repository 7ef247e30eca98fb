"""What the tests of SAC and its relatives share: decisions, comparisons and states with nothing special about them."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.conftest import ACTION, OBS, member, noisy, numpy_mlp, quick_jit
from ubp2.agents import pebble, reward, sac
from ubp2.agents.sac import Transitions
from ubp2.config.schema import Config
from ubp2.models import world_model
from ubp2.models.networks import MLP
from ubp2.models.normalizer import Normalizer
from ubp2.models.world_model import WorldModel
from ubp2.replay import Replay
from ubp2.types import Batch, Frame, Preferences

ROWS, PAIRS, LENGTH, CAPACITY = 16, 24, 4, 32
# As if observations of this mean and deviation had been seen.
MEAN, STD = np.array([0.1, -0.2, 0.3], np.float32), np.array([0.5, 1.0, 2.0], np.float32)
STATS = Normalizer(*(np.float32(x) for x in (100.0, MEAN, 100.0 * STD**2)))  # type: ignore[arg-type]


def uniform(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def with_sac(config: Config, learning_rate: float | None = None, **changes: Any) -> Config:
    """The config with other fields of its section `sac`, and perhaps another step size."""
    training = config.training if learning_rate is None else replaced(config.training, learning_rate=learning_rate)
    return replaced(config, sac=replaced(config.sac, **changes), training=training)


def replaced(section: Any, **changes: Any) -> Any:
    return dataclasses.replace(section, **changes)


def normalised(obs: np.ndarray) -> np.ndarray:
    return (obs - MEAN) / STD


def make_moved(seed: int = 0) -> Transitions:
    """Decisions at random; a third ends the task, a few are none."""
    terminated, mask = np.arange(ROWS) % 3 == 0, (np.arange(ROWS) % 5 != 1).astype(np.float32)
    z, z_next = uniform(seed, 2, ROWS, OBS)
    return Transitions(z, uniform(seed + 100, ROWS, ACTION), z_next, terminated, mask)  # type: ignore[arg-type]


def make_batch(seed: int = 0, others: int = 30) -> Batch:
    """The same as sub-sequences of one decision, with further observations."""
    moved = make_moved(seed)
    obs = uniform(seed + 200, 2, ROWS, OBS)
    slots = np.zeros((1, ROWS), np.int32)
    parts: Any = (obs, moved.action[None], moved.terminated[None], moved.mask[None], slots)
    further: Any = (uniform(seed + 300, others, OBS), np.arange(1, others + 1))
    return Batch(*parts, *further)


def make_pairs(count: int = PAIRS, seed: int = 0) -> Preferences:
    """Comparisons by the sum of the first coordinate, in a buffer of which the first `count` rows are filled."""
    obs, action = uniform(seed + 400, 2, CAPACITY, LENGTH, OBS), uniform(seed + 500, 2, CAPACITY, LENGTH, ACTION)
    returns = obs[..., 0].sum(-1)
    filled = np.arange(CAPACITY) < count
    label, weight = ((returns[0] > returns[1]) & filled).astype(np.float32), filled.astype(np.float32)
    shown = filled[None, :, None, None]
    obs, action = obs * shown, action * shown
    return Preferences(obs[0], action[0], obs[1], action[1], label, weight, np.int32(count))  # type: ignore[arg-type]


def reward_loss(config: Config, model: WorldModel, stats: Normalizer, supervision: Any, batch: Batch) -> jax.Array:
    """What teaches the reward of UBP2."""
    z = world_model.encode(config.model, model, stats, batch.obs[:-1])
    return reward.supervise(config, model, stats, supervision, batch, z, jax.random.key(0))[0]


def make_replay() -> Replay:
    """A few episodes of four decisions and what they led to."""
    count = 40
    episode, step = (x.astype(np.int32) for x in divmod(np.arange(count), 5))
    ended = step == 3
    frames = Frame(uniform(6, count, OBS), uniform(7, count, ACTION), ended, episode, step)  # type: ignore[arg-type]
    return Replay(jax.tree.map(jnp.asarray, frames), jnp.int32(count))


def make_sac(config: Config, seed: int = 0) -> sac.State:
    """A state in which no weight is zero and the targets differ from the critics."""
    state = quick_jit(partial(sac.init, config, OBS, ACTION))(jax.random.key(seed))
    return state._replace(
        critics=noisy(state.critics, 0.3, 1),
        targets=noisy(state.targets, 0.3, 2),
        policy=noisy(state.policy, 0.3, 3),
        log_alpha=jnp.float32(-0.7),
        stats=STATS,
    )


def make_pebble(config: Config, sessions: int = 0) -> pebble.State:
    """A state of PEBBLE that has seen observations, and had so many sessions."""
    state = quick_jit(partial(pebble.init, config, OBS, ACTION))(jax.random.key(1))
    return state._replace(
        sac=make_sac(config), reward=noisy(state.reward, 0.3, 4), sessions=jnp.asarray(sessions, jnp.int32)
    )


def numpy_members(members: MLP, *inputs: np.ndarray) -> np.ndarray:
    """The first output of every member of an ensemble, in double precision: [E, ...]."""
    x = np.concatenate([np.asarray(part, np.float64) for part in inputs], axis=-1)
    return np.stack([numpy_mlp(member(members, i), x)[..., 0] for i in range(len(members.biases[0]))])


def equal_trees(one: Any, other: Any) -> bool:
    """The same bits in every array."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


def finite(tree: Any) -> bool:
    return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(tree))
