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
TILES = 4  # that a program does one after the other, at most
STAGES = 2


def fits(width: int) -> bool:
    """Whether a hidden layer of this width fits the kernels: a tile is a power of two."""
    return 64 <= width <= 2048 and width & (width - 1) == 0


def _normal(pre: Array, bias: Array) -> tuple[Array, Array]:
    """Rows of a layer, in float32, centred and scaled to a variance of one; and the factor that did it."""
    raised = pre.astype(jnp.float32) + bias[None, :]
    share = 1.0 / raised.shape[1]
    level = jnp.sum(raised, axis=1) * share
    rate = jax.lax.rsqrt(jnp.sum(raised * raised, axis=1) * share - level * level + EPSILON)
    return (raised - level[:, None]) * rate[:, None], rate[:, None]


def _vectors(vectors_ref) -> tuple[Array, Array, Array]:
    return vectors_ref[0, :], vectors_ref[1, :][None, :], vectors_ref[2, :][None, :]


def _norm_mish(pre_ref, vectors_ref, out_ref) -> None:
    bias, scale, offset = _vectors(vectors_ref)

    def tile(i, _):
        rows = pl.ds(i * ROWS, ROWS)
        x = _normal(pre_ref[rows, :], bias)[0] * scale + offset
        # x (1 - 2 / (e^2 + 2e + 2)), right also where e overflows; a reciprocal root is cheaper than a division
        e = jnp.exp(x)
        root = jax.lax.rsqrt(e * (e + 2.0) + 2.0)
        out_ref[rows, :] = (x - 2.0 * x * root * root).astype(out_ref.dtype)
        return 0

    jax.lax.fori_loop(0, pre_ref.shape[0] // ROWS, tile, 0)


def _padded(rows: int) -> int:
    return -(-rows // ROWS) * ROWS


def _specs(rows: int, members: int, width: int) -> tuple[tuple[int, int], pl.BlockSpec, pl.BlockSpec, pl.BlockSpec]:
    """Grid, and the blocks of [N, E W], of [E, N, W] and of vectors [E, 3, W]."""
    block = ROWS * math.gcd(rows // ROWS, TILES)
    return (
        (rows // block, members),
        pl.BlockSpec((block, width), lambda i, member: (i, member)),
        pl.BlockSpec((None, block, width), lambda i, member: (member, i, 0)),
        pl.BlockSpec((None, 3, width), lambda i, member: (member, 0, 0)),
    )


def norm_mish(pre: Array, vectors: Array, *, interpret: bool = False) -> Array:
    """Mish of LayerNorm of each member's rows: [N, E, W] -> [E, N, W]; vectors [E, 3, W] are bias, scale, offset."""
    count, members, width = pre.shape
    rows = _padded(count)
    grid, of_rows, of_members, of_vectors = _specs(rows, members, width)
    return pl.pallas_call(
        _norm_mish,
        grid=grid,
        in_specs=[of_rows, of_vectors],
        out_specs=of_members,
        out_shape=jax.ShapeDtypeStruct((members, rows, width), pre.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=STAGES),
        interpret=interpret,
        name="norm_mish",
    )(_grow(pre.reshape(count, members * width), 0, rows), vectors)[:, :count]


def _norm_mish_gradient(pre_ref, vectors_ref, change_ref, out_ref, sums_ref) -> None:
    bias, scale, offset = _vectors(vectors_ref)

    def tile(i, sums):
        rows = pl.ds(i * ROWS, ROWS)
        normal, rate = _normal(pre_ref[rows, :], bias)
        x = normal * scale + offset
        e = jnp.exp(jnp.minimum(x, 20.0))
        root = jax.lax.rsqrt(e * (e + 2.0) + 2.0)
        part = root * root
        change = change_ref[rows, :].astype(jnp.float32) * (1.0 - part * (2.0 - 4.0 * x * e * (e + 1.0) * part))
        back = change * scale
        share = 1.0 / back.shape[1]
        level = (jnp.sum(back, axis=1) * share)[:, None]
        tilt = (jnp.sum(back * normal, axis=1) * share)[:, None]
        back = rate * (back - level - normal * tilt)
        out_ref[rows, :] = back.astype(out_ref.dtype)
        new = (jnp.sum(back, axis=0), jnp.sum(change * normal, axis=0), jnp.sum(change, axis=0))
        return tuple(a + b for a, b in zip(sums, new, strict=True))

    zero = jnp.zeros((pre_ref.shape[1],), jnp.float32)
    sums = jax.lax.fori_loop(0, pre_ref.shape[0] // ROWS, tile, (zero, zero, zero))
    for i, total in enumerate(sums):
        sums_ref[i, :] = total


def norm_mish_gradient(pre: Array, vectors: Array, change: Array, *, interpret: bool = False) -> tuple[Array, Array]:
    """From the change of the outputs [E, N, W] that of the inputs [N, E, W] and of the vectors [E, 3, W]."""
    count, members, width = pre.shape
    rows = _padded(count)
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
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=STAGES),
        interpret=interpret,
        name="norm_mish_gradient",
    )(_grow(pre.reshape(count, members * width), 0, rows), vectors, _grow(change, 1, rows))
    return back[:count].reshape(pre.shape), jnp.sum(sums, axis=1)


def _grow(x: Array, axis: int, size: int) -> Array:
    """Zeros behind x, up to `size` along an axis: rows of zeros change no sum."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, size - x.shape[axis])
    return jnp.pad(x, widths)
