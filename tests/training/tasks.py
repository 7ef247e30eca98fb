"""Small tasks of the sizes of toy/reach, by id, for programs whose members differ in their task."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from ubp2.envs.toy import Reach

__all__ = ["BREAKING", "FLEE", "Breaking", "Flee"]

FLEE = "gym/tests.training.tasks:Flee-v0"
BREAKING = "gym/tests.training.tasks:Breaking-v0"


class Flee(Reach):
    """Away from the ring."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, -reward, terminated, truncated, {"success": not info["success"]}


class Breaking(Reach):
    """Reach whose simulator raises an error after 90 steps in all."""

    made = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.made += 1
        if self.made > 90:
            raise RuntimeError("the arm fell off")
        return super().step(action)


gymnasium.register("Flee-v0", f"{__name__}:Flee", max_episode_steps=50)
gymnasium.register("Breaking-v0", f"{__name__}:Breaking", max_episode_steps=50)
