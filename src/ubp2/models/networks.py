"""Multilayer perceptrons as Equinox modules, and ensembles of them as stacked parameters.

The type of a network's weights decides how it computes. In float32 everything is float32, but for the factors of
products on an NVIDIA GPU, which jax rounds to TF32 unless told otherwise. With weights in bfloat16 (`weights_as`)
products take bfloat16 and add up in float32, activations are kept in bfloat16, and what leaves the network is float32;
on a GPU the work between the products is then done by `ubp2.models.kernels`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ubp2.config.schema import ModelConfig
from ubp2.models import kernels

__all__ = [
    "GROUP",
    "MLP",
    "NARROW",
    "apply_members",
    "apply_own",
    "as_factor",
    "block_of_rows",
    "by_blocks",
    "compute_type",
    "ensemble",
    "finished",
    "hidden_layers",
    "last_product",
    "mish",
    "norm_mish",
    "norm_mish_light",
    "product",
    "shared_layer",
    "shared_weight",
    "simnorm",
    "weights_as",
]

T = TypeVar("T")


def compute_type(config: ModelConfig) -> jnp.dtype:
    """The type of weights in products: as the config says, or bfloat16 where there is a GPU to gain from it."""
    names = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
    auto = jnp.bfloat16 if jax.default_backend() == "gpu" else jnp.float32
    return names.get(config.precision, auto)


CPU_BLOCK, DEVICE_BLOCK = 800, 2**16  # rows: what caches hold of all layers; what bounds the memory of a pass
GROUP = 8  # coordinates of a latent that add up to one
NARROW = 128  # inputs up to which a product keeps their digits
ALIGNED = 16  # columns of which the products of a GPU want a multiple


def mish(x: Array) -> Array:
    """x * tanh(softplus(x)) with a single exponential: tanh(log(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2)."""
    e = jnp.exp(jnp.minimum(x, 20.0))  # beyond 20 the ratio is 1 in float32, and e^2 would overflow
    ratio = e * (e + 2)
    return x * (ratio / (ratio + 2))


def simnorm(x: Array, group: int = GROUP) -> Array:
    """Softmax within groups of eight: [..., Z] -> [..., Z] (TD-MPC2)."""
    grouped = x.reshape(*x.shape[:-1], -1, group)
    return jax.nn.softmax(grouped, axis=-1).reshape(x.shape)


def _normal(pre: Array, bias: Array) -> tuple[Array, Array]:
    raised = pre.astype(jnp.float32) + bias
    centred = raised - jnp.mean(raised, axis=-1, keepdims=True)
    rate = jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + kernels.EPSILON)
    return centred * rate, rate


def norm_mish(pre: Array, vectors: Array) -> Array:
    """Mish(LayerNorm(pre + bias)) of rows [..., N, W]; vectors [..., 3, W] are bias, scale and offset."""
    bias, scale, offset = (vectors[..., i : i + 1, :] for i in range(3))
    return mish(_normal(pre, bias)[0] * scale + offset).astype(pre.dtype)


@jax.custom_vjp
def norm_mish_light(pre: Array, vectors: Array) -> Array:
    """`norm_mish` for bfloat16, of members whose rows lie side by side: [N, E, W], [E, 3, W] -> [E, N, W].

    The gradient starts again from `pre`, and keeps nothing else.
    """

    def plain(pre: Array, vectors: Array) -> Array:
        return norm_mish(jnp.moveaxis(pre, 1, 0), vectors)

    return _on_gpu(pre, kernels.norm_mish, plain)(pre, vectors)


def _norm_mish_backward(kept: tuple[Array, Array], change: Array) -> tuple[Array, Array]:
    def plain(pre: Array, vectors: Array, change: Array) -> tuple[Array, Array]:
        bias, scale, offset = jnp.moveaxis(vectors, 1, 0)
        normal, rate = _normal(pre, bias)
        x = normal * scale + offset
        e = jnp.exp(jnp.minimum(x, 20.0))
        part = 1.0 / (e * (e + 2.0) + 2.0)
        # d mish / dx = tanh(softplus) + x (1 - tanh^2) sigmoid, with e = exp(x) throughout
        slope = 1.0 - part * (2.0 - 4.0 * x * e * (e + 1.0) * part)
        change = jnp.moveaxis(change, 0, 1).astype(jnp.float32) * slope
        back = change * scale
        level = jnp.mean(back, axis=-1, keepdims=True)
        tilt = jnp.mean(back * normal, axis=-1, keepdims=True)
        back = rate * (back - level - normal * tilt)
        sums = [jnp.sum(rows, axis=0) for rows in (back, change * normal, change)]
        return back.astype(pre.dtype), jnp.stack(sums, axis=1)

    return _on_gpu(kept[0], kernels.norm_mish_gradient, plain)(*kept, change)


norm_mish_light.defvjp(lambda *arguments: (norm_mish_light(*arguments), arguments), _norm_mish_backward)


def _on_gpu(pre: Array, fused: Callable[..., T], plain: Callable[..., T]) -> Callable[..., T]:
    """The fused version where the layer fits it and the program is compiled for a GPU; the plain one elsewhere.

    Without rows, as in a plan without sequences of the policy, there would be no block to start.
    """
    if pre.dtype != jnp.bfloat16 or not kernels.fits(pre.shape[-1]) or not pre.size:
        return plain
    return lambda *arguments: jax.lax.platform_dependent(*arguments, cuda=fused, default=plain)


def as_factor(x: Array, dtype: jnp.dtype) -> Array:
    """Rows [..., I] as a factor of a product with `as_weight`.

    A narrow float32 input next to bfloat16 weights is an observation or an action, whose digits matter: it enters as a
    leading and a remaining part, which the product adds up again.
    """
    if dtype == jnp.float32:
        return x
    if x.shape[-1] > NARROW:
        return _aligned(x.astype(dtype), -1)
    leading = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return _aligned(jnp.concatenate([leading, x - leading], axis=-1).astype(dtype), -1)


def as_weight(weight: Array) -> Array:
    """A weight [I, W] as a factor of a product with `as_factor` of a float32 input."""
    if weight.dtype == jnp.float32:
        return weight
    return _aligned(weight if weight.shape[0] > NARROW else jnp.concatenate([weight, weight]), 0)


def _aligned(x: Array, axis: int) -> Array:
    """Zeros behind x, up to a multiple of what a GPU multiplies well."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % ALIGNED)
    return jnp.pad(x, widths)


def product(x: Array, weight: Array) -> Array:
    """[N, I] @ [I, W] in the weight's type."""
    return x @ weight if x.dtype == weight.dtype else as_factor(x, weight.dtype) @ as_weight(weight)


@jax.custom_vjp
def _last_product(x: Array, weight: Array) -> Array:
    """A bfloat16 product that keeps the digits of its float32 accumulator; its gradients are bfloat16 products."""
    return jnp.matmul(x, weight, preferred_element_type=jnp.float32)


def _last_product_backward(kept: tuple[Array, Array], change: Array) -> tuple[Array, Array]:
    x, weight = kept
    change = change.astype(x.dtype)
    return change @ weight.T, x.T @ change


_last_product.defvjp(lambda x, weight: (_last_product(x, weight), (x, weight)), _last_product_backward)


def last_product(x: Array, weight: Array) -> Array:
    """[N, W] @ [W, O] -> float32, whatever the type of the factors."""
    if weight.dtype == jnp.float32:
        return x @ weight
    return _last_product(x, _aligned(weight, 1))[:, : weight.shape[1]]


class MLP(eqx.Module):
    """Linear, LayerNorm, Mish for each hidden layer, then a linear output. Works on any leading axes.

    With `normed`, a LayerNorm of its own follows the output, as SimNorm wants it (TD-MPC2).
    """

    weights: list[Array]
    biases: list[Array]
    scales: list[Array]
    offsets: list[Array]

    def __init__(self, sizes: list[int], *, key: Array, output_scale: float = 1.0, normed: bool = False):
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = list(itertools.pairwise(sizes))
        self.weights = [
            jax.random.truncated_normal(k, -2, 2, shape) / jnp.sqrt(float(shape[0]))
            for k, shape in zip(keys, shapes, strict=True)
        ]
        self.weights[-1] = self.weights[-1] * output_scale
        self.biases = [jnp.zeros(out) for out in sizes[1:]]
        normal = sizes[1:] if normed else sizes[1:-1]
        self.scales = [jnp.ones(out) for out in normal]
        self.offsets = [jnp.zeros(out) for out in normal]

    def __call__(self, x: Array) -> Array:
        one = jax.tree.map(lambda parameter: parameter[None], self)
        return apply_members(one, x)[0]

    def vectors(self, layer: int) -> Array:
        """Bias, scale and offset of a layer of an ensemble that has a LayerNorm: [E, 3, W]."""
        return jnp.stack([self.biases[layer], self.scales[layer], self.offsets[layer]], axis=-2)

    def outputs(self) -> Array:
        """Bias of the last layer of an ensemble, then scale and offset if it is normed: [E, 1 or 3, O]."""
        last = len(self.weights) - 1
        return self.vectors(last) if len(self.scales) > last else self.biases[last][:, None]


def weights_as(networks: T, dtype: jnp.dtype) -> T:
    """The same networks with their weights in another type. What lies between the products keeps its digits."""

    def one(network: MLP) -> MLP:
        return eqx.tree_at(lambda n: n.weights, network, [w.astype(dtype) for w in network.weights])

    return jax.tree.map(one, networks, is_leaf=lambda x: isinstance(x, MLP))


def ensemble(members: int, make: Callable[[Array], MLP], key: Array) -> MLP:
    """`members` independently initialised networks with their parameters stacked on a first axis."""
    return eqx.filter_vmap(make)(jax.random.split(key, members))


def apply_members(members: MLP, x: Array) -> Array:
    """Every member on the same input: [..., in] -> [E, ..., out]."""
    rows = x.reshape(-1, x.shape[-1])
    hidden = shared_layer(rows, members.weights[0], members.vectors(0))
    return _rest(members, hidden).reshape(len(hidden), *x.shape[:-1], -1)


def block_of_rows() -> int:
    """How many rows at a time are best: on a CPU few, whose activations stay in the caches from layer to layer."""
    return CPU_BLOCK if jax.default_backend() == "cpu" else DEVICE_BLOCK


def by_blocks(network: Callable[[Array], Array], x: Array) -> Array:
    """`network(x)` of an ensemble [..., in] -> [E, ..., out], with many rows taken block by block."""
    rows, size = x.reshape(-1, x.shape[-1]), block_of_rows()
    if len(rows) <= 2 * size:
        return network(x)
    blocks = jnp.pad(rows, ((0, -len(rows) % size), (0, 0))).reshape(-1, size, x.shape[-1])
    found = jnp.moveaxis(jax.lax.map(network, blocks), 0, 1)  # [E, blocks, size, out]
    found = found.reshape(len(found), -1, found.shape[-1])[:, : len(rows)]
    return found.reshape(len(found), *x.shape[:-1], -1)


def shared_layer(x: Array, weight: Array, vectors: Array) -> Array:
    """The first layer of members that read the same rows [N, I], as one product: -> [E, N, W].

    weight [E, I, W]; or what `shared_weight` made of it, for those who use it often.
    """
    members, _, width = vectors.shape
    if weight.dtype == jnp.float32:
        return norm_mish(x @ weight, vectors)
    flat = shared_weight(weight) if weight.ndim == 3 else weight
    return norm_mish_light((as_factor(x, flat.dtype) @ flat).reshape(-1, members, width), vectors)


def shared_weight(weight: Array) -> Array:
    """First layers [E, I, W] as one factor for the rows that `as_factor` gives: [I, E W]. In float32 as it is."""
    if weight.dtype == jnp.float32:
        return weight
    return as_weight(jnp.moveaxis(weight, 0, 1).reshape(weight.shape[1], -1))


def apply_own(members: MLP, x: Array) -> Array:
    """Each member on an input of its own: [E, ..., in] -> [E, ..., out]."""
    rows = x.reshape(len(x), -1, x.shape[-1])
    pre = jax.vmap(product)(rows, members.weights[0])
    return _rest(members, _norm_mish_own(pre, members.vectors(0))).reshape(*x.shape[:-1], -1)


def _rest(members: MLP, hidden: Array) -> Array:
    """What follows the first hidden layer, of which each member has rows of its own: [E, N, W] -> [E, N, out]."""
    others = range(1, len(members.weights) - 1)
    hidden = hidden_layers(members.weights[1:-1], [members.vectors(i) for i in others], hidden)
    return finished(jax.vmap(last_product)(hidden, members.weights[-1]), members.outputs())


def finished(product: Array, vectors: Array) -> Array:
    """The outputs of an ensemble from its last product [E, N, O], with the vectors that `MLP.outputs` gives."""
    if vectors.shape[-2] == 1:
        return product + vectors
    bias, scale, offset = (vectors[..., i : i + 1, :] for i in range(3))
    return _normal(product, bias)[0] * scale + offset


def hidden_layers(weights: Sequence[Array], vectors: Sequence[Array], hidden: Array) -> Array:
    """Further hidden layers, each one batched product: weights [E, W, W], vectors [E, 3, W], [E, N, W] -> [E, N, W]."""
    for weight, own in zip(weights, vectors, strict=True):
        hidden = _norm_mish_own(hidden @ weight, own)
    return hidden


def _norm_mish_own(pre: Array, vectors: Array) -> Array:
    """`norm_mish` of rows that lie member by member: [E, N, W] -> [E, N, W]."""
    if pre.dtype == jnp.float32:
        return norm_mish(pre, vectors)
    return jax.vmap(lambda rows, own: norm_mish_light(rows[:, None], own[None])[0])(pre, vectors)
