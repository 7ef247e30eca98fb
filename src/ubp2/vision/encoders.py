"""Frozen encoders by name: frames in, features out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2.configs import VisualConfig
from ubp2.errors import unknown_name

__all__ = ["Encoder", "make_encoder"]

CHANNELS, LAYERS, FEATURES = 32, 4, 256  # of the encoder at random


class Encoder(NamedTuple):
    """What makes features of frames, and never learns."""

    name: str
    features: int
    encode: Callable[[np.ndarray], np.ndarray]  # uint8 [N, P, P, 3] -> float32 [N, features]
    digest: str  # of the weights: a run goes on with those that it began with


def make_encoder(visual: VisualConfig, folder: Path | None = None) -> Encoder:
    """The encoder that the configuration names; `folder`: of the run, for weights of its own."""
    if visual.encoder != "random-conv":
        raise unknown_name("encoder", visual.encoder, ["random-conv"])
    return _random_conv(visual.pixels)


def _random_conv(pixels: int) -> Encoder:
    """Convolutions and a projection whose weights are drawn once and for all: what is possible without any weights."""
    rng = np.random.default_rng(0)
    widths = (3, *(CHANNELS,) * LAYERS)
    kernels = [
        rng.normal(size=(3, 3, i, o)).astype(np.float32) * np.float32((2 / (9 * i)) ** 0.5)
        for i, o in zip(widths[:-1], widths[1:], strict=True)
    ]
    side = -(-pixels // 2**LAYERS)
    out = rng.normal(size=(side * side * CHANNELS, FEATURES)).astype(np.float32) / np.float32(side * CHANNELS**0.5)

    @jax.jit
    def features(frames: Array) -> Array:
        x = frames.astype(jnp.float32) / 127.5 - 1.0
        for kernel in kernels:
            x = jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x)
        return x.reshape(len(x), -1) @ out

    digest = hashlib.sha256(b"".join(array.tobytes() for array in (*kernels, out))).hexdigest()
    return Encoder("random-conv", FEATURES, lambda frames: np.asarray(features(frames)), digest)
