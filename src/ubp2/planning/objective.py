"""Eq. 1: the optimistic return of an action sequence, each term kept apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ubp2.configs import Config, given
from ubp2.models import world_model
from ubp2.models.networks import MLP
from ubp2.models.world_model import WorldModel
from ubp2.types import Scores
from ubp2.uncertainty import disagreement, jensen_renyi, spread

__all__ = ["optimistic_return", "total"]


def optimistic_return(config: Config, model: WorldModel, policy: MLP, z: Array, actions: Array, key: Array) -> Scores:
    """Score sequences [N, H, A] from one state [Z]: roll out the mean dynamics, sum means and uncertainties.

    The terminal action comes from the policy: a_H ~ pi(s_H).
    """
    count, horizon, _ = actions.shape
    discount = given(config.training.discount)

    def step(state: Array, action: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        mean, log_std = world_model.reward(config.model, model, state, action)  # [E, N]
        following = world_model.next_members(model, state, action)  # [E, N, Z]
        terms = (jnp.mean(mean, axis=0), jensen_renyi(mean, log_std), disagreement(following))
        return jnp.mean(following, axis=0), terms

    start = jnp.broadcast_to(z, (count, *z.shape))
    last, terms = jax.lax.scan(step, start, jnp.moveaxis(actions, 1, 0))
    weights = discount ** jnp.arange(horizon, dtype=jnp.float32)
    reward, reward_bonus, dynamics_bonus = (weights @ term for term in terms)  # [H] @ [H, N]
    # One draw of noise for all sequences: with a draw each, the search would prefer the lucky ones.
    noise = jnp.broadcast_to(jax.random.normal(key, actions.shape[-1:]), (count, actions.shape[-1]))
    final_action, _ = world_model.policy_from_noise(config.model, policy, last, noise)
    values = world_model.value(config.model, model.value, last, final_action)  # [E, N]
    tail = discount**horizon
    return Scores(reward, reward_bonus, dynamics_bonus, tail * jnp.mean(values, axis=0), tail * spread(values))


def total(scores: Scores, coefficients: Array) -> Array:
    """Add the terms up with lambda_r, lambda_d, lambda_q [3]; zeros give the plain expected return."""
    bonus = (
        coefficients[0] * scores.reward_bonus
        + coefficients[1] * scores.dynamics_bonus
        + coefficients[2] * scores.value_bonus
    )
    return scores.reward + scores.value + bonus
