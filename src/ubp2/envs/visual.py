"""Environments that are seen through their frames: ids such as ``dmc-visual/walker-walk``.

The worker process steps the environment of the id without ``-visual``, renders, and hands the frame over in place of
the observation. What becomes of frames is decided in the training process (`ubp2.vision.seeing`): nothing here may
import jax.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ubp2.config.sections import SUFFIX, VisualConfig, is_visual
from ubp2.envs.base import Env, Outcome
from ubp2.errors import UserError, unknown_name

__all__ = ["SUFFIX", "Watched", "base_id", "is_visual", "require_camera", "squared", "visual_id"]


def base_id(env_id: str) -> str:
    """The id of the same environment with the observations that it has itself."""
    suite, slash, task = env_id.partition("/")
    return f"{suite.removesuffix(SUFFIX)}{slash}{task}"


def visual_id(env_id: str) -> str:
    """The id of the same environment seen through its frames."""
    suite, slash, task = env_id.partition("/")
    return f"{suite}{SUFFIX}{slash}{task}"


def require_camera(env_id: str, camera: str, cameras: Sequence[str]) -> None:
    """Refuse a camera that the environment does not have."""
    if not cameras:
        raise UserError(f"{env_id} has one view and no cameras to choose from; leave out the camera '{camera}'")
    if camera not in cameras:
        raise unknown_name(f"camera of {env_id}", camera, cameras)


class Watched:
    """An environment whose observation is its frame: pixels x pixels x 3 bytes, flat."""

    def __init__(self, env: Env, env_id: str, visual: VisualConfig) -> None:
        """Renders once, so that a machine which cannot is told before a run begins."""
        if visual.pixels < 1:
            raise UserError(f"visual.pixels is the side of a frame and must be at least 1, got {visual.pixels}")
        if visual.camera is not None:
            require_camera(env_id, visual.camera, env.cameras)
        self._env, self._camera, self._pixels = env, visual.camera, visual.pixels
        self._last: Outcome | None = None  # of an episode that is over
        self.cameras = env.cameras
        self.spec = env.spec._replace(id=env_id, obs_dim=3 * visual.pixels**2, pixels=visual.pixels)
        try:
            self.reset(0)
        except UserError as error:
            env.close()
            instead = f"From its own observations: {base_id(env_id)}"
            if not is_visual(env_id):  # a function's: the name that says how it is seen is in the configuration
                instead = "With a name without -visual (env of the configuration) its own observations are used"
            raise UserError(f"{env_id} is seen through its frames, and there are none: {error}. {instead}") from error

    def reset(self, seed: int) -> np.ndarray:
        """Start the episode that `seed` determines; return its first frame."""
        self._last = None
        self._env.reset(seed)
        return self._look()

    def step(self, action: np.ndarray) -> Outcome:
        """Apply one decision. An episode that is over stands still and is not rendered again."""
        if self._last is not None:
            return self._last._replace(true_reward=0.0)
        outcome = self._env.step(action)
        outcome = outcome._replace(obs=self._look())
        if outcome.terminated or outcome.truncated:
            self._last = outcome
        return outcome

    def render(self, camera: str | None = None, size: int | None = None) -> np.ndarray:
        """The current frame; as the agent sees it unless told, so that no second renderer has to be kept."""
        return self._env.render(camera or self._camera, size or self._pixels)

    def close(self) -> None:
        self._env.close()

    def _look(self) -> np.ndarray:
        return squared(self.render(), self._pixels).reshape(-1)


def squared(frame: np.ndarray, pixels: int) -> np.ndarray:
    """A frame [height, width, 3] as [pixels, pixels, 3], for environments that render at a size of their own."""
    if frame.shape[:2] == (pixels, pixels):
        return frame
    from PIL import Image

    return np.asarray(Image.fromarray(frame).resize((pixels, pixels), Image.Resampling.BILINEAR))
