"""An environment of your own, learned from comparisons, with a teacher of your own.

A room is to be kept at 21 degrees while the weather changes. Nobody writes a reward for "comfortable, and not
wasteful": the teacher looks at two clips and prefers the one whose worst moment was less bad.

    python examples/custom_environment.py        # a few minutes on two cores
"""

from __future__ import annotations

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
        off = abs(self._inside - 21.0)
        comfort = float(-off - 0.1 * heat)
        return self._observe(), comfort, False, self._hour >= 24.0, {"success": bool(off < 1.0)}

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


def main(config: ubp2.Config | None = None, out: str = "runs/room") -> ubp2.RunResult:
    """Train, evaluate, and show a day of the learned policy."""
    config = config or ubp2.preset("demo", env="room")
    result = ubp2.train(config, env=make_room, teacher=worst_moment, out=out)
    print(ubp2.evaluate(result.folder, env=make_room, episodes=10))
    policy, room = ubp2.load(result.folder), make_room()
    obs, _ = room.reset(seed=1)
    for half_hour in range(48):
        obs, _, _, _, _ = room.step(policy.act(obs))
        if half_hour % 8 == 7:
            print(f"{(half_hour + 1) // 2:2}:00  inside {obs[0]:5.1f}  outside {obs[1]:5.1f}")
    return result


if __name__ == "__main__":
    main()
