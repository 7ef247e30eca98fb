"""Sampling optimisers of an action sequence. They know no model: any objective of sequences [N, H, A] will do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ubp2.config.schema import PlannerConfig

__all__ = ["Plan", "elite_weights", "optimize"]


class Plan(NamedTuple):
    """The final action distribution, and the sequences of the last iteration that it was fitted to."""

    mean: Array  # [H, A]
    std: Array  # [H, A]
    actions: Array  # [N, H, A]
    weights: Array  # [N] sum to one, zero for all but the elites
    best: Array  # [] index of the best sequence
    details: Any  # what the objective said about each sequence, [N, ...]
    broken: Array  # [] int32, how many scores were not finite


def elite_weights(config: PlannerConfig, scores: Array) -> Array:
    """Weights of N sequences: zero for all but the elites, who share equally (cem) or by a softmax of scores (mppi).

    The scale of a reward learned from comparisons is arbitrary, so the softmax is taken in units of the elites' own
    standard deviation. A score that is not finite weighs nothing; if none is, all weigh the same.
    """
    finite = jnp.isfinite(scores)
    sound = jnp.where(finite, scores, -jnp.inf)
    place = jnp.arange(len(scores))
    # A place in the order is a count of who is ahead: cheaper here than sorting, and on a GPU much cheaper.
    ahead = (sound[None] > sound[:, None]) | ((sound[None] == sound[:, None]) & (place[None] < place[:, None]))
    elite = finite & (jnp.sum(ahead, axis=1) < config.elites)
    count = jnp.maximum(jnp.sum(elite), 1)
    if config.optimizer == "cem":
        weights = elite / count
    else:
        mean = jnp.sum(jnp.where(elite, scores, 0.0)) / count
        centred = jnp.where(elite, scores - mean, 0.0)
        std = jnp.sqrt(jnp.sum(centred**2) / count)
        weights = jax.nn.softmax(jnp.where(elite, centred / (config.temperature * std + 1e-6), -jnp.inf))
    return jnp.where(jnp.any(elite), weights, 1.0 / len(scores))


def optimize(
    config: PlannerConfig,
    objective: Callable[[Array], tuple[Array, Any]],
    start: Array,
    proposals: Array,
    key: Array,
) -> Plan:
    """Maximise an objective, sequences [N, H, A] in [-1, 1] to scores [N] and details of each.

    start [H, A]: mean of the first distribution (warm start). proposals [P, H, A]: sequences, such as the policy's,
    that take part in every iteration. A score that is not finite loses against every other, and is counted.
    """
    draws = config.samples - proposals.shape[0]

    def iteration(carry: tuple[Array, Array], noise: Array) -> tuple[tuple[Array, Array], Any]:
        mean, std = carry
        actions = jnp.concatenate([proposals, jnp.clip(mean[None] + std[None] * noise, -1.0, 1.0)])
        scores, details = objective(actions)
        weights = elite_weights(config, scores)
        share = weights[:, None, None]
        mean = jnp.sum(share * actions, axis=0)
        variance = jnp.sum(share * (actions - mean[None]) ** 2, axis=0)
        std = jnp.clip(jnp.sqrt(variance), config.min_std, config.max_std)
        broken = jnp.sum(~jnp.isfinite(scores))
        best = jnp.argmax(jnp.where(jnp.isfinite(scores), scores, -jnp.inf))
        return (mean, std), (actions, weights, best, details, broken)

    first = (start, jnp.full(start.shape, config.max_std))
    noise = jax.random.normal(key, (config.iterations, draws, *start.shape))
    (mean, std), found = jax.lax.scan(iteration, first, noise)
    actions, weights, best, details = jax.tree.map(lambda x: x[-1], found[:4])
    return Plan(mean, std, actions, weights, best, details, jnp.sum(found[4]).astype(jnp.int32))
