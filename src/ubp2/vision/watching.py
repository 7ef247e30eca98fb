"""Frames of random actions, which an encoder is trained on."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ubp2.envs.base import VectorEnv
from ubp2.errors import UserError
from ubp2.vision.options import LEAST_FRAMES

__all__ = ["EPISODE", "Film", "held", "watch"]

EPISODE = 60  # decisions of an episode at most: starts differ more from each other than ends of random episodes
HOLD = 8  # decisions that one random action is held for at most; white noise hardly moves a heavy body


class Film(NamedTuple):
    """N frames, episode after episode."""

    frames: np.ndarray  # [N, P, P, 3] uint8
    actions: np.ndarray  # [N, A]: what was done at each frame
    ends: np.ndarray  # [N] bool: the next frame is of another episode

    def threes(self) -> np.ndarray:
        """Frames that have one of their episode before and one after them."""
        return 1 + np.flatnonzero(~self.ends[:-2] & ~self.ends[1:-1])


def watch(envs: VectorEnv, count: int, seed: int = 0) -> Film:
    """At least `count` frames of environments whose observations are square frames; a function of the seed."""
    if count < LEAST_FRAMES:
        raise UserError(f"an encoder needs at least {LEAST_FRAMES} frames to learn from, got {count}")
    pixels = math.isqrt(envs.spec.obs_dim // 3)
    length = min(EPISODE, envs.spec.episode_decisions)
    rng, films = np.random.default_rng(seed), []
    while sum(len(film.frames) for film in films) < count:  # episodes may end early
        seeds = {i: int(rng.integers(2**31)) for i in range(envs.size)}
        envs.send_resets(seeds)
        first = envs.receive_resets()
        now = np.stack([first[i] for i in range(envs.size)])
        actions = held(rng, envs.size, length, envs.spec.action_dim)
        films.append(_episodes(envs, now, actions, pixels))
    film = Film(*(np.concatenate(parts) for parts in zip(*films, strict=True)))
    if len(film.threes()) < LEAST_FRAMES // 4:
        raise UserError(
            f"episodes of {envs.spec.id} are over too soon for an encoder to learn from them: of {len(film.frames)} "
            f"frames only {len(film.threes())} have one before and one after; use --visual.encoder random-conv"
        )
    return film


def _episodes(envs: VectorEnv, now: np.ndarray, actions: np.ndarray, pixels: int) -> Film:
    """One episode of each environment; one that ends early is cut there."""
    size, length, _ = actions.shape
    frames = np.zeros((size, length, pixels, pixels, 3), np.uint8)
    lengths = np.full(size, length)
    for t in range(length):
        frames[:, t] = now.reshape(size, pixels, pixels, 3)
        envs.send(actions[:, t])
        step = envs.receive()
        now = step.obs
        over = np.asarray(step.terminated) | np.asarray(step.truncated)
        lengths[over & (lengths == length)] = t + 1
    kept = [slice(0, n) for n in lengths]
    ends = [np.arange(n) == n - 1 for n in lengths]
    return Film(
        np.concatenate([frames[i, own] for i, own in enumerate(kept)]),
        np.concatenate([actions[i, own] for i, own in enumerate(kept)]),
        np.concatenate(ends),
    )


def held(rng: np.random.Generator, size: int, length: int, width: int) -> np.ndarray:
    """Random actions [size, length, A], each held for one to `HOLD` decisions."""
    actions = np.zeros((size, length, width), np.float32)
    for i in range(size):
        t = 0
        while t < length:
            stay = int(rng.integers(1, HOLD + 1))
            actions[i, t : t + stay] = rng.uniform(-1, 1, width)
            t += stay
    return actions
