"""Model-predictive control: optimise Eq. 1 from the current state, do the first action, keep the rest to start from."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ubp2.configs import Config
from ubp2.models import world_model
from ubp2.models.networks import MLP
from ubp2.models.world_model import WorldModel
from ubp2.planning import objective, optimizers
from ubp2.types import Scores

__all__ = ["Decision", "Steering", "plan", "policy_sequences"]


class Steering(NamedTuple):
    """What a plan is for: gathering data (bonuses and noise) or doing well (neither)."""

    coefficients: Array  # [3] lambda_r, lambda_d, lambda_q
    explore: Array  # [] 1 draws a sequence among the elites and adds noise, 0 takes the best


class Decision(NamedTuple):
    """The outcome of a plan."""

    action: Array  # [A]
    following: Array  # [H, A] mean from which the next plan starts
    scores: Scores  # terms of the chosen sequence, []
    broken: Array  # [] scores that were not finite


def policy_sequences(config: Config, model: WorldModel, policy: MLP, z: Array, key: Array) -> Array:
    """Roll the policy out in the mean dynamics from one state [Z] -> [P, H, A]."""

    def step(state: Array, key: Array) -> tuple[Array, Array]:
        action, _ = world_model.policy(config.model, policy, state, key)
        return jnp.mean(world_model.next_members(model, state, action), axis=0), action

    start = jnp.broadcast_to(z, (config.planner.policy_samples, *z.shape))
    _, actions = jax.lax.scan(step, start, jax.random.split(key, config.planner.horizon))
    return jnp.moveaxis(actions, 0, 1)


def plan(
    config: Config, model: WorldModel, policy: MLP, z: Array, previous: Array, steering: Steering, key: Array
) -> Decision:
    """Choose an action for one state [Z]; `previous` [H, A] is the last plan's mean, shifted by one decision."""
    k_policy, k_value, k_search, k_pick, k_noise = jax.random.split(key, 5)
    proposals = policy_sequences(config, model, policy, z, k_policy)

    def terms(actions: Array) -> Scores:
        return objective.optimistic_return(config, model, policy, z, actions, k_value)

    result = optimizers.optimize(
        config.planner,
        lambda actions: objective.total(terms(actions), steering.coefficients),
        previous,
        proposals,
        k_search,
    )
    drawn = jax.random.categorical(k_pick, jnp.log(result.weights))
    chosen = result.elites[jnp.where(steering.explore > 0, drawn, 0)]
    noise = steering.explore * result.std[0] * jax.random.normal(k_noise, chosen[0].shape)
    return Decision(
        action=jnp.clip(chosen[0] + noise, -1.0, 1.0),
        following=jnp.concatenate([result.mean[1:], jnp.zeros_like(result.mean[:1])]),
        scores=jax.tree.map(lambda term: term[0], terms(chosen[None])),
        broken=result.broken,
    )
