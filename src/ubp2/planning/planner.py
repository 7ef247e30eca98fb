"""Model-predictive control: optimise Eq. 1 from the current state, do the first action, keep the rest to start from."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ubp2.config.schema import Config
from ubp2.models import imagination
from ubp2.models.imagination import Imagination
from ubp2.models.networks import MLP, compute_type
from ubp2.models.world_model import WorldModel
from ubp2.planning import objective, optimizers
from ubp2.types import Scores

__all__ = ["Decision", "Steering", "plan", "policy_sequences"]


class Steering(NamedTuple):
    """What a plan is for: gathering data (bonuses and noise) or doing well (neither)."""

    coefficients: Array  # [3] lambda_r, lambda_d, lambda_q
    explore: Array  # [] 1 adds noise to an elite (mppi) or to the mean (cem), 0 takes the best
    units: Array | None = None  # [E, 2] in which rewards of the members count


class Decision(NamedTuple):
    """The outcome of a plan."""

    action: Array  # [A]
    following: Array  # [H, A] mean from which the next plan starts
    scores: Scores  # terms of the chosen sequence, []; under cem exploring, of an elite
    broken: Array  # [] scores that were not finite


def policy_sequences(config: Config, model: WorldModel, ready: Imagination, z: Array, key: Array) -> Array:
    """Roll the policy out in the mean dynamics from one state [Z] -> [P, H, A]."""
    count, horizon = config.planner.policy_samples, config.planner.horizon
    actions = model.dynamics.weights[0].shape[-2] - len(z)

    def step(state: Array, noise: Array) -> tuple[Array, Array]:
        action = imagination.act(config.model, ready, state, noise)
        return imagination.step(config.model, model, ready, state, action).z, action

    begin = jnp.broadcast_to(z, (count, *z.shape))
    noise = jax.random.normal(key, (horizon, count, actions))
    _, sequences = jax.lax.scan(step, begin, noise, unroll=objective.unrolled(config))
    return jnp.moveaxis(sequences, 0, 1)


def plan(
    config: Config, model: WorldModel, policy: MLP, z: Array, previous: Array, steering: Steering, key: Array
) -> Decision:
    """Choose an action for one state [Z]; `previous` [H, A] is the last plan's mean, shifted by one decision."""
    k_policy, k_value, k_search, k_pick, k_noise = jax.random.split(key, 5)
    ready = imagination.prepare(model, policy, compute_type(config.model))
    proposals = policy_sequences(config, model, ready, z, k_policy)
    noise = jax.random.normal(k_value, previous.shape[-1:])

    def score(actions: Array) -> tuple[Array, Scores]:
        terms = objective.optimistic_return(config, model, ready, z, actions, noise, steering.units)
        return objective.total(terms, steering.coefficients), terms

    result = optimizers.optimize(config.planner, score, previous, proposals, k_search)
    drawn = jax.random.categorical(k_pick, jnp.log(result.weights))
    chosen = jnp.where(steering.explore > 0, drawn, result.best)
    # CEM explores with its own distribution N(mean, std^2), MPPI with an elite and noise, as TD-MPC2.
    from_mean = (config.planner.optimizer == "cem") & (steering.explore > 0)
    action = jnp.where(from_mean, result.mean[0], result.actions[chosen, 0])
    jitter = steering.explore * result.std[0] * jax.random.normal(k_noise, action.shape)
    return Decision(
        action=jnp.clip(action + jitter, -1.0, 1.0),
        following=jnp.concatenate([result.mean[1:], jnp.zeros_like(result.mean[:1])]),
        scores=jax.tree.map(lambda term: term[chosen], result.details),
        broken=result.broken,
    )
