"""Reach: a point walks to a ring in the plane. No simulator, known optimum; the first thing to try and to test on."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

__all__ = ["DECISIONS", "RADIUS", "STEP", "Reach"]

DECISIONS = 50
STEP = 0.1  # largest move along each axis in one decision
RADIUS = 0.2  # within this distance of the goal is success
_APART = 0.5  # least distance between start and goal
_MARGIN = 0.9  # start and goal lie in [-0.9, 0.9]^2, so that the drawing never cuts them

_SIZE = 256
_BACKGROUND_TOP = np.array([250, 248, 243], np.float32)
_BACKGROUND_BOTTOM = np.array([236, 240, 244], np.float32)
_GRID = np.array([214, 220, 228], np.float32)
_GOAL = np.array([74, 163, 130], np.float32)
_AGENT = np.array([226, 110, 92], np.float32)
_TRAIL = np.array([236, 158, 142], np.float32)
_SHADOW = np.array([120, 128, 140], np.float32)


class Reach(gymnasium.Env):
    """A point in [-1, 1]^2 moved by velocity commands; reward = -distance.

    The observation is the position and the way to the goal: [x, y, goal_x - x, goal_y - y].
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 (Gymnasium's own attribute)

    def __init__(self) -> None:
        self.render_mode = "rgb_array"
        self.observation_space = Box(-2.0, 2.0, (4,), np.float32)
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self._position = np.zeros(2)
        self._goal = np.zeros(2)
        self._path: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._position, self._goal = _draw(self.np_random)
        self._path = [self._position]
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        move = STEP * np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        self._position = np.clip(self._position + move, -1.0, 1.0)
        self._path.append(self._position)
        distance = float(np.linalg.norm(self._position - self._goal))
        return self._observe(), -distance, False, False, {"success": distance <= RADIUS}

    def render(self, size: int | None = None) -> np.ndarray:  # type: ignore[override]
        """Draw the square seen from above, [size, size, 3] uint8; 256 unless told, and at most."""
        return _draw_frame(np.array(self._path, np.float32), self._goal.astype(np.float32), min(size or _SIZE, _SIZE))

    def _observe(self) -> np.ndarray:
        return np.concatenate([self._position, self._goal - self._position]).astype(np.float32)


def _draw(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw a start and a goal, each [2], far enough apart."""
    while True:
        start, goal = random.uniform(-_MARGIN, _MARGIN, (2, 2))
        if np.linalg.norm(goal - start) >= _APART:
            return start, goal


def _draw_frame(path: np.ndarray, goal: np.ndarray, size: int) -> np.ndarray:
    """Paint background, goal ring, fading trail and agent. Shapes are signed distances, so edges are smooth."""
    axis = np.linspace(-1.1, 1.1, size, dtype=np.float32)
    pixel = 2.2 / (size - 1)
    points = np.stack(np.meshgrid(axis, axis[::-1]), axis=-1)  # y points up
    frame = _background(points, pixel)

    def paint(distance: np.ndarray, colour: np.ndarray, opacity: float | np.ndarray = 1.0, soft: float = 1.0) -> None:
        alpha = np.clip(0.5 - distance / (soft * pixel), 0.0, 1.0) * opacity
        frame[:] += alpha[..., None] * (colour - frame)

    to_goal = np.linalg.norm(points - goal, axis=-1)
    paint(to_goal - RADIUS, _GOAL, 0.16)
    paint(np.abs(to_goal - RADIUS) - 0.011, _GOAL)
    paint(to_goal - 0.014, _GOAL, 0.7)
    distance, age = _trail(points, path)
    paint(distance - 0.016, _TRAIL, 0.85 * np.exp(-age / 9.0))
    to_agent = np.linalg.norm(points - path[-1], axis=-1)
    below = path[-1] - np.array([0.0, 0.02], np.float32)
    paint(np.linalg.norm(points - below, axis=-1) - 0.05, _SHADOW, 0.35, soft=8.0)
    paint(to_agent - 0.056, np.full(3, 255, np.float32))
    paint(to_agent - 0.044, _AGENT)
    return np.clip(frame + 0.5, 0, 255).astype(np.uint8)


def _background(points: np.ndarray, pixel: float) -> np.ndarray:
    """A soft vertical gradient with a faint grid and the edge of the square; [size, size, 3]."""
    blend = (points[..., 1:] + 1.1) / 2.2
    frame = _BACKGROUND_BOTTOM + blend * (_BACKGROUND_TOP - _BACKGROUND_BOTTOM)
    inside = np.abs(points).max(axis=-1) <= 1.0
    to_line = np.abs(points - np.round(points / 0.25) * 0.25).min(axis=-1)
    alpha = np.clip(1.0 - to_line / pixel, 0.0, 1.0) * inside * 0.45
    to_edge = np.abs(np.abs(points).max(axis=-1) - 1.0)
    alpha = np.maximum(alpha, np.clip(1.5 - to_edge / pixel, 0.0, 1.0))
    return frame + alpha[..., None] * (_GRID - frame)


def _trail(points: np.ndarray, path: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance to the nearest stretch of the last 30 moves, and its age in decisions (continuous along a stretch)."""
    nearest = np.full(points.shape[:2], np.inf, np.float32)
    age = np.zeros_like(nearest)
    for back in range(min(30, len(path) - 1)):
        new, old = path[-1 - back], path[-2 - back]
        stretch = old - new
        length_squared = float(stretch @ stretch)
        if length_squared < 1e-12:
            continue
        offset = points - new
        along = np.clip(offset @ stretch / length_squared, 0.0, 1.0)
        distance = np.hypot(offset[..., 0] - along * stretch[0], offset[..., 1] - along * stretch[1])
        closer = distance < nearest - 1e-6
        nearest = np.where(closer, distance, nearest)
        age = np.where(closer, back + along, age)
    return nearest, age
