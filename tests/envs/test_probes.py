"""Environments so small that the answer is known: what the whole agent, from replay to planner, must get right.

Each isolates one link: the reward and the value of what is there, discounting over time, the choice of an action.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from tests.envs import probes
from tests.training.helpers import rows
from ubp2 import api
from ubp2.config.files import from_dict
from ubp2.config.schema import Config
from ubp2.models import world_model
from ubp2.trained import restored
from ubp2.training.seeds import take

SMALL: dict[str, Any] = {
    "env": "probe",
    "ceiling": True,
    "steps": 600,
    "environment": {"in_process": True, "episode_decisions": 10},
    "model": {"width": 32, "depth": 1, "dynamics_members": 2, "reward_members": 2, "value_members": 2},
    "planner": {"horizon": 2, "samples": 64, "elites": 8, "policy_samples": 4, "iterations": 3},
    "preferences": {"segment_length": 5, "per_session": 20, "every": 50, "candidates": 100, "batch_size": 64},
    "training": {
        "batch_size": 64,
        "warmup": 100,
        "warmup_updates": 300,
        "learning_rate": 3e-3,
        "discount": 0.8,
        "value_target_rate": 0.1,
        "replay_capacity": 2000,
    },
    "evaluation": {"every": 0, "episodes": 2},
}


def small(**changes: Any) -> Config:
    return from_dict(changes, from_dict(SMALL))


def solve(env: Callable[[], gymnasium.Env], config: Config, folder: Path) -> dict[str, float]:
    result = api.train(config, env=env, out=folder, progress=False)
    assert result.finished
    return result.evaluation


def values(folder: Path, obs: list[float]) -> np.ndarray:
    """What each member thinks an observation is worth, averaged over actions: [E, N]."""
    trained = restored([folder], "policy")
    state = take(trained.state, 0)
    z = world_model.encode(trained.config.model, state.model, state.stats, jnp.array(obs)[:, None])
    found = []
    for action in np.linspace(-0.9, 0.9, 7, dtype=np.float32):
        actions = jnp.full((len(obs), 1), action)
        found.append(world_model.value(trained.config.model, state.model.value, z, actions))
    return np.mean(found, axis=0)


def actions(folder: Path, who: api.ControllerName) -> np.ndarray:
    """What a controller does at some observations, each the first of its episode."""
    controller, found = api.load(folder, who), []
    for obs in np.linspace(-0.9, 0.9, 5):
        controller.reset()
        found.append(controller.act(np.array([obs]))[0])
    return np.array(found)


@pytest.mark.slow
def test_the_value_of_a_constant_reward_is_that_reward(tmp_path: Path) -> None:
    """One decision and the end: a value that looked beyond the end would be 1 / (1 - 0.8) = 5."""
    solve(probes.ConstantReward, small(steps=400), tmp_path / "run")
    np.testing.assert_allclose(values(tmp_path / "run", [-0.7, 0.0, 0.7]), 1.0, atol=0.1)


@pytest.mark.slow
def test_the_value_knows_what_the_observation_means(tmp_path: Path) -> None:
    solve(probes.RewardOfObservation, small(steps=600), tmp_path / "run")
    found = values(tmp_path / "run", [-0.7, 0.7])
    np.testing.assert_allclose(found, [[-1.0, 1.0]] * 2, atol=0.25)
    assert rows(tmp_path / "run", "eval")[-1]["reward/rank_correlation"] > 0.8


@pytest.mark.slow
def test_the_value_is_discounted_once_a_decision(tmp_path: Path) -> None:
    """Reward 1 at the second of two decisions, of which the clock is the observation."""
    solve(probes.DelayedReward, small(steps=600), tmp_path / "run")
    np.testing.assert_allclose(values(tmp_path / "run", [0.0, 0.5]), [[0.8, 1.0]] * 2, atol=0.1)


@pytest.mark.slow
def test_policy_and_planner_find_the_best_action(tmp_path: Path) -> None:
    scores = solve(probes.RewardOfAction, small(steps=700), tmp_path / "run")
    np.testing.assert_allclose(actions(tmp_path / "run", "policy"), 0.3, atol=0.15)
    np.testing.assert_allclose(actions(tmp_path / "run", "planner"), 0.3, atol=0.15)
    assert scores["planner/return"] > -0.3 and scores["policy/return"] > -0.3  # of 10 decisions; at random: -4.2


@pytest.mark.slow
def test_the_best_action_is_found_from_preferences(tmp_path: Path) -> None:
    """Returns of 10 decisions; at random: -4.2, and -17 at the worst action."""
    config = small(ceiling=False, steps=800, preferences={"budget": 200, "strategy": "uniform"})
    scores = solve(probes.RewardOfAction, config, tmp_path / "run")
    assert scores["policy/return"] > -1.2 and scores["planner/return"] > -1.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_best_action_is_found_whatever_the_seed(tmp_path: Path, seed: int) -> None:
    config = small(steps=700, seed=seed)
    solve(probes.RewardOfAction, config, tmp_path / "run")
    np.testing.assert_allclose(actions(tmp_path / "run", "policy"), 0.3, atol=0.15)
    np.testing.assert_allclose(actions(tmp_path / "run", "planner"), 0.3, atol=0.15)
