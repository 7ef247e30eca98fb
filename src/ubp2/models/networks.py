"""Multilayer perceptrons as Equinox modules, and ensembles of them as stacked parameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["MLP", "apply_members", "apply_own", "ensemble", "mish", "simnorm"]


def mish(x: Array) -> Array:
    """x * tanh(softplus(x)) with a single exponential: tanh(log(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2)."""
    e = jnp.exp(jnp.minimum(x, 20.0))  # beyond 20 the ratio is 1 in float32, and e^2 would overflow
    ratio = e * (e + 2)
    return x * (ratio / (ratio + 2))


def simnorm(x: Array, group: int = 8) -> Array:
    """Softmax within groups of eight: [..., Z] -> [..., Z] (TD-MPC2)."""
    grouped = x.reshape(*x.shape[:-1], -1, group)
    return jax.nn.softmax(grouped, axis=-1).reshape(x.shape)


def _layer_norm(x: Array, scale: Array, offset: Array) -> Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred**2, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * scale + offset


class MLP(eqx.Module):
    """Linear, LayerNorm, Mish for each hidden layer, then a linear output. Works on any leading axes."""

    weights: list[Array]
    biases: list[Array]
    scales: list[Array]
    offsets: list[Array]

    def __init__(self, sizes: list[int], *, key: Array, output_scale: float = 1.0):
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = list(itertools.pairwise(sizes))
        self.weights = [
            jax.random.truncated_normal(k, -2, 2, shape) / jnp.sqrt(float(shape[0]))
            for k, shape in zip(keys, shapes, strict=True)
        ]
        self.weights[-1] = self.weights[-1] * output_scale
        self.biases = [jnp.zeros(out) for out in sizes[1:]]
        self.scales = [jnp.ones(out) for out in sizes[1:-1]]
        self.offsets = [jnp.zeros(out) for out in sizes[1:-1]]

    def __call__(self, x: Array) -> Array:
        for weight, bias, scale, offset in zip(self.weights, self.biases, self.scales, self.offsets, strict=False):
            x = mish(_layer_norm(x @ weight + bias, scale, offset))
        return x @ self.weights[-1] + self.biases[-1]


def ensemble(members: int, make: Callable[[Array], MLP], key: Array) -> MLP:
    """`members` independently initialised networks with their parameters stacked on a first axis."""
    return eqx.filter_vmap(make)(jax.random.split(key, members))


def apply_members(members: MLP, x: Array) -> Array:
    """Every member on the same input: [..., in] -> [E, ..., out]."""
    return jax.vmap(lambda member: member(x))(members)


def apply_own(members: MLP, x: Array) -> Array:
    """Each member on an input of its own: [E, ..., in] -> [E, ..., out]."""
    return jax.vmap(lambda member, own: member(own))(members, x)
