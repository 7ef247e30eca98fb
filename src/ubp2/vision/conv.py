"""A small convolutional encoder, for those who have no published weights: four layers and one projection.

With random weights it is the baseline `random-conv`; `ubp2.vision.conv_training` fits it to an environment's
frames. Its file is a plain .npz with a digest of the arrays, which says whether it is whole and which encoder it is.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2.config.sections import LEAST_PIXELS
from ubp2.errors import UserError

__all__ = ["FEATURES", "Conv", "Convolution", "Saved", "draw", "load", "random", "save"]

FEATURES = 64  # numbers a frame
LAYERS = ((8, 4, 32), (4, 2, 64), (3, 2, 64), (3, 1, 64))  # kernel, stride, channels
FORMAT = 1


class Convolution(eqx.Module):
    """One layer: images [N, H, W, C] to [N, H / stride, W / stride, channels], borders padded with zeros."""

    weight: Array  # [kernel, kernel, in, out]
    bias: Array
    stride: int = eqx.field(static=True, default=1)

    def __call__(self, x: Array) -> Array:
        strides, names = (self.stride, self.stride), ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, self.weight, strides, "SAME", dimension_numbers=names) + self.bias


class Conv(eqx.Module):
    """The encoder: frames of one size in, features out."""

    layers: tuple[Convolution, ...]
    project: Array  # [what the last layer leaves, F]
    centre: Array  # [F]: what features are counted from, and the unit they are counted in
    unit: Array  # [F]
    pixels: int = eqx.field(static=True)

    def __call__(self, frames: Array) -> Array:
        """Features [N, F] of frames [N, P, P, 3] of bytes."""
        return (self.code(frames) - self.centre) / self.unit

    def code(self, frames: Array) -> Array:
        """Features before they are counted in units of their own."""
        x = frames.astype(jnp.float32) / 255.0 - 0.5
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x.reshape(len(x), -1) @ self.project


class Saved(NamedTuple):
    """An encoder from a file: what it is known by, and what its maker noted."""

    encoder: Conv
    digest: str
    about: Mapping[str, Any]


def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Weights of a layer, the last axis its outputs, that keep the size of what comes in through a relu."""
    return jnp.asarray(rng.standard_normal(shape) * math.sqrt(2.0 / math.prod(shape[:-1])), jnp.float32)


def random(pixels: int, features: int = FEATURES, seed: int = 0) -> Conv:
    """An encoder with random weights; the same on every machine."""
    if pixels < LEAST_PIXELS:
        raise UserError(f"visual.pixels must be at least {LEAST_PIXELS} for a convolutional encoder, got {pixels}")
    rng, side, channels = np.random.default_rng(seed), pixels, 3
    layers = []
    for kernel, stride, wide in LAYERS:
        layers.append(Convolution(draw(rng, (kernel, kernel, channels, wide)), jnp.zeros(wide), stride))
        side, channels = -(-side // stride), wide
    project = draw(rng, (side * side * channels, features))
    return Conv(tuple(layers), project, jnp.zeros(features), jnp.ones(features), pixels)


def digest(encoder: Conv) -> str:
    """What tells these weights from any others."""
    return _digest(_arrays(encoder))


def save(path: Path, encoder: Conv, about: Mapping[str, Any]) -> str:
    """Write the encoder so that a reader finds all of it or nothing; return its digest."""
    arrays = _arrays(encoder)
    header = {"format": FORMAT, "pixels": encoder.pixels, "digest": _digest(arrays), "about": dict(about)}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as stream:
        np.savez(stream, allow_pickle=False, header=np.array(json.dumps(header)), **arrays)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)
    return header["digest"]


def load(path: Path) -> Saved:
    """Read an encoder and check that nothing of it has changed."""
    if not path.is_file():
        raise UserError(f"there is no encoder at {path}; make one with: ubp2 encoder train --env ENV --out {path}")
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            arrays = {name: file[name] for name in file.files if name != "header"}
        whole = header["digest"] == _digest(arrays) and header["format"] <= FORMAT
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is no encoder of ubp2 encoder train ({error}); make it again") from None
    if not whole:
        raise UserError(f"{path} is damaged, or of a newer version: its arrays are not those that were written")
    layers = tuple(
        Convolution(jnp.asarray(arrays[f"weight{i}"]), jnp.asarray(arrays[f"bias{i}"]), stride)
        for i, (_, stride, _) in enumerate(LAYERS)
    )
    project, centre, unit = (jnp.asarray(arrays[name]) for name in ("project", "centre", "unit"))
    return Saved(Conv(layers, project, centre, unit, header["pixels"]), header["digest"], header["about"])


def _arrays(encoder: Conv) -> dict[str, np.ndarray]:
    arrays: dict[str, Array] = {"project": encoder.project, "centre": encoder.centre, "unit": encoder.unit}
    for i, layer in enumerate(encoder.layers):
        arrays |= {f"weight{i}": layer.weight, f"bias{i}": layer.bias}
    return {name: np.asarray(array) for name, array in arrays.items()}


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape} ".encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()
