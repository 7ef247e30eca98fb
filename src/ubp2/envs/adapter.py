"""Any Gymnasium environment with vector observations and continuous actions, presented as an `Env`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from ubp2.config.schema import EnvironmentConfig, VisualConfig
from ubp2.envs.base import Env, EnvSpec, Outcome
from ubp2.envs.visual import Watched, require_camera
from ubp2.errors import UserError

__all__ = ["DEFAULT_DECISIONS", "Adapter", "adapt", "clock"]

DEFAULT_DECISIONS = 1000
"""Decisions an episode where neither the configuration nor the environment names a limit."""
UNBOUNDED = 1e9  # a bound of an action that is none: some write the largest number of a type, MuJoCo 1e10


class Adapter:
    """One Gymnasium environment as an `Env`: scaled actions, repeated; flat float32 observations; a clock.

    What the environment returns is checked at every decision, because a NaN or a wrong shape that reaches the replay
    ruins a run silently. An episode that is over stands still: further steps repeat the last observation and flags
    with zero reward, so that environments in lock-step may end at different times.

    An environment has cameras if its innermost object has an attribute `cameras`, names with the most telling first,
    and a ``render(camera=None, size=None)``. Any other has one view, that of ``render()``. Either may lack `size`.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        env_id: str,
        *,
        action_repeat: int = 1,
        episode_decisions: int = DEFAULT_DECISIONS,
        has_success: bool | None = None,
        fps: float | None = None,
    ) -> None:
        """`has_success` None: take one step to see. `fps` counts simulator steps; None: the environment's metadata."""
        observation_space, action_space = _check_spaces(env, env_id)
        self._env, self._id = env, env_id
        self.cameras = _cameras(env)
        self._obs_shape, self._action_shape = observation_space.shape, action_space.shape
        self._low, self._high = action_space.low.ravel(), action_space.high.ravel()
        # In double precision: float32 would lose bits wherever the bounds are not symmetric.
        self._center = (self._high.astype(np.float64) + self._low) / 2
        self._half = (self._high.astype(np.float64) - self._low) / 2
        self._decision = 0
        self._last: Outcome | None = None
        self._ready = False
        simulator_fps = float(env.metadata.get("render_fps") or 30) if fps is None else fps
        self.spec = EnvSpec(
            id=env_id,
            obs_dim=int(np.prod(self._obs_shape)),
            action_dim=self._low.size,
            episode_decisions=episode_decisions,
            action_repeat=action_repeat,
            fps=max(1, round(simulator_fps / action_repeat)),
            has_success=bool(has_success),
            action_low=tuple(map(float, self._low)),
            action_high=tuple(map(float, self._high)),
        )
        if has_success is None:
            self.spec = self.spec._replace(has_success=self._reports_success())

    def reset(self, seed: int) -> np.ndarray:
        """Start the episode that `seed` determines; return the first observation [D]."""
        result = self._env.reset(seed=int(seed))
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            raise UserError(
                f"{self._id}: reset must return (observation, info) as in Gymnasium, got {_describe(result)}; "
                f"an environment of the old gym API needs gymnasium.wrappers or shimmy"
            )
        self._decision, self._last, self._ready = 0, None, True
        return self._flatten(result[0])

    def step(self, action: np.ndarray) -> Outcome:
        """Apply one decision in [-1, 1]^A, repeated; rewards add up, and one success in the repeat is a success."""
        if not self._ready:
            raise UserError(f"{self._id}: call reset(seed) before step")
        if self._last is not None:
            return self._last._replace(true_reward=0.0)
        command = self._scale(action)
        self._decision += 1
        total, success = 0.0, False
        for _ in range(self.spec.action_repeat):
            obs, reward, terminated, truncated, info = self._advance(command)
            total += reward
            success = success or _succeeded(info)
            if terminated or truncated:
                break
        truncated = not terminated and (truncated or self._decision >= self.spec.episode_decisions)
        outcome = Outcome(self._flatten(obs), total, terminated, truncated, success)
        if terminated or truncated:
            self._last = outcome
        return outcome

    def render(self, camera: str | None = None, size: int | None = None) -> np.ndarray:
        """Return the current frame, [height, width, 3] uint8, as a camera sees it; see `Env.render`."""
        if camera is not None:
            require_camera(self._id, camera, self.cameras)
        try:
            frame: Any = self._view(camera, size)
        except UserError:
            raise
        except Exception as error:  # a missing package or display, which every library reports in its own way
            raise UserError(f"{self._id} cannot be rendered: {type(error).__name__}: {error}") from error
        if isinstance(frame, list):
            frame = frame[-1] if frame else None
        frame = None if frame is None else np.asarray(frame)
        if frame is None or frame.ndim != 3 or frame.shape[-1] != 3 or frame.dtype != np.uint8:
            raise UserError(
                f"{self._id}: render must return an image [height, width, 3] of uint8, got {_describe(frame)}; "
                f"build the environment with render_mode='rgb_array'"
            )
        return frame

    def close(self) -> None:
        self._env.close()

    def _view(self, camera: str | None, size: int | None) -> Any:
        render = self._env.unwrapped.render
        wish: dict[str, Any] = {} if camera is None else {"camera": camera}
        if size is not None and "size" in inspect.signature(render).parameters:
            wish["size"] = size
        # Gymnasium's wrappers pass no arguments on to render; without any, they show what they make of the frame.
        return render(**wish) if wish else self._env.render()

    def _scale(self, action: np.ndarray) -> np.ndarray:
        """Map [-1, 1]^A to the bounds of the action space, clipping what lies outside."""
        action = np.asarray(action)
        if action.shape != (self.spec.action_dim,) or not np.isfinite(action).all():
            raise UserError(
                f"{self._id}: an action must be {self.spec.action_dim} finite numbers in [-1, 1], "
                f"got {_describe(action)}: {action}"
            )
        command = self._center + self._half * np.clip(action, -1.0, 1.0)
        return np.clip(command.astype(self._low.dtype), self._low, self._high).reshape(self._action_shape)

    def _advance(self, command: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One simulator step, with the form of the answer and the reward checked."""
        try:
            result: Any = self._env.step(command)
        except ValueError as error:
            if "to unpack" not in str(error) or not _in_gymnasium(error):
                raise
            result = error  # a wrapper, such as TimeLimit, has looked at what step returns before we can
        if not isinstance(result, tuple) or len(result) != 5:
            got = str(result) if isinstance(result, ValueError) else f"got {_describe(result)}"
            raise UserError(
                f"{self._id}: step must return (observation, reward, terminated, truncated, info) as in Gymnasium, "
                f"{got}; an environment of the old gym API returns four values"
            )
        obs, reward, terminated, truncated, info = result
        if not isinstance(info, dict):
            raise UserError(
                f"{self._id}: the info that step returns must be a dict, got {_describe(info)}; return {{}} if there "
                f"is nothing to tell"
            )
        number = np.asarray(reward)
        if number.size != 1 or number.dtype.kind not in "biuf" or not np.isfinite(number).all():
            raise UserError(
                f"{self._id}: the reward must be one finite number, got {_show(reward)} at decision {self._decision}; "
                f"correct the environment's reward"
            )
        return obs, float(number.item()), bool(terminated), bool(truncated), info

    def _flatten(self, obs: Any) -> np.ndarray:
        """Flatten to float32 [D]; refuse a shape other than the announced one, and NaN or infinity."""
        try:
            array = np.asarray(obs, dtype=np.float32)
        except (TypeError, ValueError):
            array = None
        if array is None or array.shape != self._obs_shape:
            raise UserError(
                f"{self._id}: the observation space announces shape {self._obs_shape}, got {_describe(obs)} at "
                f"decision {self._decision}; make the two agree"
            )
        flat = array.ravel()
        if not np.isfinite(flat).all():
            index = int(np.flatnonzero(~np.isfinite(flat))[0])
            raise UserError(
                f"{self._id}: the observation is {flat[index]} at index {index} of {flat.size} at decision "
                f"{self._decision}; observations must be finite (float32), correct or clip that entry"
            )
        # A copy: many environments hand out a buffer that the next step overwrites.
        return np.array(flat)

    def _reports_success(self) -> bool:
        """See whether the environment's info names success at all. Leaves nothing: every episode starts at a reset."""
        self.reset(0)
        info = self._advance(self._scale(np.zeros(self.spec.action_dim, np.float32)))[-1]
        self._ready = False
        return "success" in info or "is_success" in info


def adapt(
    factory_or_env: Callable[[], gymnasium.Env] | gymnasium.Env,
    options: EnvironmentConfig,
    env_id: str = "custom",
    visual: VisualConfig | None = None,
) -> Env:
    """Adapt a user's environment, or the one that a user's function returns; visual: seen through its frames."""
    env = factory_or_env if isinstance(factory_or_env, gymnasium.Env) else factory_or_env()
    if not isinstance(env, gymnasium.Env):
        raise UserError(
            f"{env_id}: expected a function that returns a gymnasium.Env, it returned {_describe(env)}; "
            f"import gymnasium (not gym) and return the environment itself"
        )
    own_limit = _limit(env)
    repeat, decisions = clock(options, repeat=1, simulator_steps=own_limit)
    if own_limit is not None and decisions * repeat > own_limit:
        raise UserError(
            f"{env_id}: environment.episode_decisions {decisions} (x {repeat} simulator steps) is beyond the "
            f"environment's own limit of {own_limit} steps; lower it, or build the environment with "
            f"max_episode_steps={decisions * repeat}"
        )
    adapted = Adapter(env, env_id, action_repeat=repeat, episode_decisions=decisions)
    return adapted if visual is None else Watched(adapted, env_id, visual)


def _limit(env: gymnasium.Env) -> int | None:
    """Steps after which the environment ends an episode: as registered, or by a TimeLimit around it."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return env.spec.max_episode_steps
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            return env._max_episode_steps  # no public name has it for an environment that is not registered
        env = env.env
    return None


def clock(options: EnvironmentConfig, *, repeat: int, simulator_steps: int | None) -> tuple[int, int]:
    """Return (action repeat, decisions an episode): the options', or else the suite's repeat and episode length."""
    repeat = repeat if options.action_repeat is None else options.action_repeat
    if repeat < 1:
        raise UserError(f"environment.action_repeat must be at least 1, got {repeat}")
    decisions = options.episode_decisions
    if decisions is None:
        decisions = DEFAULT_DECISIONS if simulator_steps is None else max(1, simulator_steps // repeat)
    if decisions < 1:
        raise UserError(f"environment.episode_decisions must be at least 1, got {decisions}")
    return repeat, decisions


def _check_spaces(env: gymnasium.Env, env_id: str) -> tuple[Box, Box]:
    """Refuse what the agent cannot see or do, or begin, with what would help."""
    observation, action = env.observation_space, env.action_space
    if not isinstance(observation, Box):
        raise UserError(
            f"{env_id}: expected a Box observation space, got {observation}; wrap the environment in "
            f"gymnasium.wrappers.FlattenObservation"
        )
    if not isinstance(action, Box) or action.dtype is None or action.dtype.kind != "f":
        raise UserError(
            f"{env_id}: expected a continuous Box action space of floats, got {action}; "
            f"choose a continuous version of the task (the planner needs real-valued actions)"
        )
    reset = inspect.signature(env.unwrapped.reset).parameters
    if not {"seed", "options"} <= set(reset) and not any(each.kind is each.VAR_KEYWORD for each in reset.values()):
        raise UserError(
            f"{env_id}: reset must take seed and options, got reset({', '.join(reset)}); write it as "
            f"def reset(self, *, seed=None, options=None), and begin it with super().reset(seed=seed)"
        )
    if 0 in (int(np.prod(observation.shape)), int(np.prod(action.shape))):
        raise UserError(f"{env_id}: observation and action need at least one entry, got {observation} and {action}")
    if not max(np.abs(action.low).max(), np.abs(action.high).max()) < UNBOUNDED:
        raise UserError(f"{env_id}: expected finite action bounds, got {action}; give its Box a finite low and high")
    return observation, action


def _cameras(env: gymnasium.Env) -> tuple[str, ...]:
    """The names that the environment's own `render` takes; an attribute of another kind is none of ours."""
    names: Any = getattr(env.unwrapped, "cameras", ())
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names) if "camera" in inspect.signature(env.unwrapped.render).parameters else ()


def _in_gymnasium(error: Exception) -> bool:
    """Whether it was raised by gymnasium's own code, and not by the environment within its wrappers."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and place.tb_frame.f_globals.get("__name__", "").startswith("gymnasium.")


def _succeeded(info: dict[str, Any]) -> bool:
    return bool(info.get("success", info.get("is_success", False)))


def _describe(thing: Any) -> str:
    """Name the form of an unexpected value."""
    if isinstance(thing, np.ndarray):
        return f"an array of shape {thing.shape} and type {thing.dtype}"
    if isinstance(thing, tuple):
        return f"a tuple of {len(thing)}"
    return "nothing" if thing is None else f"{type(thing).__module__}.{type(thing).__qualname__}"


def _show(thing: Any) -> str:
    text = repr(thing)
    return text if len(text) <= 60 else text[:57] + "..."
