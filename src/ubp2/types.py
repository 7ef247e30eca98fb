"""The vocabulary: pytrees and protocols that every layer shares.

Axis letters: E members, N samples or pairs, L segment length, H horizon, Z model state, A action, D observation.
Nothing that lives on the device has a reward field: the true reward stays in `Episode`, on the host, where only a
scripted teacher, the evaluation and the diagnostics read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:  # environment workers import this module and must not load jax
    from jax import Array

__all__ = ["Batch", "Episode", "Frame", "Preferences", "Query", "RewardTargets", "Scores", "Segments", "Step"]


class Step(NamedTuple):
    """What the environment answers to one decision of each of W environments (host)."""

    obs: np.ndarray  # [W, D] float32, or uint8 for frames: the observation after the decision
    true_reward: np.ndarray  # [W] float64, summed over the action repeat
    terminated: np.ndarray  # [W] bool, the task ended: no value beyond
    truncated: np.ndarray  # [W] bool, the clock ran out: the value goes on
    success: np.ndarray  # [W] bool


class Episode(NamedTuple):
    """One recorded episode (host, archive). `seed` and `action` are enough to simulate and render it again."""

    index: int
    seed: int
    obs: np.ndarray  # [T+1, D] float32
    action: np.ndarray  # [T, A] float32 in [-1, 1]
    true_reward: np.ndarray  # [T] float64
    success: np.ndarray  # [T] bool
    terminated: bool


class Frame(NamedTuple):
    """One slot of the device replay: an observation and what was done there."""

    obs: Array  # [D]
    action: Array  # [A]
    terminated: Array  # [] bool, the decision taken here ended the task
    episode: Array  # [] int32
    step: Array  # [] int32, decision within the episode


class Batch(NamedTuple):
    """Sub-sequences from replay, time first."""

    obs: Array  # [H+1, N, D]
    action: Array  # [H, N, A]
    terminated: Array  # [H, N] bool
    mask: Array  # [H, N] float32, 0 beyond the end of the episode
    index: Array  # [H, N] int32, slots in the replay
    others: Array | None = None  # [M, D] further observations, for an agent that asks; infinity where there are fewer
    others_index: Array | None = None  # [M] int32, their slots


class Segments(NamedTuple):
    """Stretches of L decisions inside one episode."""

    obs: Array  # [N, L, D]
    action: Array  # [N, L, A]
    episode: Array  # [N] int32
    start: Array  # [N] int32, first decision within the episode


class Preferences(NamedTuple):
    """Answered comparisons, a buffer of fixed capacity P of which the first `count` are filled."""

    left_obs: Array  # [P, L, D]
    left_action: Array  # [P, L, A]
    right_obs: Array  # [P, L, D]
    right_action: Array  # [P, L, A]
    label: Array  # [P] P(left preferred): 1, 0, 0.5 for a tie; of several people the mean
    weight: Array  # [P] 0 where there is no label; in a bootstrapped minibatch [E, P]
    count: Array  # [] int32


class RewardTargets(NamedTuple):
    """The true reward of a `Batch`. Exists in ceiling mode only, where it stands in for `Preferences`."""

    reward: Array  # [H, N], scaled into [-1, 1]


class Query(NamedTuple):
    """One question on the host: two segments, by value and by reference into the archive."""

    left_obs: np.ndarray  # [L, D] float32
    left_action: np.ndarray  # [L, A] float32
    right_obs: np.ndarray  # [L, D] float32
    right_action: np.ndarray  # [L, A] float32
    left_episode: int
    left_start: int
    right_episode: int
    right_start: int
    score: float  # what the query strategy gave it


class Scores(NamedTuple):
    """The terms of Eq. 1 for each action sequence, kept apart until the planner adds them. All [N]."""

    reward: Array
    """Sum of gamma^t mean reward."""
    reward_bonus: Array
    """Sum of gamma^t sigma^r, before lambda."""
    dynamics_bonus: Array
    """Sum of gamma^t sigma^d, before lambda."""
    value: Array
    """gamma^H mean value."""
    value_bonus: Array
    """gamma^H sigma^q, before lambda."""
