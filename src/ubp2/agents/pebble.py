"""PEBBLE (Lee, Smith, Abbeel 2021): SAC on a reward ensemble learned from comparisons.

Before the first labels the policy is drawn to what it has hardly seen (distance to the k-th nearest neighbour); with
them the critics start anew. The reward is fitted at each session, a few epochs or until it answers its labels, and
every update asks the present ensemble for the rewards of its minibatch, so that nothing has to be relabelled.

RUNE, MRN and SURF are this agent with one function of `Parts` exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax import Array

from ubp2.agents import sac
from ubp2.agents.base import Agent, Metrics
from ubp2.agents.sac import Transitions
from ubp2.configs import Config
from ubp2.models import losses, normalizer, world_model
from ubp2.models.networks import MLP, apply_members, ensemble
from ubp2.models.normalizer import Normalizer
from ubp2.preference import bradley_terry
from ubp2.replay import Replay
from ubp2.types import Batch, Preferences, RewardTargets, Segments

__all__ = ["Parts", "State", "fit", "init", "make_agent", "novelty", "rewards", "update"]

NEIGHBOUR = 5


class State(NamedTuple):
    """Everything that learning changes."""

    sac: sac.State
    reward: MLP  # [E, ...]
    reward_optimizer: optax.OptState
    spread: Array  # [3] count, mean and sum of squares of novelty so far
    sessions: Array  # [] int32, fits so far


class Parts(NamedTuple):
    """What the relatives of PEBBLE exchange."""

    reward: Callable[[Config, State, Array], Array]  # rewards of the members [E, N] -> what SAC is paid [N]
    before: Callable[..., State] | None = None  # something to learn before each update
    pairs: Callable[..., Array] | None = None  # a loss for the fit in place of the cross-entropy of labelled pairs


def members_of(config: Config, obs_dim: int, action_dim: int, key: Array) -> MLP:
    """A fresh reward ensemble."""
    sizes = [obs_dim + action_dim, *[config.model.width] * config.model.depth, 2]
    return ensemble(config.model.reward_members, lambda k: MLP(sizes, key=k, output_scale=0.3), key)


def rewards(config: Config, members: MLP, stats: Normalizer, obs: Array, action: Array) -> Array:
    """Of every member: [..., D], [..., A] -> [E, ...]."""
    z = normalizer.normalize(stats, obs)
    return world_model.read_reward(config.model, apply_members(members, jnp.concatenate([z, action], -1)))[0]


def novelty(states: Array, others: Array) -> Array:
    """Distance of each state [N, Z] to its k-th nearest among others [M, Z], which may hold the state itself."""
    squares = jnp.sum(states**2, 1)[:, None] + jnp.sum(others**2, 1)[None] - 2.0 * states @ others.T
    nearest = -jax.lax.top_k(-squares, NEIGHBOUR + 1)[0]
    return jnp.sqrt(jnp.maximum(nearest[:, -1], 0.0))
