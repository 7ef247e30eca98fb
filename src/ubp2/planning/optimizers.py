"""Sampling optimisers of an action sequence. They know no model: any objective [N, H, A] -> [N] will do."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ubp2.configs import PlannerConfig

__all__ = ["Plan", "elite_weights", "optimize"]


class Plan(NamedTuple):
    """The final action distribution and its elites."""

    mean: Array  # [H, A]
    std: Array  # [H, A]
    elites: Array  # [K, H, A] of the last iteration, best first
    weights: Array  # [K] sum to one
    broken: Array  # [] int32, how many scores were not finite


def elite_weights(config: PlannerConfig, scores: Array) -> Array:
    """Weights of the elites: equal (cem), or a softmax of their scores (mppi).

    The scale of a reward learned from comparisons is arbitrary, so the softmax is taken in units of the elites' own
    standard deviation.
    """
    finite = jnp.isfinite(scores)
    if config.optimizer == "cem":
        scores = jnp.where(finite, 0.0, scores)  # sound elites are all alike, broken ones still weigh nothing
    safe = jnp.where(finite, scores, 0.0)
    count = jnp.maximum(jnp.sum(finite), 1)
    mean = jnp.sum(safe) / count
    std = jnp.sqrt(jnp.sum(jnp.where(finite, (safe - mean) ** 2, 0.0)) / count)
    weights = jax.nn.softmax(jnp.where(finite, (safe - mean) / (config.temperature * std + 1e-6), -1e9))
    return jnp.where(jnp.any(finite), weights, 1.0 / scores.shape[0])


def optimize(
    config: PlannerConfig,
    objective: Callable[[Array], Array],
    start: Array,
    proposals: Array,
    key: Array,
) -> Plan:
    """Maximise `objective` over sequences in [-1, 1].

    start [H, A]: mean of the first distribution (warm start). proposals [P, H, A]: sequences, such as the policy's,
    that take part in every iteration. A score that is not finite loses against every other, and is counted.
    """
    draws = config.samples - proposals.shape[0]

    def iteration(carry: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        mean, std = carry
        noise = jax.random.normal(key, (draws, *start.shape))
        actions = jnp.concatenate([proposals, jnp.clip(mean[None] + std[None] * noise, -1.0, 1.0)])
        scores = objective(actions)
        broken = jnp.sum(~jnp.isfinite(scores))
        best, index = jax.lax.top_k(jnp.where(jnp.isfinite(scores), scores, -jnp.inf), config.elites)
        elites, weights = actions[index], elite_weights(config, best)
        mean = jnp.einsum("k,kha->ha", weights, elites)
        variance = jnp.einsum("k,kha->ha", weights, (elites - mean[None]) ** 2)
        std = jnp.clip(jnp.sqrt(variance), config.min_std, config.max_std)
        return (mean, std), (elites, weights, broken)

    first = (start, jnp.full(start.shape, config.max_std))
    (mean, std), (elites, weights, broken) = jax.lax.scan(iteration, first, jax.random.split(key, config.iterations))
    return Plan(mean, std, elites[-1], weights[-1], jnp.sum(broken).astype(jnp.int32))
