"""The convolutional encoder, fitted to frames of random actions and frozen from then on.

Its features must tell two things: what the frame looks like (a decoder draws it from them), and what was done in
between (a small network tells the action from the features before, at and after it: two show how fast the body was, the
third what the action changed). Drawing alone spends features on whatever
covers many pixels; actions alone see nothing but what moves at once. Pixels count in units of their own deviation, so
that a small body in front of a large wall is worth as much as the wall.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from ubp2.envs.base import VectorEnv
from ubp2.errors import UserError
from ubp2.vision.conv import FEATURES, Conv, Convolution, draw, random, save
from ubp2.vision.watching import Film, watch

__all__ = ["FRAMES", "UPDATES", "Fit", "fit", "train"]

FRAMES = 6000  # that an encoder is trained on unless told
UPDATES = 2000  # gradient steps
BATCH = 24  # times three frames a step
LEARNING_RATE = 1e-3
HELD_OUT = 0.1  # share of the film, its end, that the fit is judged on
FLOOR = 0.05  # least deviation of a pixel, of a range of 1: still ones do not count for more than that
ACTION = 0.1  # weight of telling the action, beside drawing
SHRINK = 1e-4  # weight of the size of features, which neither task bounds
WIDTH = 128  # of the network that tells the action
COARSE = 2  # pixels of a frame along one side of a pixel that is drawn
LOOK = 64  # frames at a time where all are encoded


class Fit(NamedTuple):
    """A trained encoder, and which share of the variance of frames and actions it tells in frames it has not seen."""

    encoder: Conv
    drawn: float
    told: float


class _Decoder(eqx.Module):
    """Features to a coarse frame, and features of three frames to the action at the middle one."""

    spread: Array  # [F, side * side * C]
    layers: tuple[Convolution, ...]
    hidden: Array  # [3 F, WIDTH]
    action: Array  # [WIDTH, A]
    side: int = eqx.field(static=True)

    def draw(self, features: Array, size: int) -> Array:
        """Frames [N, size, size, 3]."""
        x = jax.nn.relu(features @ self.spread).reshape(len(features), self.side, self.side, -1)
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x.repeat(2, axis=1).repeat(2, axis=2)))
        x = self.layers[-1](x)  # a pixel here is four by four of those that are drawn
        n, rows, columns, _ = x.shape
        x = x.reshape(n, rows, columns, 4, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(n, 4 * rows, 4 * columns, 3)
        return x[:, :size, :size]

    def tell(self, before: Array, at: Array, after: Array) -> Array:
        """Actions [N, A]."""
        moving = jnp.concatenate([at, at - before, after - at], -1)
        return jax.nn.relu(moving @ self.hidden) @ self.action


class _Target(NamedTuple):
    """What pixels are counted from, and their units."""

    mean: Array  # [size, size, 3]
    unit: Array


def train(
    envs: VectorEnv,
    path: Path,
    *,
    frames: int = FRAMES,
    updates: int = UPDATES,
    seed: int = 0,
    note: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Any]:
    """Watch environments whose observations are frames, fit an encoder and write it; return what is known of it."""
    if updates < 1:
        raise UserError(f"an encoder needs at least one update, got {updates}")
    note(f"training an encoder: {frames} frames of random actions in {envs.spec.id}")
    film = watch(envs, frames, seed)

    def progress(update: int) -> None:
        if update in (updates // 4, updates // 2, 3 * updates // 4):
            note(f"training an encoder: update {update} of {updates}")

    found = fit(film, updates=updates, seed=seed, progress=progress)
    about = {
        "env": envs.spec.id,
        "pixels": found.encoder.pixels,
        "features": len(found.encoder.unit),
        "frames": len(film.frames),
        "updates": updates,
        "seed": seed,
        "drawn": found.drawn,
        "told": found.told,
    }
    return {**about, "digest": save(path, found.encoder, about)}


def fit(
    film: Film,
    *,
    updates: int,
    seed: int = 0,
    features: int = FEATURES,
    progress: Callable[[int], None] = lambda update: None,
) -> Fit:
    """Train an encoder on a film; on one machine's CPU a function of the film and the seed."""
    pixels, rng = film.frames.shape[1], np.random.default_rng(seed)
    rows = film.threes()
    split = max(1, int(len(rows) * (1 - HELD_OUT)))
    seen, unseen = rows[:split], rows[split:]
    target = _target(film.frames[: seen[-1]])
    models = (random(pixels, features, seed), _decoder(rng, pixels, features, film.actions.shape[1]))
    optimiser = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, updates))
    state = optimiser.init(eqx.filter(models, eqx.is_inexact_array))

    @eqx.filter_jit(donate="all-except-first")
    def step(target: _Target, models: tuple[Conv, _Decoder], state: optax.OptState, batch: tuple[Array, Array]):
        grads = eqx.filter_grad(lambda models: _loss(models, target, *batch)[0])(models)
        change, state = optimiser.update(grads, state)
        return eqx.apply_updates(models, change), state

    for update in range(updates):
        models, state = step(target, models, state, _batch(film, rng.choice(seen, BATCH)))
        progress(update + 1)
    drawn, told = _judge(models, target, film, unseen[:: max(1, len(unseen) // 512)])
    return Fit(_counted(models[0], film.frames), drawn, told)


def _decoder(rng: np.random.Generator, pixels: int, features: int, actions: int) -> _Decoder:
    side = -(-pixels // (16 * COARSE))  # doubled twice, then four by four pixels at once
    return _Decoder(
        spread=draw(rng, (features, side * side * 64)),
        layers=(
            Convolution(draw(rng, (3, 3, 64, 64)), jnp.zeros(64)),
            Convolution(draw(rng, (3, 3, 64, 32)), jnp.zeros(32)),
            Convolution(draw(rng, (3, 3, 32, 48)), jnp.zeros(48)),
        ),
        hidden=draw(rng, (3 * features, WIDTH)),
        action=draw(rng, (WIDTH, actions)),
        side=side,
    )


def _loss(
    models: tuple[Conv, _Decoder], target: _Target, frames: Array, actions: Array
) -> tuple[Array, tuple[Array, Array]]:
    """What is minimised; and the squared errors of drawing and of telling the action."""
    encoder, decoder = models
    codes = encoder.code(frames)
    wanted = (_coarse(frames) - target.mean) / target.unit
    drawing = jnp.mean((decoder.draw(codes, wanted.shape[1]) - wanted) ** 2)
    telling = jnp.mean((decoder.tell(*jnp.split(codes, 3)) - actions) ** 2)
    return drawing + ACTION * telling + SHRINK * jnp.mean(codes**2), (drawing, telling)


def _coarse(frames: Array) -> Array:
    """Frames in 0 to 1 with `COARSE` by `COARSE` pixels made one."""
    size = frames.shape[1] // COARSE
    cut = frames[:, : size * COARSE, : size * COARSE].astype(jnp.float32) / 255.0
    return cut.reshape(len(frames), size, COARSE, size, COARSE, 3).mean((2, 4))


def _target(frames: np.ndarray) -> _Target:
    some = _coarse(jnp.asarray(frames[:: max(1, len(frames) // 1000)]))
    return _Target(some.mean(0), jnp.maximum(some.std(0), FLOOR))


def _batch(film: Film, rows: np.ndarray) -> tuple[Array, Array]:
    """Frames before, at and after `rows`, [3 N, P, P, 3], and what was done at them."""
    frames = np.concatenate([film.frames[rows - 1], film.frames[rows], film.frames[rows + 1]])
    return jnp.asarray(frames), jnp.asarray(film.actions[rows])


def _judge(models: tuple[Conv, _Decoder], target: _Target, film: Film, rows: np.ndarray) -> tuple[float, float]:
    """Share of the variance that is explained: of pixels in their units, and of actions."""
    measure = eqx.filter_jit(lambda models, batch: _loss(models, target, *batch)[1])
    parts = np.array_split(rows, -(-len(rows) // BATCH))
    drawing, telling = np.mean([[float(x) for x in measure(models, _batch(film, own))] for own in parts], axis=0)
    frames = (_coarse(jnp.asarray(film.frames[rows])) - target.mean) / target.unit
    spread, actions = float(jnp.mean(frames**2)), film.actions[rows]
    return 1 - drawing / spread, 1 - telling / float(np.mean((actions - actions.mean(0)) ** 2))


def _counted(encoder: Conv, frames: np.ndarray) -> Conv:
    """The encoder with features of mean 0 and deviation 1 over the film."""
    code = eqx.filter_jit(lambda encoder, frames: encoder.code(frames))
    parts = [np.asarray(code(encoder, frames[i : i + LOOK])) for i in range(0, len(frames) - LOOK + 1, LOOK)]
    codes = np.concatenate(parts)
    unit = np.maximum(codes.std(0), 1e-3 * codes.std())  # a feature that never changes stays small
    return eqx.tree_at(lambda e: (e.centre, e.unit), encoder, (jnp.asarray(codes.mean(0)), jnp.asarray(unit)))
