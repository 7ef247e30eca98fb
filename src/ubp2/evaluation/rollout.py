"""Whole episodes in an environment of their own, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ubp2.envs.base import VectorEnv
from ubp2.errors import UserError
from ubp2.evaluation.video import write_gif, write_video
from ubp2.types import Episode

__all__ = ["Act", "filmed", "rank_correlation", "rollouts", "summary"]

Act = Callable[[np.ndarray, int, bool], np.ndarray]  # obs [W, D], decision, whether an episode starts -> actions [W, A]
OnStep = Callable[[VectorEnv], None]


def rollouts(act: Act, envs: VectorEnv, seeds: Sequence[int], on_step: OnStep | None = None) -> list[Episode]:
    """One episode for each seed, W at a time in lock-step; `on_step` is called after each reset and step."""
    episodes: list[Episode] = []
    for first in range(0, len(seeds), envs.size):
        chunk = list(seeds[first : first + envs.size])
        chunk += [chunk[-1]] * (envs.size - len(chunk))  # fill the last group; its copies are dropped below
        episodes += _group(act, envs, first, chunk, on_step)
    return episodes[: len(seeds)]


def filmed(act: Act, envs: VectorEnv, seeds: Sequence[int], video: Path | None) -> list[Episode]:
    """`rollouts`, with the first episode written to the file `video` if one is named."""
    if video is None:
        return rollouts(act, envs, seeds)
    if video.suffix.lower() not in (".mp4", ".gif"):
        raise UserError(f"a clip is an .mp4 or a .gif file, got {video}")
    frames: list[np.ndarray] = []
    first = rollouts(act, envs, seeds[: envs.size], lambda e: frames.append(e.render(0)))
    write = write_gif if video.suffix.lower() == ".gif" else write_video
    write(video, np.stack(frames[: len(first[0].obs)]), envs.spec.fps)
    return first + rollouts(act, envs, seeds[envs.size :])


def _group(act: Act, envs: VectorEnv, first: int, seeds: list[int], on_step: OnStep | None) -> list[Episode]:
    obs = np.stack([envs.reset(i, seed) for i, seed in enumerate(seeds)])
    seen, actions, rewards, successes, terminated = [obs], [], [], [], []
    lengths, running = np.zeros(envs.size, int), np.ones(envs.size, bool)
    while running.any():
        if on_step is not None:
            on_step(envs)
        decision = len(actions)
        action = act(obs, decision, decision == 0)
        envs.send(action)
        step = envs.receive()
        obs = step.obs
        seen.append(obs)
        actions.append(action)
        rewards.append(step.true_reward)
        successes.append(step.success)
        terminated.append(step.terminated)
        lengths += running
        running &= ~(step.terminated | step.truncated)  # an episode that is over stands still until all are
    if on_step is not None:
        on_step(envs)
    stacked = [np.stack(x) for x in (seen, actions, rewards, successes, terminated)]
    return [_episode(first + i, seeds[i], int(lengths[i]), i, stacked) for i in range(envs.size)]


def _episode(index: int, seed: int, length: int, i: int, stacked: list[np.ndarray]) -> Episode:
    seen, actions, rewards, successes, terminated = stacked
    return Episode(
        index,
        seed,
        seen[: length + 1, i].copy(),
        actions[:length, i].copy(),
        rewards[:length, i].copy(),
        successes[:length, i].copy(),
        bool(terminated[length - 1, i]),
    )


def summary(episodes: Sequence[Episode], has_success: bool) -> dict[str, float]:
    """Mean over episodes: success at any and at the last step (where the environment tells), true return, length."""
    success = {
        "success_any": float(np.mean([e.success.any() for e in episodes])),
        "success_last": float(np.mean([e.success[-1] for e in episodes])),
    }
    return {
        **(success if has_success else {}),
        "return": float(np.mean([e.true_reward.sum() for e in episodes])),
        "length": float(np.mean([len(e.action) for e in episodes])),
    }


def rank_correlation(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Spearman's rank correlation; NaN where one side is constant."""
    from scipy.stats import rankdata

    a, b = rankdata(predicted), rankdata(actual)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])
