"""The DeepMind Control Suite from states: ``dmc/<domain>-<task>``, such as dmc/walker-walk."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from ubp2.config.schema import EnvironmentConfig
from ubp2.envs.adapter import Adapter, clock
from ubp2.envs.base import Env
from ubp2.envs.gl import choose_backend, no_rendering
from ubp2.errors import UserError, unknown_name

choose_backend()

from dm_control import suite  # noqa: E402 (the backend is chosen when mujoco loads)

__all__ = ["Control", "load", "task_ids"]

_SIMULATOR_STEPS = 1000
_SIZE = 256
_UNLIMITED = ("lqr",)  # domains whose actuators have no limits: there is nothing to scale [-1, 1] to
# Without a GPU, shadows and reflections take two thirds of the time of a frame.
_FLAGS = {"shadow": False, "reflection": False}


class Control(gymnasium.Env):
    """One task of the suite as a Gymnasium environment; the suite's clock is left to the adapter."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (Gymnasium's own attribute)

    def __init__(self, domain: str, task: str) -> None:
        self.render_mode = "rgb_array"
        self._name = f"dmc/{domain}-{task}"
        # A fixed seed at construction: what a domain draws here is the same for all.
        self._env = suite.load(domain, task, task_kwargs={"random": 0, "time_limit": float("inf")})
        action = self._env.action_spec()
        self.action_space = Box(action.minimum.astype(np.float32), action.maximum.astype(np.float32))
        size = sum(int(np.prod(part.shape)) for part in self._env.observation_spec().values())
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)
        model = self._env.physics.model
        self.cameras = tuple(model.camera(number).name or f"camera {number}" for number in range(model.ncam))

    @property
    def simulator_fps(self) -> float:
        return 1.0 / self._env.control_timestep()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        if seed is not None:
            # The task draws every episode from this generator; there is no public setter.
            self._env.task._random = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)))
        return _flatten(self._env.reset().observation), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        result = self._env.step(action)
        # discount 0 is the suite's way to say that the task itself is over
        return _flatten(result.observation), float(result.reward or 0.0), result.discount == 0.0, result.last(), {}

    def render(self, camera: str | None = None, size: int | None = None) -> np.ndarray:  # type: ignore[override]
        """Return the view of one of the model's cameras, [size, size, 3] uint8; 256 unless told, 480 at most."""
        size = min(size or _SIZE, self._env.physics.model.vis.global_.offheight)
        try:
            number = 0 if camera is None else self.cameras.index(camera)
            return self._env.physics.render(size, size, camera_id=number, render_flag_overrides=_FLAGS)
        except Exception as error:  # each OpenGL binding fails in its own way
            raise no_rendering(self._name, error) from error

    def close(self) -> None:
        self._env.close()


def task_ids() -> list[str]:
    """All tasks of the installed suite whose actions have bounds, as <domain>-<task>."""
    return sorted(f"{domain}-{task}" for domain, task in suite.ALL_TASKS if domain not in _UNLIMITED)


def load(name: str, options: EnvironmentConfig) -> Env:
    """Build `dmc/<domain>-<task>`; action repeat 2 and 1000 simulator steps unless the options say otherwise."""
    domain, _, task = name.partition("-")
    if domain in _UNLIMITED and (domain, task) in suite.ALL_TASKS:
        raise UserError(
            f"the actions of dmc/{name} have no bounds that [-1, 1] could be scaled to; choose another task, or give "
            f"ubp2.train a function that builds it with bounds of your own"
        )
    if name not in task_ids():
        raise unknown_name("Control Suite task", name, task_ids())
    try:
        env = Control(domain, task)
    except AttributeError as error:  # the quadruped of dm_control 1.0.28 calls np.in1d, which numpy 2.4 dropped
        raise UserError(
            f"dmc/{name}: the installed dm_control does not work with numpy {np.__version__} ({error}); "
            f"run: pip install 'numpy<2.4'"
        ) from error
    repeat, decisions = clock(options, repeat=2, simulator_steps=_SIMULATOR_STEPS)
    return Adapter(
        env,
        f"dmc/{name}",
        action_repeat=repeat,
        episode_decisions=decisions,
        has_success=False,
        fps=env.simulator_fps,
    )


def _flatten(observation: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)
