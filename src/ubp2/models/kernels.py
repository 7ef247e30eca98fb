"""GPU kernels for what lies between the products of a network (Pallas, through Triton).

Between two products stand a bias, a LayerNorm and a Mish. As plain operations they cost more time than the products
themselves: each is a pass over memory in float32. Here all three are one pass in bfloat16 over rows that stay on the
chip, and so is their gradient. Both work on the members of an ensemble at once, from the layout that a shared first
layer leaves, [N, E, W], to the one that batched products want, [E, N, W].

`ubp2.models.networks` has the plain versions and decides which runs; the tests hold the two together.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

__all__ = ["EPSILON", "fits", "norm_mish", "norm_mish_gradient"]

EPSILON = 1e-5  # of LayerNorm
ROWS = 8  # of a tile, which lies in registers


def fits(width: int) -> bool:
    """Whether a hidden layer of this width fits the kernels: a tile is a power of two."""
    return 64 <= width <= 2048 and width & (width - 1) == 0


def _normal(pre: Array, bias: Array) -> tuple[Array, Array]:
    """Rows of a layer, in float32, centred and scaled to a variance of one; and the factor that did it."""
    raised = pre.astype(jnp.float32) + bias[None, :]
    share = 1.0 / raised.shape[1]
    level = jnp.sum(raised, axis=1) * share
    # Rounding can make the difference of squares negative where all units are alike.
    variance = jnp.maximum(jnp.sum(raised * raised, axis=1) * share - level * level, 0.0)
    rate = jax.lax.rsqrt(variance + EPSILON)
    return (raised - level[:, None]) * rate[:, None], rate[:, None]


def _norm_mish(pre_ref, vectors_ref, out_ref) -> None:
    normal, _ = _normal(pre_ref[:, :], vectors_ref[0, :])
    x = normal * vectors_ref[1, :][None, :] + vectors_ref[2, :][None, :]
    # x (1 - 2 / (e^2 + 2e + 2)), right also where e overflows; a reciprocal root is cheaper than a division
    e = jnp.exp(x)
    root = jax.lax.rsqrt(e * (e + 2.0) + 2.0)
    out_ref[:, :] = (x - 2.0 * x * root * root).astype(out_ref.dtype)


def _specs(rows: int, members: int, width: int) -> tuple[tuple[int, int], pl.BlockSpec, pl.BlockSpec, pl.BlockSpec]:
    """Grid, and the blocks of [N, E W], of [E, N, W] and of vectors [E, 3, W]."""
    tile = math.gcd(rows, ROWS)
    return (
        (rows // tile, members),
        pl.BlockSpec((tile, width), lambda i, member: (i, member)),
        pl.BlockSpec((None, tile, width), lambda i, member: (member, i, 0)),
        pl.BlockSpec((None, 3, width), lambda i, member: (member, 0, 0)),
    )


def norm_mish(pre: Array, vectors: Array, *, interpret: bool = False) -> Array:
    """Mish of LayerNorm of each member's rows: [N, E, W] -> [E, N, W]; vectors [E, 3, W] are bias, scale, offset."""
    rows, members, width = pre.shape
    grid, of_rows, of_members, of_vectors = _specs(rows, members, width)
    return pl.pallas_call(
        _norm_mish,
        grid=grid,
        in_specs=[of_rows, of_vectors],
        out_specs=of_members,
        out_shape=jax.ShapeDtypeStruct((members, rows, width), pre.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpret,
        name="norm_mish",
    )(pre.reshape(rows, members * width), vectors)


def _norm_mish_gradient(pre_ref, vectors_ref, change_ref, out_ref, sums_ref) -> None:
    normal, rate = _normal(pre_ref[:, :], vectors_ref[0, :])
    scale = vectors_ref[1, :][None, :]
    x = normal * scale + vectors_ref[2, :][None, :]
    e = jnp.exp(jnp.minimum(x, 20.0))
    root = jax.lax.rsqrt(e * (e + 2.0) + 2.0)
    part = root * root
    change = change_ref[:, :].astype(jnp.float32) * (1.0 - part * (2.0 - 4.0 * x * e * (e + 1.0) * part))
    back = change * scale
    share = 1.0 / back.shape[1]
    level = (jnp.sum(back, axis=1) * share)[:, None]
    tilt = (jnp.sum(back * normal, axis=1) * share)[:, None]
    back = rate * (back - level - normal * tilt)
    out_ref[:, :] = back.astype(out_ref.dtype)
    sums_ref[0, :] = jnp.sum(back, axis=0)
    sums_ref[1, :] = jnp.sum(change * normal, axis=0)
    sums_ref[2, :] = jnp.sum(change, axis=0)


def norm_mish_gradient(pre: Array, vectors: Array, change: Array, *, interpret: bool = False) -> tuple[Array, Array]:
    """From the change of the outputs [E, N, W] that of the inputs [N, E, W] and of the vectors [E, 3, W]."""
    rows, members, width = pre.shape
    grid, of_rows, of_members, of_vectors = _specs(rows, members, width)
    back, sums = pl.pallas_call(
        _norm_mish_gradient,
        grid=grid,
        in_specs=[of_rows, of_vectors, of_members],
        out_specs=[of_rows, pl.BlockSpec((None, None, 3, width), lambda i, member: (member, i, 0, 0))],
        out_shape=[
            jax.ShapeDtypeStruct((rows, members * width), pre.dtype),
            jax.ShapeDtypeStruct((members, grid[0], 3, width), jnp.float32),
        ],
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpret,
        name="norm_mish_gradient",
    )(pre.reshape(rows, members * width), vectors, change)
    return back.reshape(pre.shape), jnp.sum(sums, axis=1)
