"""DINOv2 (ViT-S, B and L with patches of 14, with and without registers) as an Equinox module.

Blocks lie on a first axis and are scanned over, so that compiling takes as long for 24 of them as for one. As in
`models.networks`, the type of the weights decides: in bfloat16 products take bfloat16, while norms, softmax and
everything added up along the depth stay in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ubp2.vision.resampling import resampling

__all__ = ["SIZES", "DinoV2", "Features", "Sizes", "random"]

MEAN = (0.485, 0.456, 0.406)  # of ImageNet, which the published weights expect
DEVIATION = (0.229, 0.224, 0.225)
EPSILON = 1e-6


class Sizes(NamedTuple):
    """What tells one DINOv2 from another."""

    width: int
    depth: int
    heads: int
    registers: int = 0
    patch: int = 14
    grid: int = 37  # patches along one side of the images it was trained on: 518 pixels
    hidden: int = 0  # width of the MLP; 0: four times the width

    @property
    def wide(self) -> int:
        """Width of the MLP."""
        return self.hidden or 4 * self.width


SIZES: Mapping[str, Sizes] = {
    "dinov2-small": Sizes(384, 12, 6),
    "dinov2-base": Sizes(768, 12, 12),
    "dinov2-large": Sizes(1024, 24, 16),
    "dinov2-with-registers-small": Sizes(384, 12, 6, registers=4),
    "dinov2-with-registers-base": Sizes(768, 12, 12, registers=4),
    "dinov2-with-registers-large": Sizes(1024, 24, 16, registers=4),
}
"""By the name under which the weights are published."""


class Features(NamedTuple):
    """What is seen in N images: as a whole, and by patch."""

    summary: Array  # [N, W]: the class token
    patches: Array  # [N, h, w, W]


class Norm(eqx.Module):
    """LayerNorm."""

    scale: Array
    offset: Array

    def __call__(self, x: Array) -> Array:
        x = x.astype(jnp.float32)
        centred = x - jnp.mean(x, -1, keepdims=True)
        rate = jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + EPSILON)
        return centred * rate * self.scale + self.offset


class Linear(eqx.Module):
    """A product and a bias."""

    weight: Array  # [in, out]
    bias: Array

    def __call__(self, x: Array) -> Array:
        out = jnp.matmul(x.astype(self.weight.dtype), self.weight, preferred_element_type=jnp.float32)
        return out + self.bias


class Block(eqx.Module):
    """One layer of the transformer; the whole encoder has them stacked."""

    norm1: Norm
    qkv: Linear
    out: Linear
    scale1: Array
    norm2: Norm
    up: Linear
    down: Linear
    scale2: Array

    def __call__(self, x: Array, heads: int) -> Array:
        x = x + self.scale1 * self.out(self._attend(self.qkv(self.norm1(x)), heads))
        return x + self.scale2 * self.down(jax.nn.gelu(self.up(self.norm2(x)), approximate=False))

    def _attend(self, qkv: Array, heads: int) -> Array:
        """Attention of every token to every token: [N, T, 3 W] -> [N, T, W]."""
        n, tokens, width = qkv.shape
        kind = self.out.weight.dtype
        q, k, v = jnp.moveaxis(qkv.reshape(n, tokens, 3, heads, -1), 2, 0).astype(kind)
        scores = jnp.einsum("nqhd,nkhd->nhqk", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
        share = jax.nn.softmax(scores, axis=-1).astype(kind)
        mixed = jnp.einsum("nhqk,nkhd->nqhd", share, v, preferred_element_type=jnp.float32)
        return mixed.reshape(n, tokens, width // 3)


class DinoV2(eqx.Module):
    """The encoder: images in, features out."""

    project: Linear  # [patch * patch * 3, W]
    token: Array  # [W]
    registers: Array  # [R, W]
    positions: Array  # [1 + grid * grid, W]
    blocks: Block  # every array with a first axis of the depth
    norm: Norm
    sizes: Sizes = eqx.field(static=True)

    def __call__(self, images: Array) -> Features:
        """Features of images [N, H, W, 3], in 0 to 1 or as bytes; what the last whole patch leaves is cut off."""
        n, patch = len(images), self.sizes.patch
        rows, columns = images.shape[1] // patch, images.shape[2] // patch
        patches = self.project(self._cut(images, rows, columns))
        whole, places = self._places(rows, columns)
        tokens = [
            jnp.broadcast_to(self.token + whole, (n, 1, self.sizes.width)),
            jnp.broadcast_to(self.registers, (n, *self.registers.shape)),
            patches + places,
        ]
        x = jnp.concatenate(tokens, axis=1).astype(jnp.float32)
        x, _ = jax.lax.scan(lambda x, block: (block(x, self.sizes.heads), None), x, self.blocks)
        x = self.norm(x)
        return Features(x[:, 0], x[:, 1 + len(self.registers) :].reshape(n, rows, columns, -1))

    def _cut(self, images: Array, rows: int, columns: int) -> Array:
        """Normalised patches [N, rows * columns, patch * patch * 3], each row by row."""
        patch = self.sizes.patch
        images = images / 255.0 if images.dtype == jnp.uint8 else images
        images = (images.astype(jnp.float32) - jnp.array(MEAN)) / jnp.array(DEVIATION)
        cut = images[:, : rows * patch, : columns * patch].reshape(len(images), rows, patch, columns, patch, 3)
        return jnp.moveaxis(cut, 3, 2).reshape(len(images), rows * columns, -1)

    def _places(self, rows: int, columns: int) -> tuple[Array, Array]:
        """Where the class token and each patch are: learned on one grid, resampled for any other."""
        grid, whole, learned = self.sizes.grid, self.positions[0], self.positions[1:]
        if rows == columns == grid:
            return whole, learned
        antialias = self.sizes.registers > 0  # as each of the two families was published
        down, across = (resampling(grid, new, antialias=antialias) for new in (rows, columns))
        square = learned.reshape(grid, grid, -1).astype(jnp.float32)
        return whole, jnp.einsum("rg,gcw,dc->rdw", down, square, across).reshape(rows * columns, -1)

    def as_type(self, kind: jnp.dtype) -> DinoV2:
        """The same encoder with the weights of its products in another type."""

        def cast(layer: Linear) -> Linear:
            return Linear(layer.weight.astype(kind), layer.bias)

        def is_linear(x: object) -> bool:
            return isinstance(x, Linear)

        return jax.tree.map(lambda x: cast(x) if is_linear(x) else x, self, is_leaf=is_linear)


def random(sizes: Sizes, seed: int = 0) -> DinoV2:
    """An encoder with weights drawn at random: for its shapes, its memory and its speed."""
    keys, width, depth = iter(jax.random.split(jax.random.key(seed), 16)), sizes.width, sizes.depth

    def draw(*shape: int) -> Array:
        return 0.02 * jax.random.normal(next(keys), shape)

    def linear(*shape: int) -> Linear:
        return Linear(draw(*shape), jnp.zeros((*shape[:-2], shape[-1])))

    def norm(*shape: int) -> Norm:
        return Norm(jnp.ones(shape), jnp.zeros(shape))

    blocks = Block(
        norm1=norm(depth, width),
        qkv=linear(depth, width, 3 * width),
        out=linear(depth, width, width),
        scale1=jnp.ones((depth, width)),
        norm2=norm(depth, width),
        up=linear(depth, width, sizes.wide),
        down=linear(depth, sizes.wide, width),
        scale2=jnp.ones((depth, width)),
    )
    return DinoV2(
        project=linear(sizes.patch**2 * 3, width),
        token=draw(width),
        registers=draw(sizes.registers, width),
        positions=draw(1 + sizes.grid**2, width),
        blocks=blocks,
        norm=norm(width),
        sizes=sizes,
    )
