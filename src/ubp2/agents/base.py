"""An agent is a NamedTuple of pure functions, so that the training loop knows no algorithm by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from ubp2.models.networks import MLP
from ubp2.models.normalizer import Normalizer
from ubp2.replay import Replay
from ubp2.types import Batch, Preferences, RewardTargets, Scores, Segments

__all__ = ["Action", "Agent", "Metrics", "Reflex", "without_plan"]

State = Any  # a pytree of arrays, opaque to the loop
Metrics = dict[str, Array]


class Action(NamedTuple):
    """What an agent does, and why."""

    action: Array  # [A] in [-1, 1]
    carry: Array  # what the next decision of the episode starts from
    scores: Scores  # terms of the plan, zeros for the policy
    broken: Array  # [] plan scores that were not finite


def without_plan(action: Array, carry: Array) -> Action:
    """An action that no plan led to: there is nothing to tell of it."""
    zero = jnp.zeros(())
    return Action(action, carry, Scores(*(zero for _ in Scores._fields)), jnp.zeros((), jnp.int32))


class Reflex(NamedTuple):
    """All that a policy needs to act without exploration, for those who act without this package (`ubp2.sharing`).

    Observations are normalised; with an encoder, its output goes through SimNorm; tanh of the first half of what the
    policy network says is the action.
    """

    stats: Normalizer
    policy: MLP
    encoder: MLP | None = None


class Agent(NamedTuple):
    """Everything the loop asks of an algorithm. All functions are for one run and one environment."""

    init: Callable[[Array], State]  # key -> state
    seen: Callable[[State], Any]  # the part of the state that observations change: small, and all that recording moves
    observe: Callable[[Any, Array], Any]  # that part and one new observation [D] -> that part
    with_seen: Callable[[State, Any], State]  # the state with that part replaced; also with a leading axis of seeds
    carry: Callable[[], Array]  # what the first decision of an episode starts from
    plan: Callable[[State, Array, Array, Array, Array], Action]  # state, carry, obs [D], explore [], key
    react: Callable[[State, Array, Array, Array, Array], Action]  # the same with the policy
    update: Callable[[State, Batch, Preferences | RewardTargets, Array], tuple[State, Metrics]]
    segment_returns: Callable[[State, Segments], Array]  # [E, N]
    predict_reward: Callable[[State, Array, Array], Array]  # obs [N, D], action [N, A] -> [N]
    fit: Callable[[State, Replay, Preferences, Array], tuple[State, Metrics]] | None = None  # after each session
    plans: bool = True  # False: `plan` is its policy, and there are no terms of a plan to tell
    others: int = 0  # further states of the replay that an update wants to see
    reflex: Callable[[State], Reflex] | None = None  # None: its policy is of another kind, and is not exported
