"""SURF (Park et al. 2022): PEBBLE whose reward members also learn from pairs that nobody has answered.

A member that is sure of its answer to an unlabelled pair takes it for a label, and has to give the same answer to
stretches of the two segments. Labelled pairs are cropped in the same way.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from ubp2 import replay as replay_
from ubp2.agents import bounded_reward, pebble
from ubp2.agents.base import Agent
from ubp2.agents.pebble import Parts
from ubp2.config.schema import Config, given
from ubp2.models import normalizer
from ubp2.models.networks import MLP
from ubp2.models.normalizer import Normalizer
from ubp2.preference import buffer
from ubp2.replay import Replay

__all__ = ["crops", "make_agent", "pseudo_loss"]


def crops(config: Config, key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Which decisions of both sides count, [..., L] each."""
    return buffer.crops(key, shape, given(config.preferences.crop))


def pseudo_loss(config: Config, replay: Replay, members: MLP, stats: Normalizer, key: Array) -> Array:
    """Cross-entropy of crops under the answers that a member is sure of, over all pairs drawn; summed over members."""
    k_draw, k_crop = jax.random.split(key)
    count, length = config.sac.surf_ratio * config.preferences.batch_size, config.preferences.segment_length
    segments, places = replay_.sample_segments(replay, k_draw, 2 * count, length)
    z = normalizer.normalize(config.model, stats, segments.obs)
    rewards = bounded_reward.rewards(members, z, segments.action)  # [E, 2N, L]
    left, right = rewards[:, :count], rewards[:, count:]
    whole = jax.lax.stop_gradient(jnp.sum(left - right, axis=-1))  # [E, N]
    # Without a place where a segment fits there is no pair either.
    sure = (jax.nn.sigmoid(jnp.abs(whole)) >= config.sac.surf_threshold) & (places > 0)
    kept_left, kept_right = crops(config, k_crop, left.shape)
    cropped = jnp.sum(left * kept_left - right * kept_right, axis=-1)
    errors = jax.nn.softplus(-jnp.sign(whole) * cropped)
    return config.sac.surf_weight * jnp.sum(jnp.mean(sure * errors, axis=1))


def make_agent(config: Config, obs_dim: int, action_dim: int) -> Agent:
    """PEBBLE with crops and unlabelled pairs in its fit."""
    parts = Parts(crop=partial(crops, config), besides=partial(pseudo_loss, config))
    return pebble.make_agent(config, obs_dim, action_dim, parts)
