"""Meta-World's v3 tasks under the named protocols, with seeding that works.

Meta-World ignores ``reset(seed=)``: object and goal positions come from the global NumPy generator, or from a frozen
vector. Here the seed alone decides the episode, and the global generator is never touched.

    protocol   goal          poses                decision            episode
    ubp2       visible       new at every reset   2 simulator steps   100 decisions
    bpref      hidden (0)    new at every reset   1 simulator step    500 decisions
"""

from __future__ import annotations

# pyright: reportAttributeAccessIssue=false
# (mujoco takes its functions from a compiled module that has no stubs)
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from ubp2.config.schema import EnvironmentConfig
from ubp2.envs.adapter import Adapter, clock
from ubp2.envs.base import Env
from ubp2.envs.gl import choose_backend, no_rendering
from ubp2.errors import unknown_name

choose_backend()

import mujoco  # noqa: E402 (the backend is chosen when mujoco loads)
from metaworld.env_dict import ALL_V3_ENVIRONMENTS  # noqa: E402

if TYPE_CHECKING:
    from metaworld.sawyer_xyz_env import SawyerXYZEnv

__all__ = ["MetaWorld", "load"]

# From the one that shows most: the workspace from the robot's right, from its left (what the arm hid), from above.
_CAMERAS = ("corner4", "corner", "topview", "corner3", "corner2", "behindGripper", "gripperPOV")
_SIZE = 256


class MetaWorld(gymnasium.Env):
    """One v3 task as a Gymnasium environment whose episode is a function of the seed and the actions."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 80}  # noqa: RUF012 (Gymnasium's own attribute)
    cameras = _CAMERAS

    def __init__(self, task: str, *, goal_visible: bool = True, simulator_steps: int = 500) -> None:
        self.render_mode = "rgb_array"
        self._task = task
        self._env = _build(task, goal_visible, simulator_steps)
        self._renderer: Any = None
        self.observation_space = self._env.sawyer_observation_space
        self.action_space = self._env.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Draw one pose vector from the seed and settle the hand around it.

        Meta-World's own reset runs `reset_model` twice. The first run matters only because it moves the bodies of the
        model before the hand settles, so here it goes without the settling, and both runs get the same vector, as with
        Meta-World's fixed tasks. The trajectories are bit-equal to two full runs, at half the cost.
        """
        super().reset(seed=seed)
        env = self._env
        env.np_random = self.np_random
        env.curr_path_length = 0
        mujoco.mj_resetData(env.model, env.data)
        mujoco.mj_forward(env.model, env.data)
        env._freeze_rand_vec = False
        env.__dict__["_reset_hand"] = lambda *_, **__: setattr(env, "init_tcp", env.tcp_center)
        try:
            env.reset_model()
        finally:
            del env.__dict__["_reset_hand"]
        env._freeze_rand_vec = True
        mujoco.mj_resetData(env.model, env.data)
        obs = env.reset_model()
        env._prev_obs = obs[:18].copy()
        obs[18:36] = env._prev_obs
        return obs, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self._env.step(action)
        return obs, float(reward), terminated, truncated, info

    def render(self, camera: str | None = None, size: int | None = None) -> np.ndarray:  # type: ignore[override]
        """Return the view of a camera, [size, size, 3] uint8; 256 unless told, 480 at most."""
        camera, size = camera or _CAMERAS[0], min(size or _SIZE, self._env.model.vis.global_.offheight)
        if self._renderer is None or self._renderer.height != size:
            self.close()  # first: with OSMesa, the end of one renderer would spoil the pictures of the next
            # On a CPU, smooth edges take half of the time of a frame, and large pictures do well without.
            self._env.model.vis.quality.offsamples = 4 if size <= _SIZE else 0
            try:
                self._renderer = mujoco.Renderer(self._env.model, size, size)
            except Exception as error:  # each OpenGL binding fails in its own way
                raise no_rendering(f"metaworld/{self._task}", error) from error
        self._renderer.update_scene(self._env.data, camera=camera)
        # Without a GPU, shadows take three quarters of the time of a frame, and reflections a quarter of the rest.
        for effect in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._renderer.scene.flags[effect] = 0
        frame = self._renderer.render()
        # The cameras of Meta-World's corners hang upside down.
        return np.ascontiguousarray(frame[::-1, ::-1] if camera.startswith("corner") else frame)

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def load(task: str, options: EnvironmentConfig) -> Env:
    """Build `metaworld/<task>` under the protocol of the options."""
    if f"{task}-v3" not in ALL_V3_ENVIRONMENTS:
        raise unknown_name("Meta-World task", task, [name.removesuffix("-v3") for name in ALL_V3_ENVIRONMENTS])
    paper = options.protocol == "ubp2"
    repeat, decisions = clock(options, repeat=2 if paper else 1, simulator_steps=200 if paper else 500)
    env = MetaWorld(task, goal_visible=paper, simulator_steps=repeat * decisions)
    return Adapter(env, f"metaworld/{task}", action_repeat=repeat, episode_decisions=decisions, has_success=True)


def _build(task: str, goal_visible: bool, simulator_steps: int) -> SawyerXYZEnv:
    """Construct the task's class itself: Meta-World's factories freeze one pose, and wrappers cost time."""
    env = ALL_V3_ENVIRONMENTS[f"{task}-v3"]()
    env._partially_observable = not goal_visible
    # Cached while the goal was still hidden, and `step` clips observations to it: the goal would read zero.
    env.__dict__.pop("sawyer_observation_space", None)
    env.seeded_rand_vec = True
    env._set_task_called = True
    env.max_path_length = simulator_steps
    return env
