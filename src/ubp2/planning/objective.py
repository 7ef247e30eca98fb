"""Eq. 1: the optimistic return of an action sequence, each term kept apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ubp2.config.schema import Config, given
from ubp2.models import imagination, world_model
from ubp2.models.imagination import Imagination
from ubp2.models.networks import compute_type
from ubp2.models.uncertainty import jensen_renyi, spread
from ubp2.models.world_model import WorldModel
from ubp2.types import Scores

__all__ = ["optimistic_return", "total", "unrolled"]


def optimistic_return(
    config: Config,
    model: WorldModel,
    ready: Imagination,
    z: Array,
    actions: Array,
    noise: Array,
    units: Array | None = None,
) -> Scores:
    """Score sequences [N, H, A] from one state [Z]: roll out the mean dynamics, sum means and uncertainties.

    The terminal action comes from the policy, a_H ~ pi(s_H), with one draw of noise [A] for all sequences: with a draw
    each, the search would prefer the lucky ones. Rewards of the members count in the given units [E, 2], those in which
    the values were learned.
    """
    count, horizon, _ = actions.shape
    discount = given(config.training.discount)

    def step(state: Array, action: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        imagined = imagination.step(config.model, model, ready, state, action)
        return imagined.z, (imagined.reward, imagined.log_std, imagined.disagreement)

    begin = jnp.broadcast_to(z, (count, *z.shape))
    last, (mean, log_std, disagreements) = jax.lax.scan(
        step, begin, jnp.moveaxis(actions, 1, 0), unroll=unrolled(config)
    )
    weights = (discount ** jnp.arange(horizon, dtype=jnp.float32))[:, None]
    of_members = (jnp.moveaxis(part, 0, 1) for part in (mean, log_std))  # [E, H, N]
    mean, log_std = world_model.counted(config.model, units, *of_members)
    terms = (jnp.mean(mean, axis=0), jensen_renyi(mean, log_std), disagreements)  # [H, N] each
    reward, reward_bonus, dynamics_bonus = (jnp.sum(weights * term, axis=0) for term in terms)
    final_action = imagination.act(config.model, ready, last, jnp.broadcast_to(noise, (count, len(noise))))
    values = imagination.value(config.model, ready, last, final_action)  # [E, N]
    tail = discount**horizon
    return Scores(reward, reward_bonus, dynamics_bonus, tail * jnp.mean(values, axis=0), tail * spread(values))


def unrolled(config: Config) -> bool:
    """Whether to write rollouts out step by step: on a GPU the bookkeeping of a loop costs as much as a small step."""
    return compute_type(config.model) != jnp.float32


def total(scores: Scores, coefficients: Array) -> Array:
    """Add the terms up with lambda_r, lambda_d, lambda_q [3]; zeros give the plain expected return."""
    bonus = (
        coefficients[0] * scores.reward_bonus
        + coefficients[1] * scores.dynamics_bonus
        + coefficients[2] * scores.value_bonus
    )
    return scores.reward + scores.value + bonus
