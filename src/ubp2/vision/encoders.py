"""Frozen encoders by name: frames in, features out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2.config.own import imported
from ubp2.config.schema import VisualConfig
from ubp2.errors import UserError, unknown_name
from ubp2.vision import conv, hub, weights
from ubp2.vision.dinov2 import SIZES, DinoV2

__all__ = ["FILE", "NAMES", "Encoder", "compiled", "describe", "from_callable", "make_encoder", "summary"]

FILE = "encoder.npz"  # in the folder of a run that has trained its own
NAMES = (*SIZES, "conv", "random-conv")
RANDOM_FEATURES = 256  # of random-conv: features that nobody has chosen carry less each
MOST = 256  # frames in one call on a GPU; a large step is cut


class Encoder(NamedTuple):
    """What makes features of frames, and never learns."""

    name: str
    features: int
    encode: Callable[[np.ndarray], np.ndarray]  # uint8 [N, P, P, 3] -> float32 [N, features]
    digest: str  # of the weights: a run goes on with those that it began with


def make_encoder(
    visual: VisualConfig, folder: Path | None = None, train: Callable[[Path], object] | None = None
) -> Encoder:
    """The encoder that the configuration names.

    `folder` is that of the run. An encoder `conv` without weights is looked for there, and if there is none, `train`
    makes it at the path that it is given (`conv_training.train`), so that a resumed run finds it.
    """
    name = visual.encoder
    if name in SIZES:
        return _dinov2(visual)
    if name == "random-conv":
        model = conv.random(visual.pixels, RANDOM_FEATURES)
        return Encoder(name, RANDOM_FEATURES, compiled(model, conv.Conv.__call__), conv.digest(model))
    if name == "conv":
        return _conv(visual, folder, train)
    if ":" in name:
        return from_callable(name, imported(f"the encoder {name}", name, "of a frame"), visual.pixels)
    raise UserError(f"{unknown_name('encoder', name, NAMES)}; or module:function, a function of your own")


def from_callable(name: str, function: Callable[[np.ndarray], Any], pixels: int) -> Encoder:
    """Any function of a frame [P, P, 3] that returns numbers; of [N, P, P, 3] if it has an attribute `batched`.

    Its attribute `digest`, where it has one, says which weights it holds; otherwise its name stands for them.
    """

    def encode(frames: np.ndarray) -> np.ndarray:
        seen = function(frames) if getattr(function, "batched", False) else [function(frame) for frame in frames]
        return np.asarray(seen, np.float32).reshape(len(frames), -1)

    try:
        features = encode(np.zeros((1, pixels, pixels, 3), np.uint8)).shape[1]
    except Exception as error:  # it is the user's own
        raise UserError(
            f"the encoder {name} must make a vector of a frame [{pixels}, {pixels}, 3] of uint8, and raised "
            f"{type(error).__name__}: {error}; correct it"
        ) from error
    if features < 1:
        raise UserError(f"the encoder {name} must make a vector of a frame, got nothing; correct it")
    return Encoder(name, features, encode, str(getattr(function, "digest", name)))


def describe(encoder: Encoder) -> str:
    """One line for whoever started the run."""
    return f"encoder {encoder.name}: {encoder.features} features a frame, weights {encoder.digest[:12]}"


def _dinov2(visual: VisualConfig) -> Encoder:
    name = visual.encoder
    sizes = SIZES[name]
    if visual.pixels < sizes.patch or visual.pixels % sizes.patch:
        raise UserError(f"visual.pixels must be a multiple of {sizes.patch} for {name}, got {visual.pixels}")
    path = hub.find(name, visual.weights)
    model = weights.load(path)
    if (found := model.sizes._replace(hidden=0, grid=0)) != sizes._replace(grid=0):
        raise UserError(
            f"{path} has {found.width} features, {found.depth} layers and {found.registers} registers, and {name} has "
            f"{sizes.width}, {sizes.depth} and {sizes.registers}; name the encoder of these weights, visual.encoder"
        )
    if jax.default_backend() == "gpu":
        model = model.as_type(jnp.bfloat16)
    return Encoder(name, sizes.width, compiled(model, summary), _digest(weights.file(path)))


def _conv(visual: VisualConfig, folder: Path | None, train: Callable[[Path], object] | None) -> Encoder:
    if visual.weights is not None:
        path = Path(visual.weights).expanduser()
    elif folder is not None:
        path = folder / FILE
        if train is not None and not path.exists():
            train(path)
    else:
        raise UserError(
            "the encoder conv has no weights; make them with: ubp2 encoder train --env ENV --out encoder.npz, and "
            "name the file with --visual.weights encoder.npz"
        )
    model, digest, _ = conv.load(path)
    if model.pixels != visual.pixels:
        raise UserError(f"{path} was trained on frames of {model.pixels} pixels; set visual.pixels to that")
    return Encoder("conv", len(model.unit), compiled(model, conv.Conv.__call__), digest)


def summary(model: DinoV2, frames: Array) -> Array:
    """What DINOv2 sees in each frame as a whole: its class token."""
    return model(frames).summary


def compiled(model: Any, features: Callable[[Any, Array], Array]) -> Callable[[np.ndarray], np.ndarray]:
    """Encode any number of frames with one program, or on a GPU one for each power of two.

    On a CPU frames are encoded one by one: what is seen of a frame then depends on no other, not even in its last bit,
    so that a run which is resumed in the middle of episodes sees the same again. The weights are an argument, because
    as constants they would be compiled in.
    """
    run: Callable[..., Array] = eqx.filter_jit(features)

    def one_by_one(frames: np.ndarray) -> np.ndarray:
        return np.concatenate([np.asarray(run(model, frames[i : i + 1]), np.float32) for i in range(len(frames))])

    def together(frames: np.ndarray) -> np.ndarray:
        found = []
        for start in range(0, len(frames), MOST):
            part = frames[start : start + MOST]
            padded = np.zeros((1 << (len(part) - 1).bit_length(), *part.shape[1:]), np.uint8)
            padded[: len(part)] = part
            found.append(np.asarray(run(model, padded), np.float32)[: len(part)])
        return np.concatenate(found)

    return together if jax.default_backend() == "gpu" else one_by_one


def _digest(file: Path) -> str:
    """As sha256sum and the Hub have it."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
