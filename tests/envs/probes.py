"""Tiny environments with known answers, and broken ones: what the tests hold the learners and the adapter against."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

__all__ = [
    "BoundedAction",
    "ConstantReward",
    "CrashingStep",
    "DelayedReward",
    "DictObservation",
    "DiscreteAction",
    "HardlyBoundedAction",
    "NanObservation",
    "NanReward",
    "NoInfo",
    "OldApi",
    "OldReset",
    "RewardOfAction",
    "RewardOfObservation",
    "Terminating",
    "UnboundedAction",
    "Unpacks",
    "WrongShape",
]

Result = tuple[Any, float, bool, bool, dict[str, Any]]


class _Probe(gymnasium.Env):
    """A number drawn from [-1, 1] at the reset, one action in [-1, 1], reward zero, no end."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's own attribute)
    render_mode = "rgb_array"

    def __init__(self) -> None:
        self.observation_space = Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.state = np.zeros(1, np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.steps = self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32), 0
        return self.state, {}

    def step(self, action: np.ndarray) -> Result:
        self.steps += 1
        return self.state, 0.0, False, False, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        return np.full((16, 16, 3), min(self.steps, 255), np.uint8)


class ConstantReward(_Probe):
    """One decision, reward 1: the value is 1 everywhere."""

    def step(self, action: np.ndarray) -> Result:
        return self.state, 1.0, True, False, {}


class RewardOfObservation(_Probe):
    """One decision, reward = sign of the observation: the value is that sign."""

    def step(self, action: np.ndarray) -> Result:
        return self.state, float(np.sign(self.state[0])), True, False, {}


class RewardOfAction(_Probe):
    """Reward -(a - 0.3)^2 without end: the best action is 0.3 everywhere, success within 0.1 of it."""

    def step(self, action: np.ndarray) -> Result:
        error = float(action[0]) - 0.3
        return self.state, -(error**2), False, False, {"success": abs(error) < 0.1}


class DelayedReward(_Probe):
    """Two decisions, reward 1 at the second; the observation is the clock: values gamma, then 1."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> Result:
        self.steps += 1
        last = self.steps == 2
        return np.full(1, self.steps / 2, np.float32), float(last), last, False, {}


class Terminating(_Probe):
    """Ends at its third step with reward 1 a step; reports `is_success` there."""

    def step(self, action: np.ndarray) -> Result:
        self.steps += 1
        over = self.steps == 3
        return self.state, 1.0, over, False, {"is_success": over}


class BoundedAction(_Probe):
    """Observes, in a matrix, the action it was given, whose bounds are [0, 10] and [-4, -2]."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = Box(np.array([0.0, -4.0], np.float32), np.array([10.0, -2.0], np.float32))
        self.observation_space = Box(-np.inf, np.inf, (2, 2), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros((2, 2)), {}

    def step(self, action: np.ndarray) -> Result:
        self.steps += 1
        return np.array([action, [self.steps, 0.0]], np.float64), 0.0, False, False, {}


class NanObservation(_Probe):
    """The observation becomes NaN at the second step."""

    def step(self, action: np.ndarray) -> Result:
        self.steps += 1
        return np.full(1, np.nan if self.steps == 2 else 0.0), 0.0, False, False, {}


class NanReward(_Probe):
    """The reward becomes NaN at the second step."""

    def step(self, action: np.ndarray) -> Result:
        self.steps += 1
        return self.state, float("nan") if self.steps == 2 else 0.0, False, False, {}


class WrongShape(_Probe):
    """The observation has one entry more than announced."""

    def step(self, action: np.ndarray) -> Result:
        return np.zeros(2), 0.0, False, False, {}


class CrashingStep(_Probe):
    """Raises an exception of its own at the second step."""

    def step(self, action: np.ndarray) -> Result:
        self.steps += 1
        if self.steps == 2:
            raise ZeroDivisionError("the physics engine exploded")
        return self.state, 0.0, False, False, {}


class DiscreteAction(_Probe):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = Discrete(3)


class UnboundedAction(_Probe):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = Box(-np.inf, np.inf, (1,), np.float32)


class HardlyBoundedAction(_Probe):
    """Its bounds are finite and mean that there are none."""

    def __init__(self) -> None:
        super().__init__()
        largest = float(np.finfo(np.float32).max)
        self.action_space = Box(-largest, largest, (1,), np.float32)


class NoInfo(_Probe):
    def step(self, action: np.ndarray) -> Any:
        return self.state, 0.0, False, False, None


class DictObservation(_Probe):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Dict({"position": Box(-1.0, 1.0, (1,))})


class OldReset(_Probe):
    """Cannot be begun with options."""

    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class Unpacks(_Probe):
    """Has a mistake of its own in step that looks like that of an old environment."""

    def step(self, action: np.ndarray) -> Any:
        obs, _, _, _, _ = (action, action)  # type: ignore[misc]
        return obs


class OldApi(_Probe):
    """Returns four values from a step, as gym once did."""

    def step(self, action: np.ndarray) -> Any:
        return self.state, 0.0, False, {}
