"""Which pairs to ask about. A strategy ranks candidate pairs from the members' returns of their two segments.

strategy(key, returns [E, N, 2]) -> score [N], flip [N] bool: the K best scores are asked, with the two segments
exchanged where `flip` says so.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from ubp2.errors import unknown_name
from ubp2.preference.bradley_terry import probability

__all__ = ["STRATEGIES", "disagreement", "make_strategy", "optimistic", "promising", "select", "uniform"]

PROMISING = 0.2  # share of the segments that counts as the best

Strategy = Callable[[Array, Array], tuple[Array, Array]]


def optimistic(key: Array, returns: Array) -> tuple[Array, Array]:
    """Algorithm 2: mean plus standard deviation over members of P(first preferred).

    The score depends on which segment is called first, so both orders of every pair are candidates and the better
    one stands for the pair.
    """
    del key
    first = probability(returns[..., 0], returns[..., 1])  # [E, N]
    std = jnp.std(first, axis=0)  # the same for both orders
    forward, backward = jnp.mean(first, axis=0) + std, jnp.mean(1.0 - first, axis=0) + std
    return jnp.maximum(forward, backward), backward > forward


def disagreement(key: Array, returns: Array) -> tuple[Array, Array]:
    """The pairs about which members differ most: standard deviation of P(first preferred)."""
    del key
    score = jnp.std(probability(returns[..., 0], returns[..., 1]), axis=0)
    return score, jnp.zeros(score.shape, bool)


def promising(key: Array, returns: Array) -> tuple[Array, Array]:
    """Half of the pairs at random, half between segments that may both be among the best.

    The best are the upper fifth by mean plus deviation of their return. Chance teaches what is good at all, contests
    among the best what is better still: pairs drawn at random hardly ever compare two good segments.
    """
    hoped = jnp.mean(returns, axis=0) + jnp.std(returns, axis=0)  # [N, 2]
    contest = jnp.all(hoped >= jnp.percentile(hoped, 100 * (1 - PROMISING)), axis=1)
    score, flip = uniform(key, returns)
    share = jnp.mean(contest)  # contests are few; their scores crowd at the top as densely as those of all pairs
    return jnp.where(contest, 1.0 - (1.0 - score) * share, score), flip


def uniform(key: Array, returns: Array) -> tuple[Array, Array]:
    """Every candidate pair is as good as any other."""
    score = jax.random.uniform(key, returns.shape[1:2])
    return score, jnp.zeros(score.shape, bool)


STRATEGIES: dict[str, Strategy] = {
    "optimistic": optimistic,
    "promising": promising,
    "disagreement": disagreement,
    "uniform": uniform,
}


def make_strategy(name: str) -> Strategy:
    """Look a strategy up by name."""
    if name not in STRATEGIES:
        raise unknown_name("query strategy", name, STRATEGIES)
    return STRATEGIES[name]


def select(strategy: Strategy, key: Array, returns: Array, count: int) -> tuple[Array, Array, Array]:
    """The `count` best candidates: pair index [K], flip [K], score [K], best first."""
    score, flip = strategy(key, returns)
    best, index = jax.lax.top_k(score, count)
    return index, flip[index], best
