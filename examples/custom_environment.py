"""An environment of your own, learned from comparisons, with a teacher of your own.

A room is to be kept at 21 degrees, without waste, while the weather changes. `step` returns how comfortable each half
hour was; only the teacher sees that, and prefers the clip whose worst moment was less bad.

    python examples/custom_environment.py        # a few minutes on two cores
"""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import numpy as np

import ubp2


class Room(gymnasium.Env):
    """Temperature inside and outside, and the hour; actions are the heater, 0 to 3 kW, and the window, shut to open."""

    observation_space = gymnasium.spaces.Box(-50.0, 50.0, (4,), np.float32)
    action_space = gymnasium.spaces.Box(np.zeros(2, np.float32), np.array([3.0, 1.0], np.float32))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """A new day: everything random comes from the seed, so that an episode can be replayed."""
        super().reset(seed=seed)
        self._inside, self._mean = self.np_random.uniform(14, 26), self.np_random.uniform(-5, 12)
        self._hour = 0.0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Half an hour. What is returned as reward is what the teacher below judges by; the agent never sees it."""
        heat, window = np.clip(action, self.action_space.low, self.action_space.high)
        self._inside += 0.5 * (2.5 * heat - (0.2 + 0.8 * window) * (self._inside - self._outside()))
        self._hour += 0.5
        comfort = float(-abs(self._inside - 21.0) - 0.1 * heat)
        return self._observe(), comfort, False, self._hour >= 24.0, {}

    def _outside(self) -> float:
        return self._mean + 5.0 * np.sin((self._hour - 9.0) / 24.0 * 2 * np.pi)

    def _observe(self) -> np.ndarray:
        phase = self._hour / 24.0 * 2 * np.pi
        return np.array([self._inside, self._outside(), np.sin(phase), np.cos(phase)], np.float32)


def make_room() -> gymnasium.Env:
    """A time limit tells how long an episode is."""
    return gymnasium.wrappers.TimeLimit(Room(), max_episode_steps=48)


def worst_moment(key_seed: int, left_rewards: np.ndarray, right_rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Prefer the clip whose worst half hour was better: 1 for left, 0 for right; every answer counts (weight 1)."""
    left, right = left_rewards.min(axis=1), right_rewards.min(axis=1)
    return (left > right).astype(float), np.ones(len(left))


def degrees_off(act: Callable[[np.ndarray], np.ndarray], days: int = 10) -> float:
    """How far from 21 degrees the room is on average when `act` has the heater and the window."""
    room, off = make_room(), []
    for day in range(days):
        obs, _ = room.reset(seed=day)
        for _ in range(48):
            obs, *_ = room.step(act(obs))
            off.append(abs(obs[0] - 21.0))
    return float(np.mean(off))


def main(config: ubp2.Config | None = None, out: str = "runs/room") -> ubp2.RunResult:
    """Train, and compare with a room that nobody looks after."""
    result = ubp2.train(config or ubp2.preset("demo", env="room"), env=make_room, teacher=worst_moment, out=out)
    space = make_room().action_space
    print(f"at random: {degrees_off(lambda obs: space.sample()):.1f} degrees off")
    print(f"learned:   {degrees_off(ubp2.load(result.folder).act):.1f} degrees off, from {result.labels} comparisons")
    return result


if __name__ == "__main__":
    main()
