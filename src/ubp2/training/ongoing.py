"""The episodes in progress, one a seed, on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ubp2.training.member_axis import Sizes
from ubp2.training.records import TERMS
from ubp2.types import Episode, Step

__all__ = ["Ongoing"]

_TERM_NAMES = ("plan/reward", "bonus/reward", "bonus/dynamics", "plan/value", "bonus/value")


@dataclass
class Ongoing:
    """Arrays with room for the longest episode, so that one decision of S seeds is one write and no loop."""

    seed: np.ndarray  # [S] of the environment
    length: np.ndarray  # [S] decisions so far
    planned: np.ndarray  # [S] how many of them were planned
    terminated: np.ndarray  # [S]
    obs: np.ndarray  # [S, T+1, D]
    action: np.ndarray  # [S, T, A]
    true_reward: np.ndarray  # [S, T]
    success: np.ndarray  # [S, T]
    scores: np.ndarray  # [S, T, 5] terms of each plan

    @classmethod
    def empty(cls, seeds: int, spec: Sizes) -> Ongoing:
        """No episode has begun."""
        most = spec.episode_decisions
        shapes: dict[str, tuple[tuple[int, ...], type]] = {
            **dict.fromkeys(("seed", "length", "planned"), ((), np.int64)),
            "terminated": ((), np.bool_),
            "obs": ((most + 1, spec.obs_dim), np.float32),
            "action": ((most, spec.action_dim), np.float32),
            "true_reward": ((most,), np.float64),
            "success": ((most,), np.bool_),
            "scores": ((most, TERMS), np.float32),
        }
        return cls(**{name: np.zeros((seeds, *shape), dtype) for name, (shape, dtype) in shapes.items()})

    def begin(self, index: int, seed: int, obs: np.ndarray) -> None:
        """Start the next episode of one member."""
        self.await_reset(index, seed)
        self.obs[index, 0] = obs

    def await_reset(self, index: int, seed: int) -> None:
        """The next episode of one member is the one of this seed, of which nothing has been seen yet."""
        self.clear(index)
        self.seed[index] = seed

    def clear(self, index: int) -> None:
        """Forget what has happened in the episode of one member."""
        self.length[index] = self.planned[index] = 0
        self.terminated[index] = False

    def now(self) -> np.ndarray:
        """Where the environments stand, [S, D]; a copy."""
        return self.obs[np.arange(len(self.length)), self.length]

    def plan(self, which: np.ndarray, terms: np.ndarray) -> None:
        """Note the terms [S, 5] of the plans of the members `which` [S]."""
        rows = np.flatnonzero(which)
        self.scores[rows, self.planned[rows]] = terms[rows]
        self.planned[rows] += 1

    def add(self, action: np.ndarray, step: Step, alive: np.ndarray) -> None:
        """Append one decision of the members `alive` [S] and what came of it."""
        rows = np.flatnonzero(alive)
        now = self.length[rows]
        self.action[rows, now] = action[rows]
        self.obs[rows, now + 1] = step.obs[rows]
        self.true_reward[rows, now] = step.true_reward[rows]
        self.success[rows, now] = step.success[rows]
        self.terminated[rows] = step.terminated[rows]
        self.length[rows] = now + 1

    def episode(self, index: int, number: int) -> Episode:
        """The episode of one member as it goes into its archive."""
        own = self.arrays(index)
        return Episode(
            number,
            int(self.seed[index]),
            own["obs"],
            own["action"],
            own["true_reward"],
            own["success"],
            bool(self.terminated[index]),
        )

    def arrays(self, index: int) -> dict[str, np.ndarray]:
        """What has happened in the episode of one member, for its checkpoint; copies."""
        length, planned = int(self.length[index]), int(self.planned[index])
        lengths = {"obs": length + 1, "action": length, "true_reward": length, "success": length, "scores": planned}
        return {name: getattr(self, name)[index, :count].copy() for name, count in lengths.items()}

    def restore(self, index: int, seed: int, saved: Mapping[str, np.ndarray]) -> None:
        """What `arrays` gave, under the names that a checkpoint has them."""
        self.seed[index], self.length[index] = seed, len(saved["current/action"])
        self.planned[index] = len(saved["current/scores"])
        for name in ("obs", "action", "true_reward", "success", "scores"):
            array = saved[f"current/{name}"]
            if len(array):  # an empty one may have lost its other axes
                getattr(self, name)[index, : len(array)] = array

    def summary(self, index: int, has_success: bool) -> dict[str, float]:
        """What a training row says of the episode of one member."""
        own = self.arrays(index)
        values = {"episode/return": float(own["true_reward"].sum()), "episode/length": len(own["action"])}
        if has_success:
            values["episode/success_any"] = float(own["success"].any())
            values["episode/success_last"] = float(own["success"][-1])
        if len(own["scores"]):
            values |= dict(zip(_TERM_NAMES, own["scores"].mean(axis=0).tolist(), strict=True))
        return values
