"""The Bradley-Terry model of a comparison: P(left preferred) from the two summed rewards."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["cross_entropy", "is_right", "logit", "probability"]


def probability(left: Array, right: Array) -> Array:
    """exp(R_left) / (exp(R_left) + exp(R_right)) for returns of any shape."""
    return jax.nn.sigmoid(left - right)


def logit(left: Array, right: Array, variance: Array | float = 0.0) -> Array:
    """Log odds that left is preferred when the difference of returns has the given variance.

    With Gaussian rewards the noise is integrated out: E[sigmoid(x)] for x ~ N(m, v) is close to
    sigmoid(m / sqrt(1 + pi v / 8)) (MacKay 1992). This is what gives the reward's standard deviation a gradient:
    a member that is unsure of its reward gives odds nearer to even.
    """
    return (left - right) / jnp.sqrt(1.0 + jnp.pi / 8.0 * variance)


def cross_entropy(logits: Array, label: Array) -> Array:
    """-y log P - (1 - y) log(1 - P) for y = 1 (left), 0 (right) or 0.5 (tie)."""
    return -label * jax.nn.log_sigmoid(logits) - (1.0 - label) * jax.nn.log_sigmoid(-logits)


def is_right(logits: Array, label: Array) -> Array:
    """1 where the predicted side is the labelled one; a tie, labelled or predicted, is half right."""
    tie = (label == 0.5) | (logits == 0.0)
    return jnp.where(tie, 0.5, (logits > 0) == (label > 0.5)).astype(jnp.float32)
