"""Records that programs take and return, and the memory of an agent on the device."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from ubp2 import replay as replay_
from ubp2.config.schema import Config, given
from ubp2.envs.visual import is_visual
from ubp2.preference import buffer
from ubp2.replay import Replay
from ubp2.training import ceiling
from ubp2.training.ceiling import TrueRewards
from ubp2.types import Batch, Preferences, RewardTargets, Scores, Segments

__all__ = [
    "STREAMS",
    "TERMS",
    "Acted",
    "Decided",
    "Evidence",
    "Memory",
    "Selection",
    "empty_preferences",
    "label_capacity",
    "memory",
    "unpacked",
]

STREAMS = {"act": 1, "update": 2, "select": 3, "evaluate": 4, "fit": 5}
TERMS = len(Scores._fields)  # of a plan


class Memory(NamedTuple):
    """The data that the agent learns from. `true_rewards` is None except in ceiling mode."""

    replay: Replay
    preferences: Preferences
    true_rewards: TrueRewards | None


class Acted(NamedTuple):
    """A decision of each of W environments, with all that the host wants of it in one array: one transfer."""

    carry: Array  # [W, ...]
    decided: Array  # [W, A + TERMS + 1] what `unpacked` takes apart


class Decided(NamedTuple):
    """The parts of `Acted.decided`, on the host."""

    action: np.ndarray  # [..., A]
    terms: np.ndarray  # [..., TERMS] of the plan
    broken: np.ndarray  # [...] scores that were not finite


def unpacked(decided: Array) -> Decided:
    """Wait for what was decided, and take it apart."""
    numbers = np.asarray(decided)
    return Decided(numbers[..., : -TERMS - 1], numbers[..., -TERMS - 1 : -1], numbers[..., -1])


class Evidence(NamedTuple):
    """The evidence of an update, for the case that it went wrong. It stays on the device unless it did."""

    finite: Array  # [] whether the parameters and the metrics after it are finite
    batch: Batch
    supervision: Preferences | RewardTargets


class Selection(NamedTuple):
    """The pairs a session asks about."""

    left: Segments  # [K, ...]
    right: Segments
    score: Array  # [K]
    places: Array  # [] segments that they were drawn from; with fewer than two there is nothing to compare


def memory(config: Config, obs_dim: int, action_dim: int, episode_decisions: int) -> Memory:
    """Empty buffers of the sizes that a run needs."""
    decisions = given(config.training.replay_capacity)
    capacity = decisions + decisions // episode_decisions + episode_decisions + 2  # last frames take slots too
    return Memory(
        replay_.init(capacity, obs_dim, action_dim, _obs_type(config)),
        empty_preferences(config, obs_dim, action_dim),
        ceiling.init(capacity) if config.ceiling else None,
    )


def empty_preferences(config: Config, obs_dim: int, action_dim: int) -> Preferences:
    """The part of the memory that labels are in, which is small beside the replay."""
    return buffer.init(
        label_capacity(config), config.preferences.segment_length, obs_dim, action_dim, _obs_type(config)
    )


def label_capacity(config: Config) -> int:
    """The most labels that an agent learns from."""
    return max(0 if config.ceiling else given(config.preferences.budget) + config.preferences.imported, 1)


def _obs_type(config: Config) -> DTypeLike:
    """The type in which observations are remembered: features of frames are many, and have been rounded to float16."""
    wanted = config.training.replay_type
    return jnp.float16 if wanted == "float16" or (wanted == "auto" and is_visual(config.env)) else jnp.float32
