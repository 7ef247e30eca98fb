"""Published DINOv2 weights, from a file or a folder: three ways in which their arrays are named, one encoder.

The names are those on the Hub (transformers, before and after it renamed its projections) and those of the original
repository. Sizes are read off the arrays; only the number of heads is not in them, and is a 64th of the width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from ubp2.errors import UserError
from ubp2.vision.dinov2 import Block, DinoV2, Linear, Norm, Sizes

__all__ = ["FILE", "file", "from_arrays", "load"]

HEAD = 64  # numbers of a head, in every size that was published
FILE = "model.safetensors"

# What each array is called here, and what it is called elsewhere; {} is the number of the block.
_TOP = {
    "token": ("embeddings.cls_token", "cls_token"),
    "registers": ("embeddings.register_tokens", "register_tokens"),
    "positions": ("embeddings.position_embeddings", "pos_embed"),
    "project.weight": ("embeddings.patch_embeddings.projection.weight", "patch_embed.proj.weight"),
    "project.bias": ("embeddings.patch_embeddings.projection.bias", "patch_embed.proj.bias"),
    "norm.scale": ("layernorm.weight", "norm.weight"),
    "norm.offset": ("layernorm.bias", "norm.bias"),
}
_BLOCK = {
    "norm1.scale": ("encoder.layer.{}.norm1.weight", "blocks.{}.norm1.weight"),
    "norm1.offset": ("encoder.layer.{}.norm1.bias", "blocks.{}.norm1.bias"),
    "out.weight": (
        "encoder.layer.{}.attention.output.dense.weight",
        "encoder.layer.{}.attention.o_proj.weight",
        "blocks.{}.attn.proj.weight",
    ),
    "out.bias": (
        "encoder.layer.{}.attention.output.dense.bias",
        "encoder.layer.{}.attention.o_proj.bias",
        "blocks.{}.attn.proj.bias",
    ),
    "scale1": ("encoder.layer.{}.layer_scale1.lambda1", "blocks.{}.ls1.gamma"),
    "norm2.scale": ("encoder.layer.{}.norm2.weight", "blocks.{}.norm2.weight"),
    "norm2.offset": ("encoder.layer.{}.norm2.bias", "blocks.{}.norm2.bias"),
    "up.weight": ("encoder.layer.{}.mlp.fc1.weight", "blocks.{}.mlp.fc1.weight"),
    "up.bias": ("encoder.layer.{}.mlp.fc1.bias", "blocks.{}.mlp.fc1.bias"),
    "down.weight": ("encoder.layer.{}.mlp.fc2.weight", "blocks.{}.mlp.fc2.weight"),
    "down.bias": ("encoder.layer.{}.mlp.fc2.bias", "blocks.{}.mlp.fc2.bias"),
    "scale2": ("encoder.layer.{}.layer_scale2.lambda1", "blocks.{}.ls2.gamma"),
}
_QKV = (  # queries, keys and values: three arrays, or one
    tuple(f"encoder.layer.{{}}.attention.attention.{name}" for name in ("query", "key", "value")),
    tuple(f"encoder.layer.{{}}.attention.{name}_proj" for name in ("q", "k", "v")),
    ("blocks.{}.attn.qkv",),
)


def file(path: Path) -> Path:
    """The file itself, where `path` may be a folder that has it under the name of the Hub."""
    return path / FILE if path.is_dir() else path


def load(path: Path) -> DinoV2:
    """Read weights from a .safetensors file, or from a folder that has one."""
    own = file(path)
    try:
        from safetensors.numpy import load_file
    except ImportError:
        raise UserError("DINOv2 weights need safetensors; install it with: pip install 'ubp2[visual]'") from None
    if not own.is_file():
        raise UserError(f"there are no weights at {own}; docs/visual.md says where to get them")
    try:
        arrays = load_file(own)
    except Exception as error:  # the library has an exception of its own for a damaged file, and raises others
        raise UserError(f"{own} is no safetensors file: {error}; download it again") from None
    try:
        return from_arrays(arrays)
    except UserError as error:
        raise UserError(f"{own}: {error}") from None


def from_arrays(arrays: Mapping[str, np.ndarray]) -> DinoV2:
    """Build the encoder out of named arrays; a prefix before all names, as in a larger model, is left out."""
    arrays = {re.sub(r"^(dinov2(_with_registers)?|backbone|module)\.", "", name): own for name, own in arrays.items()}
    depth = 0
    while any(name.format(depth) in arrays for name in _BLOCK["scale1"]):
        depth += 1
    if depth == 0:
        raise UserError("these are not the weights of a DINOv2: there is no layer scale, such as blocks.0.ls1.gamma")
    if any("mlp.w12" in name or "mlp.weights_in" in name or "mlp.gate_proj" in name for name in arrays):
        raise UserError("this is the giant DINOv2, whose MLP is gated; take small, base or large")

    def find(names: tuple[str, ...], *, missing: Callable[[], np.ndarray] | None = None) -> np.ndarray:
        for name in names:
            if name in arrays:
                return np.asarray(arrays[name], np.float32)
        if missing is not None:
            return missing()
        raise UserError(f"the array {names[0]} is missing; download the weights again")

    def top(name: str) -> np.ndarray:
        return find(_TOP[name])

    def stacked(name: str) -> np.ndarray:
        return np.stack([find(tuple(n.format(i) for n in _BLOCK[name])) for i in range(depth)])

    def qkv(i: int, what: str) -> np.ndarray:
        for names in _QKV:
            if f"{names[0].format(i)}.{what}" in arrays:
                return np.concatenate([find((f"{name.format(i)}.{what}",)) for name in names])
        raise UserError(f"the array {_QKV[0][0].format(i)}.{what} is missing; download the weights again")

    def linear(name: str) -> Linear:
        return Linear(jnp.asarray(np.swapaxes(stacked(f"{name}.weight"), 1, 2)), jnp.asarray(stacked(f"{name}.bias")))

    def norm(name: str) -> Norm:
        return Norm(jnp.asarray(stacked(f"{name}.scale")), jnp.asarray(stacked(f"{name}.offset")))

    projection, positions = top("project.weight"), top("positions")[0]  # [W, 3, patch, patch], [1 + grid^2, W]
    width, patch = projection.shape[0], projection.shape[-1]
    registers = find(_TOP["registers"], missing=lambda: np.zeros((1, 0, width), np.float32))[0]
    grid = round((len(positions) - 1) ** 0.5)
    if grid * grid + 1 != len(positions):
        raise UserError(f"positions are one and a square of patches, got {len(positions)}; download the weights again")
    attention = Linear(
        jnp.asarray(np.stack([qkv(i, "weight").T for i in range(depth)])),
        jnp.asarray(np.stack([qkv(i, "bias") for i in range(depth)])),
    )
    up = linear("up")
    sizes = Sizes(width, depth, max(width // HEAD, 1), len(registers), patch, grid, up.bias.shape[-1])
    return DinoV2(
        project=Linear(
            jnp.asarray(np.moveaxis(projection, 1, -1).reshape(width, -1).T), jnp.asarray(top("project.bias"))
        ),
        token=jnp.asarray(top("token").reshape(-1)),
        registers=jnp.asarray(registers),
        positions=jnp.asarray(positions),
        blocks=Block(
            norm("norm1"),
            attention,
            linear("out"),
            jnp.asarray(stacked("scale1")),
            norm("norm2"),
            up,
            linear("down"),
            jnp.asarray(stacked("scale2")),
        ),
        norm=Norm(jnp.asarray(top("norm.scale")), jnp.asarray(top("norm.offset"))),
        sizes=sizes,
    )
