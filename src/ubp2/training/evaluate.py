"""Evaluation of the agent as it is: no bonus, no noise, an environment of its own, a fixed list of seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from ubp2.agents.base import Agent
from ubp2.configs import EvaluationConfig
from ubp2.envs.base import VectorEnv
from ubp2.errors import UserError
from ubp2.evaluation.rollout import Act, filmed, rank_correlation, summary
from ubp2.training.programs import STREAMS, Programs
from ubp2.types import Episode

if TYPE_CHECKING:
    from ubp2.training.loop import Crew
    from ubp2.training.state import Device

__all__ = ["controller", "evaluate", "reward_correlation", "seeds"]


def seeds(config: EvaluationConfig, episodes: int) -> list[int]:
    """The seeds of the evaluation episodes, the same for every run and every evaluation."""
    return [config.seed + i for i in range(episodes)]


def controller(agent: Agent, programs: Programs, state: object, name: str, envs: VectorEnv) -> Act:
    """The policy or the planner as a function of observations [W, D], for `rollouts`."""
    program = programs.plan if name == "planner" else programs.react
    start = np.repeat(np.asarray(agent.carry())[None], envs.size, axis=0)
    carry = start

    def act(obs: np.ndarray, decision: int, first: bool) -> np.ndarray:
        nonlocal carry
        stream = np.int32(STREAMS["evaluate"])
        outcome = program(state, start if first else carry, obs, np.float32(0.0), stream, np.int32(decision))
        carry = outcome.carry
        return np.asarray(outcome.action)

    return act


def evaluate(crew: Crew, agent: Agent, programs: Programs, device: Device, t: int) -> dict[str, float]:
    """Evaluate every controller of the config, write one row, and return it."""
    config, envs = crew.config.evaluation, crew.eval_envs
    row: dict[str, float] = {}
    episodes: list[Episode] = []
    for name in config.controllers:
        act = controller(agent, programs, device.agent, name, envs)
        todo = seeds(config, config.episodes)
        video = crew.run.videos / f"{t:09d}-{name}.mp4" if config.video else None
        try:
            done = filmed(act, envs, todo, video)
        except UserError as error:  # a machine that cannot render still trains
            if video is None:
                raise
            crew.progress.note(f"no video: {error}")
            done = filmed(act, envs, todo, None)
        row |= {f"{name}/{key}": value for key, value in summary(done, envs.spec.has_success).items()}
        episodes += done
    row["reward/rank_correlation"] = reward_correlation(programs, device.agent, episodes, envs.spec.episode_decisions)
    crew.metrics.write("eval", t, row)
    if envs.spec.has_success:
        crew.progress.update(t, success=max(row[f"{name}/success_any"] for name in config.controllers))
    return row


def reward_correlation(programs: Programs, state: object, episodes: list[Episode], length: int) -> float:
    """Rank correlation of the learned with the true reward on held-out episodes: a diagnostic, never a signal."""
    predicted, actual = [], []
    for episode in episodes:
        steps = len(episode.action)
        obs, action = (_padded(x, length) for x in (episode.obs[:-1], episode.action))
        predicted.append(np.asarray(jax.device_get(programs.predict_reward(state, obs, action)))[:steps])
        actual.append(episode.true_reward)
    return rank_correlation(np.concatenate(predicted), np.concatenate(actual))


def _padded(x: np.ndarray, length: int) -> np.ndarray:
    """Zeros up to a fixed length, so that one compiled program serves episodes of every length."""
    return np.concatenate([x, np.zeros((length - len(x), *x.shape[1:]), x.dtype)])
