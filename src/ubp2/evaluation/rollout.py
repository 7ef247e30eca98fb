"""Whole episodes in an environment of their own, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from ubp2.envs.base import Faulty, Lost, VectorEnv
from ubp2.errors import UserError
from ubp2.evaluation.video import write_gif, write_video
from ubp2.types import Episode

__all__ = ["Act", "NoClip", "filmed", "rank_correlation", "rollouts", "summary"]

Act = Callable[[np.ndarray, int, bool], np.ndarray]  # obs [W, D], decision, whether an episode starts -> actions [W, A]
OnStep = Callable[[VectorEnv, int], None]  # the environments, and how many decisions the episode has had


class NoClip(UserError):
    """An environment that cannot be rendered, or a clip that cannot be written; nothing is wrong with the episodes."""


def rollouts(
    act: Act,
    envs: VectorEnv,
    seeds: Sequence[int],
    agents: int = 1,
    on_step: OnStep | None = None,
    idle: Collection[int] = (),
) -> list[list[Episode]]:
    """For each agent one episode a seed, in lock-step; `on_step` is called after each reset and step.

    Agents that are `idle` have none, and their environments stand still.

    The environments belong to the agents in equal blocks, each of which goes through the same seeds. Where the process
    of one is lost, all go through the same episodes again: the outcome is what it would have been.
    """
    workers = envs.size // agents
    episodes: list[list[Episode]] = [[] for _ in range(agents)]
    for first in range(0, len(seeds), workers):
        chunk = list(seeds[first : first + workers])
        chunk += [chunk[-1]] * (workers - len(chunk))  # fill the last group; its copies are dropped below
        which = [i for i in range(agents * workers) if i // workers not in idle]
        group = _undisturbed(act, envs, first, chunk * agents, which, on_step)
        for agent, own in enumerate(episodes):
            if agent not in idle:
                own += [e._replace(index=first + i) for i, e in enumerate(group[agent * workers :][:workers])]
    return [own[: len(seeds)] for own in episodes]


def filmed(
    act: Act,
    envs: VectorEnv,
    seeds: Sequence[int],
    videos: Sequence[Path | None],
    idle: Collection[int] = (),
) -> list[list[Episode]]:
    """`rollouts` of one agent a video, with its first episode written to the file if one is named.

    `NoClip` where that cannot be done.
    """
    agents = len(videos)
    if not any(videos):
        return rollouts(act, envs, seeds, agents, idle=idle)
    for video in videos:
        if video is not None and video.suffix.lower() not in (".mp4", ".gif"):
            raise UserError(f"a clip is an .mp4 or a .gif file, got {video}")
    workers, frames = envs.size // agents, [[] for _ in videos]

    def film(envs: VectorEnv, decision: int) -> None:
        for agent, clip in enumerate(frames):
            if agent in idle:
                continue
            try:
                clip[decision:] = [envs.render(agent * workers)]
            except Faulty as error:
                raise NoClip(str(error)) from error

    first = rollouts(act, envs, seeds[:workers], agents, film, idle)
    for video, clip, episodes, spec in zip(videos, frames, first, envs.specs[::workers], strict=True):
        if video is not None and episodes:
            write = write_gif if video.suffix.lower() == ".gif" else write_video
            try:
                write(video, np.stack(clip[: len(episodes[0].obs)]), spec.fps)
            except UserError as error:
                raise NoClip(str(error)) from error
    rest = rollouts(act, envs, seeds[workers:], agents, idle=idle)
    return [begun + others for begun, others in zip(first, rest, strict=True)]


def _undisturbed(
    act: Act, envs: VectorEnv, first: int, seeds: list[int], which: list[int], on_step: OnStep | None
) -> list[Episode]:
    while True:
        try:
            return _group(act, envs, first, seeds, which, on_step)
        except Lost as lost:
            envs.revive(lost)


def _group(
    act: Act, envs: VectorEnv, first: int, seeds: list[int], which: list[int], on_step: OnStep | None
) -> list[Episode]:
    envs.send_resets({i: seeds[i] for i in which})
    begun = envs.receive_resets()
    nothing = np.zeros(envs.spec.obs_dim, envs.spec.obs_type)
    obs = np.stack([begun.get(i, nothing) for i in range(envs.size)])
    seen, actions, rewards, successes, terminated = [obs], [], [], [], []
    lengths, running = np.zeros(envs.size, int), np.zeros(envs.size, bool)
    running[which] = True
    while running.any():
        decision = len(actions)
        if on_step is not None:
            on_step(envs, decision)
        action = act(obs, decision, decision == 0)
        envs.send(action, which)
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
        on_step(envs, len(actions))
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
        bool(length and terminated[length - 1, i]),
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
