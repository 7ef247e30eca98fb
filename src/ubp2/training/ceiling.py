"""Ceiling mode: the true reward, kept beside the replay, as an upper bound for research. Off by default.

This is the one place where a true reward is on the device. In an ordinary run none of it exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2.types import Batch, Episode, RewardTargets

__all__ = ["TrueRewards", "add", "init", "load", "targets"]


class TrueRewards(NamedTuple):
    """The reward of each slot of the replay, and the largest magnitude seen."""

    reward: Array  # [C]
    scale: Array  # []


def init(capacity: int) -> TrueRewards:
    """No reward seen."""
    return TrueRewards(jnp.zeros(capacity), jnp.full((), 1e-6))


def add(rewards: TrueRewards, slot: Array, reward: Array) -> TrueRewards:
    """Record the reward of the decision in `slot`."""
    return TrueRewards(rewards.reward.at[slot].set(reward), jnp.maximum(rewards.scale, jnp.abs(reward)))


def targets(rewards: TrueRewards, batch: Batch) -> RewardTargets:
    """The rewards of a batch, scaled into [-1, 1] so that the bounded head of the model can express them."""
    return RewardTargets(rewards.reward[batch.index] / rewards.scale)


def load(rewards: TrueRewards, episodes: Iterable[Episode]) -> TrueRewards:
    """What adding these episodes one by one gives (used when a run is resumed)."""
    ring, frame = np.array(rewards.reward), 0
    scale = np.float32(rewards.scale)
    for episode in episodes:
        true_reward = episode.true_reward.astype(np.float32)
        ring[(frame + np.arange(len(true_reward))) % len(ring)] = true_reward
        scale = max(scale, np.abs(true_reward).max(initial=0.0))
        frame += len(episode.obs)
    return TrueRewards(jnp.asarray(ring), jnp.asarray(scale))
