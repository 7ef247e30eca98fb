"""By what trials are compared: success where the environment tells it, else the true reward, in evaluation alone.

An environment for people to judge may have neither. Then no number says which settings are better, and a scripted
teacher has nothing to compare either: this is said before anything is trained.
"""

from __future__ import annotations

import numpy as np

from ubp2.config.schema import EnvironmentConfig
from ubp2.envs.base import Env
from ubp2.envs.registry import make
from ubp2.errors import UserError

__all__ = ["judge"]

_EPISODES = 3
_DECISIONS = 1000  # at most, in each episode


def judge(env_id: str, options: EnvironmentConfig, wanted: str) -> tuple[str, int]:
    """The metric of an environment, success or return, and the decisions of its episodes."""
    env = make(env_id, EnvironmentConfig(**{**vars(options), "in_process": True}))
    try:
        return _metric(env, env_id, wanted), env.spec.episode_decisions
    finally:
        env.close()


def _metric(env: Env, env_id: str, wanted: str) -> str:
    if wanted == "success" and not env.spec.has_success:
        raise UserError(
            f"--score success: {env_id} tells no success; put 'success' into the info that its step returns, "
            f"or use --score return"
        )
    if wanted != "auto":
        return wanted
    if env.spec.has_success:
        return "success"
    rewards = _random_rewards(env)
    if len(rewards) == 1:
        raise UserError(
            f"nothing says which trial is better: {env_id} tells no success, and its reward was {rewards.pop():g} at "
            f"every decision of {_EPISODES} random episodes; put 'success' into the info that its step returns, or "
            f"return a reward (the agent never sees it: it is for evaluation and scripted teachers); "
            f"if the reward is merely rare, say --score return"
        )
    return "return"


def _random_rewards(env: Env) -> set[float]:
    """The rewards of some random episodes."""
    rng, seen = np.random.default_rng(0), set()
    for episode in range(_EPISODES):
        env.reset(episode)
        for _ in range(min(env.spec.episode_decisions, _DECISIONS)):
            outcome = env.step(rng.uniform(-1.0, 1.0, env.spec.action_dim).astype(np.float32))
            seen.add(float(outcome.true_reward))
            if outcome.terminated or outcome.truncated:
                break
    return seen
