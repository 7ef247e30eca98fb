"""MRN (Liu et al. 2022): PEBBLE whose reward also learns from what the critics would make of it.

Now and then, before an update: how would one gradient step on the present reward change the critics, and how well would
they then answer the comparisons? The reward members take a step towards rewards whose critics answer better.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array

from ubp2.agents import bounded_reward, pebble, sac
from ubp2.agents.base import Agent
from ubp2.agents.branch import when
from ubp2.agents.gradients import adam, descend
from ubp2.agents.pebble import Parts, State
from ubp2.agents.sac import Transitions
from ubp2.config.schema import Config
from ubp2.models import losses, normalizer
from ubp2.models.networks import MLP
from ubp2.types import Preferences

__all__ = ["before", "make_agent", "outer_loss"]


def outer_loss(
    config: Config, state: State, moved: Transitions, pairs: Preferences, future: Array, members: MLP
) -> Array:
    """Cross-entropy of the comparisons under critics that have taken one plain gradient step on this reward.

    The critics judge a segment by its first decision. `future` [N] is the discounted value of what comes after.
    """
    reward = jnp.mean(bounded_reward.rewards(members, moved.z, moved.action), axis=0)
    slope = jax.grad(sac.critic_loss)(state.sac.critics, moved, reward + future)
    rate = config.training.learning_rate
    ahead = jax.tree.map(lambda now, change: now - rate * change, state.sac.critics, slope)

    def judged(obs: Array, action: Array) -> Array:
        z = normalizer.normalize(config.model, state.sac.stats, obs[:, 0])
        return sac.values(ahead, z, action[:, 0])  # [2, P]

    logits = judged(pairs.left_obs, pairs.left_action) - judged(pairs.right_obs, pairs.right_action)
    errors, _ = jax.vmap(losses.preference_loss, in_axes=(0, None, None))(logits, pairs.label, pairs.weight)
    return config.sac.mrn_weight * jnp.sum(errors)


def before(config: Config, state: State, moved: Transitions, pairs: Preferences, key: Array) -> State:
    """Every so many updates, once there are labels, one step of the reward members down the outer loss."""

    def step(state: State) -> State:
        future = jax.lax.stop_gradient(sac.target_values(config, state.sac, moved, key))
        gradient = jax.grad(partial(outer_loss, config, state, moved, pairs, future))(state.reward)
        reward, optimizer = descend(adam(config), cast(Any, gradient), state.reward_optimizer, state.reward)
        return state._replace(reward=reward, reward_optimizer=optimizer)

    due = (state.sessions > 0) & (state.sac.updates % config.sac.mrn_every == 0)
    return when(due, step, state)


def make_agent(config: Config, obs_dim: int, action_dim: int) -> Agent:
    """PEBBLE that does this before its updates."""
    return pebble.make_agent(config, obs_dim, action_dim, Parts(before=partial(before, config)))
