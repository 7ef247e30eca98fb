"""Environments whose frames are encoded as they come: everything above sees ordinary observations.

The workers render. Here the frames of a step become features in one batched call, and the features of the last frames
one observation. It is rounded to float16, the type in which the memory of a visual run keeps it, so that the agent acts
on, learns from and is asked about the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from ubp2.envs.base import EnvSpec, Faulty, Lost, VectorEnv
from ubp2.errors import UserError
from ubp2.types import Step
from ubp2.vision.encoders import Encoder

__all__ = ["Seeing", "Stack", "seen_spec"]

_LARGEST = float(np.finfo(np.float16).max)


def seen_spec(spec: EnvSpec, frames: int, features: int) -> EnvSpec:
    """The sizes of an environment that hands over frames, as an agent is shown it."""
    return spec._replace(obs_dim=frames * features, pixels=0)


class Stack:
    """The features of the last frames of W environments."""

    def __init__(self, encoder: Encoder, pixels: int, frames: int, size: int = 1) -> None:
        if frames < 1:
            raise UserError(f"visual.frames must be at least 1, got {frames}")
        self._encoder, self._shape = encoder, (size, pixels, pixels, 3)
        self._recent = np.zeros((size, frames, encoder.features), np.float32)
        # On a GPU a batch of another size is another program; in an encoder of somebody's own it may change digits.
        self._whole = jax.default_backend() == "gpu" or ":" in encoder.name

    def start(self, frames: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Observations at the start of episodes: the features of the first frame, repeated."""
        if not frames:
            return {}
        rows = list(frames)
        batch = np.stack([frame.reshape(self._shape[1:]) for frame in frames.values()])
        if self._whole:
            padded = np.zeros(self._shape, np.uint8)
            padded[rows] = batch
            self._recent[rows] = self._encode(padded)[rows, None]
        else:
            self._recent[rows] = self._encode(batch)[:, None]
        now = self.now()
        return {index: now[index] for index in frames}

    def push(self, frames: np.ndarray, which: Sequence[int]) -> np.ndarray:
        """Take the frames [W, ...] of these environments; return the observations [W, D] of all."""
        rows, features = list(which), self._encode(frames.reshape(self._shape))
        self._recent[rows, :-1] = self._recent[rows, 1:]
        self._recent[rows, -1] = features[rows]
        return self.now()

    def now(self) -> np.ndarray:
        """Observations [W, D], the oldest frame first; a copy."""
        return self._recent.reshape(len(self._recent), -1).copy()

    def _encode(self, frames: np.ndarray) -> np.ndarray:
        features = np.asarray(self._encoder.encode(frames), np.float32)
        expected = (len(frames), self._encoder.features)
        if features.shape != expected or not np.isfinite(features).all():
            raise UserError(
                f"the encoder {self._encoder.name} must return finite features of shape {expected}, got shape "
                f"{features.shape}{'' if features.shape != expected else ' with NaN or infinity'}; correct it"
            )
        return np.clip(features, -_LARGEST, _LARGEST).astype(np.float16).astype(np.float32)


class Seeing:
    """A `VectorEnv` of observations around one of frames."""

    def __init__(self, envs: VectorEnv, encoder: Encoder, frames: int, keep: bool = False) -> None:
        """`keep`: remember the frames of the episodes in progress, for `reel`."""
        self.encoder, self.size = encoder, envs.size
        self.specs: Sequence[EnvSpec] = [seen_spec(spec, frames, encoder.features) for spec in envs.specs]
        self.spec = self.specs[0]
        self._envs, self._stepping = envs, range(envs.size)
        self._stack = Stack(encoder, envs.spec.pixels, frames, envs.size)
        self._reels: list[list[np.ndarray]] | None = [[] for _ in range(envs.size)] if keep else None

    def reel(self, index: int) -> np.ndarray | None:
        """The frames [T+1, P, P, 3] of the episode that one environment is in, or has just ended; None: not kept."""
        pixels = self._envs.spec.pixels
        return None if self._reels is None else np.stack(self._reels[index]).reshape(-1, pixels, pixels, 3)

    def reset(self, index: int, seed: int) -> np.ndarray:
        self.send_resets({index: seed})
        return self.receive_resets()[index]

    def send_resets(self, seeds: Mapping[int, int]) -> None:
        self._envs.send_resets(seeds)

    def receive_resets(self) -> dict[int, np.ndarray]:
        try:
            return self._begun(self._envs.receive_resets())
        except (Lost, Faulty) as error:
            error.observations = self._begun(error.observations)
            raise

    def _begun(self, frames: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        if self._reels is not None:
            for index, frame in frames.items():
                self._reels[index] = [frame]
        return self._stack.start(frames)

    def send(self, actions: np.ndarray, which: Sequence[int] | None = None) -> None:
        self._stepping = range(self.size) if which is None else which
        self._envs.send(actions, which)

    def receive(self) -> Step:
        try:
            return self._seen(self._envs.receive())
        except (Lost, Faulty) as error:
            assert error.step is not None
            error.step = self._seen(error.step)
            raise

    def _seen(self, step: Step) -> Step:
        if self._reels is not None:
            for index in self._stepping:
                self._reels[index].append(step.obs[index])
        return step._replace(obs=self._stack.push(step.obs, self._stepping))

    def render(self, index: int) -> np.ndarray:
        return self._envs.render(index)

    def revive(self, lost: Lost) -> None:
        self._envs.revive(lost)

    def heed(self, stopping: Callable[[], bool]) -> None:
        self._envs.heed(stopping)

    def close(self) -> None:
        self._envs.close()
