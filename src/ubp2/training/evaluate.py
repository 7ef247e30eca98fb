"""Evaluation of the agents as they are: no bonus, no noise, environments of their own, a fixed list of seeds."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ubp2.agents.base import Agent
from ubp2.envs.base import Faulty, Lost
from ubp2.evaluation.rollout import Act, NoClip, filmed, rank_correlation, summary
from ubp2.training.compilation import Program
from ubp2.training.crew import Crew
from ubp2.training.programs import Programs
from ubp2.training.records import STREAMS, unpacked
from ubp2.training.state import Counters, State
from ubp2.types import Episode

__all__ = ["controller", "due", "evaluate", "needed", "reward_correlations"]


class _Stopped(Exception):
    """A signal came."""


def due(crew: Crew, counters: Counters, t: int) -> bool:
    """Whether the agents of decision `t` are to be evaluated, and have not been: a signal may have ended it."""
    every = crew.config.evaluation.every
    at = t == crew.config.steps or (every > 0 and t % every == 0)
    return at and bool((counters.evaluated < t)[crew.alive].any())


def needed(crew: Crew, programs: Programs) -> list[Program]:
    """What an evaluation calls."""
    by_name = {"planner": programs.eval_plan, "policy": programs.eval_react}
    return [*(by_name[name] for name in crew.config.evaluation.controllers), programs.predict_reward]


def controller(agent: Agent, programs: Programs, state: Any, name: str, agents: int) -> Act:
    """The policies or the planners as a function of observations [S * W, D], for `rollouts`."""
    program = programs.eval_plan if name == "planner" else programs.eval_react
    stream, explore, start = np.int32(STREAMS["evaluate"]), np.float32(0.0), np.asarray(agent.carry())
    carry: Any = None

    def act(obs: np.ndarray, decision: int, first: bool) -> np.ndarray:
        nonlocal carry
        obs = obs.reshape(agents, -1, obs.shape[-1])
        if carry is None:
            carry = np.broadcast_to(start, (*obs.shape[:2], *start.shape))
        begins = np.full(obs.shape[:2], first)
        carry, decided = program(state, carry, obs, begins, explore, stream, np.int32(decision))
        action = unpacked(decided).action
        return action.reshape(-1, action.shape[-1])

    return act


def evaluate(crew: Crew, agent: Agent, programs: Programs, state: State) -> list[dict[str, float]] | None:
    """Evaluate every controller of the config, all members in lock-step; write one row a member, and return them.

    None where a signal came: nothing is written, and the evaluation is still due when the run goes on.
    """
    if not all(program.ready(crew.stopping) for program in needed(crew, programs)):
        return None
    state.device.health.check(crew, state.device.agent, state.counters.decision + 1)
    try:
        rows = _evaluate(crew, agent, programs, state.device.agent, state.counters)
    except _Stopped:
        return None
    except Lost:
        if not crew.stopping():
            raise
        return None
    state.counters.evaluated[:] = state.counters.decision
    return rows


def _evaluate(crew: Crew, agent: Agent, programs: Programs, state: Any, counters: Counters) -> list[dict[str, float]]:
    t, config, envs, began = counters.decision, crew.config.evaluation, crew.eval_envs(), time.monotonic()
    rows: list[dict[str, float]] = [{} for _ in crew.members]
    episodes: list[list[Episode]] = [[] for _ in crew.members]
    for name in config.controllers:
        act = _heeding(crew, controller(agent, programs, state, name, crew.size))
        done = _episodes(crew, act, name, t)
        for i in crew.working:
            rows[i] |= {
                f"{name}/{key}": value for key, value in summary(done[i], crew.members[i].spec.has_success).items()
            }
            episodes[i] += done[i]
    for i in crew.failed:  # perhaps only under the second controller
        episodes[i] = []
    correlations = reward_correlations(programs, state, episodes, envs.spec.episode_decisions)
    for i in crew.working:
        rows[i]["reward/rank_correlation"] = correlations[i]
        # How many labels were asked says who acts now.
        row = rows[i] | {"labels/asked": float(counters.asked[i]), "time/evaluation": time.monotonic() - began}
        crew.attempt(i, partial(crew.members[i].metrics.write, "eval", t, row))
    telling = [i for i in crew.working if crew.members[i].spec.has_success]
    if telling:
        best = [max(rows[i][f"{name}/success_any"] for name in config.controllers) for i in telling]
        crew.progress.update(t, success=float(np.mean(best)))
    return rows


def _episodes(crew: Crew, act: Act, name: str, t: int) -> list[list[Episode]]:
    """The evaluation's episodes of each member; one whose environment raises an error fails."""
    config, envs = crew.config.evaluation, crew.eval_envs()
    todo, none = range(config.seed, config.seed + config.episodes), [None] * crew.size
    videos = [member.run.videos / f"{t:09d}-{name}.mp4" for member in crew.members] if config.video else none
    while True:
        try:
            return filmed(act, envs, todo, videos, tuple(crew.failed))
        except NoClip as error:  # a machine that cannot render still trains
            crew.progress.note(f"no video: {error}")
            videos = none
        except Faulty as error:
            _blame(crew, error)


def _blame(crew: Crew, error: Faulty) -> None:
    """Members whose evaluation environments are at fault, or cannot be replaced, fail."""
    for each in error.all:
        crew.fail(each.index // crew.config.evaluation.workers, each)
    if error.lost is not None:
        try:
            crew.eval_envs().revive(error.lost)
        except Faulty as hopeless:
            _blame(crew, hopeless)


def _heeding(crew: Crew, act: Act) -> Act:
    """The same controller, which decides nothing more once a signal came; members that failed do nothing."""

    def heeding(obs: np.ndarray, decision: int, first: bool) -> np.ndarray:
        if crew.stopping():
            raise _Stopped
        action = act(obs, decision, first)
        if crew.failed:
            action = np.array(action)
            action.reshape(crew.size, -1)[list(crew.failed)] = 0.0
        return action

    return heeding


def reward_correlations(
    programs: Programs, state: Any, episodes: Sequence[Sequence[Episode]], length: int
) -> list[float]:
    """Rank correlation of the learned with the true reward on held-out episodes of each agent; nan without any.

    A diagnostic, never a signal. One compiled program serves episodes of every length: it is given `length` decisions
    at a time, which is an episode of training.
    """
    predicted: list[list[np.ndarray]] = [[] for _ in episodes]
    one = next(own[0] for own in episodes if own)
    nothing = one._replace(obs=one.obs[:1], action=one.action[:0], true_reward=one.true_reward[:0])
    count = max(map(len, episodes))
    for together in zip(*(own or [nothing] * count for own in episodes), strict=True):  # the same evaluation seed
        size = -(-max(len(e.action) for e in together) // length) * length
        obs = np.stack([_padded(e.obs[:-1], size) for e in together])
        action = np.stack([_padded(e.action, size) for e in together])
        parts = (slice(start, start + length) for start in range(0, size, length))
        rewards = np.hstack([programs.predict_reward(state, obs[:, part], action[:, part]) for part in parts])
        for own, reward, episode in zip(predicted, rewards, together, strict=True):
            own.append(reward[: len(episode.action)])
    return [
        rank_correlation(np.concatenate(own), np.concatenate([e.true_reward for e in their])) if their else math.nan
        for own, their in zip(predicted, episodes, strict=True)
    ]


def _padded(x: np.ndarray, length: int) -> np.ndarray:
    """Zeros up to a length."""
    return np.concatenate([x, np.zeros((length - len(x), *x.shape[1:]), x.dtype)])
