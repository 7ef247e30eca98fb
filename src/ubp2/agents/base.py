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

    action: Array
    """[A] in [-1, 1]."""
    carry: Array
    """What the next decision of the episode starts from."""
    scores: Scores
    """Terms of the plan, zeros for the policy."""
    broken: Array
    """[]: plan scores that were not finite."""


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
    """Mean and scale of observations."""
    policy: MLP
    """The policy network."""
    encoder: MLP | None = None
    """The network of a latent space; None: the policy reads the observation."""


class Agent(NamedTuple):
    """Everything the loop asks of an algorithm. All functions are for one run and one environment."""

    init: Callable[[Array], State]
    """Key -> state."""
    seen: Callable[[State], Any]
    """The part of the state that observations change (such as statistics of a normaliser); it should be small."""
    observe: Callable[[Any, Array], Any]
    """That part and one new observation [D] -> the part after it."""
    with_seen: Callable[[State, Any], State]
    """The state with that part replaced; also with a leading axis of seeds."""
    carry: Callable[[], Array]
    """What the first decision of an episode starts from."""
    plan: Callable[[State, Array, Array, Array, Array], Action]
    """State, carry, obs [D], explore [] (1: explore, 0: do not), key -> what the planner does."""
    react: Callable[[State, Array, Array, Array, Array], Action]
    """The same of the policy."""
    update: Callable[[State, Batch, Preferences | RewardTargets, Array], tuple[State, Metrics]]
    """One gradient step on everything: state, batch, answered comparisons, key -> state, numbers for the metrics."""
    segment_returns: Callable[[State, Segments], Array]
    """The return that each reward member predicts for segments: [E, N]."""
    predict_reward: Callable[[State, Array, Array], Array]
    """Learned reward of obs [N, D] and action [N, A]: [N]."""
    fit: Callable[[State, Replay, Preferences, Array], tuple[State, Metrics]] | None = None
    """Called where new labels came: state, replay, answered comparisons, key; None: nothing is to be done then."""
    plans: bool = True
    """False: there is no planner, and `plan` is the policy."""
    others: int = 0
    """How many further observations a batch is to bring (`Batch.others`); infinity where the replay holds fewer."""
    reflex: Callable[[State], Reflex] | None = None
    """What the policy is made of, for export; None: it cannot be exported."""
