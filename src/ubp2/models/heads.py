"""How a value is read from a network's output: one number, or two-hot bins on a symlog scale (TD-MPC2)."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["BINS", "ValueHead", "decode_value", "symexp", "symlog", "two_hot", "value_error", "value_outputs"]

ValueHead = Literal["scalar", "twohot"]
BINS = 101
LOW, HIGH = -10.0, 10.0  # on the symlog scale


def symlog(x: Array) -> Array:
    """sign(x) log(1 + |x|)"""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Array) -> Array:
    """Inverse of symlog."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


def value_outputs(head: ValueHead) -> int:
    """Outputs that a value network needs."""
    return 1 if head == "scalar" else BINS


def two_hot(x: Array) -> Array:
    """Weights on the two bins around symlog(x): [...] -> [..., BINS]."""
    place = (jnp.clip(symlog(x), LOW, HIGH) - LOW) / (HIGH - LOW) * (BINS - 1)
    lower = jnp.clip(jnp.floor(place), 0, BINS - 2)
    upper_weight = (place - lower)[..., None]
    below = jax.nn.one_hot(lower.astype(jnp.int32), BINS)
    above = jax.nn.one_hot(lower.astype(jnp.int32) + 1, BINS)
    return below * (1 - upper_weight) + above * upper_weight


def decode_value(head: ValueHead, output: Array) -> Array:
    """Network output [..., outputs] to a return [...]."""
    if head == "scalar":
        return output[..., 0]
    bins = jnp.linspace(LOW, HIGH, BINS)
    return symexp(jnp.sum(jax.nn.softmax(output, axis=-1) * bins.reshape((1,) * (output.ndim - 1) + (-1,)), axis=-1))


def value_error(head: ValueHead, output: Array, target: Array) -> Array:
    """Error of one output [..., outputs] against a target return [...]: squared, or cross-entropy of the bins."""
    if head == "scalar":
        return (output[..., 0] - target) ** 2
    return -jnp.sum(two_hot(target) * jax.nn.log_softmax(output, axis=-1), axis=-1)
