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

    init: Callable[[Array], State]
    """Key -> state."""
    seen: Callable[[State], Any]
    """The part of the state that observations change: small, and all that recording moves."""
    observe: Callable[[Any, Array], Any]
    """That part and one new observation [D] -> that part."""
    with_seen: Callable[[State, Any], State]
    """The state with that part replaced; also with a leading axis of seeds."""
    carry: Callable[[], Array]
    """What the first decision of an episode starts from."""
    plan: Callable[[State, Array, Array, Array, Array], Action]
    """State, carry, obs [D], explore [], key -> what the planner does."""
    react: Callable[[State, Array, Array, Array, Array], Action]
    """The same with the policy."""
    update: Callable[[State, Batch, Preferences | RewardTargets, Array], tuple[State, Metrics]]
    """One gradient step on everything: state, batch, answered comparisons, key."""
    segment_returns: Callable[[State, Segments], Array]
    """What each reward member gives segments: [E, N]."""
    predict_reward: Callable[[State, Array, Array], Array]
    """Learned reward of obs [N, D] and action [N, A]: [N]."""
    fit: Callable[[State, Replay, Preferences, Array], tuple[State, Metrics]] | None = None
    """Called after each session of questions, where an agent has it: state, replay, answered comparisons, key."""
    plans: bool = True
    """False: `plan` is its policy, and there are no terms of a plan to tell."""
    others: int = 0
    """Further states of the replay that an update wants to see."""
    reflex: Callable[[State], Reflex] | None = None
    """What its policy is made of, for export; None: it is of another kind, and is not exported."""
