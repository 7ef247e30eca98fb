"""toy/reach has an optimum that can be written down."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils import seeding

from ubp2.config.schema import EnvironmentConfig
from ubp2.envs import toy
from ubp2.envs.registry import make
from ubp2.envs.toy import DECISIONS, RADIUS, STEP, Reach


def optimal_action(obs: np.ndarray) -> np.ndarray:
    """Return the best action [2] at an observation [4].

    The axes are bounded apart, so the move that brings each of them closest is at no later time regretted.
    """
    return np.clip(obs[2:] / STEP, -1.0, 1.0)


def optimal_return(seed: int) -> float:
    """Return the largest sum of rewards in the episode of `seed`."""
    start, goal = toy._draw(seeding.np_random(seed)[0])
    moved = STEP * np.arange(1, DECISIONS + 1)[:, None]
    left = np.maximum(np.abs(goal - start) - moved, 0.0)  # [T, 2]
    return -float(np.linalg.norm(left, axis=1).sum())


def rollout(seed: int, policy) -> tuple[float, bool]:
    env = make("toy/reach", EnvironmentConfig())
    obs, total, success, over = env.reset(seed), 0.0, False, False
    while not over:
        obs, reward, terminated, truncated, success = env.step(policy(obs))
        total, over = total + reward, terminated or truncated
    return total, success


@pytest.mark.parametrize("seed", range(5))
def test_optimal_action_earns_the_optimal_return(seed):
    total, success = rollout(seed, optimal_action)
    assert success
    assert total == pytest.approx(optimal_return(seed), abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_policy_earns_more(seed):
    random = np.random.default_rng(seed)
    assert rollout(seed, lambda obs: random.uniform(-1, 1, 2))[0] < optimal_return(seed)
    assert rollout(seed, lambda obs: 0.9 * optimal_action(obs))[0] < optimal_return(seed)


def test_optimal_return_by_hand(monkeypatch):
    start, goal = np.array([0.0, 0.0]), np.array([0.25, 0.0])
    monkeypatch.setattr("ubp2.envs.toy._draw", lambda random: (start, goal))
    assert optimal_return(0) == pytest.approx(-(0.15 + 0.05))


def test_start_and_goal_are_apart_and_inside():
    env = Reach()
    for seed in range(200):
        obs, _ = env.reset(seed=seed)
        assert np.linalg.norm(obs[2:]) >= 0.5 - 1e-6
        assert np.abs(obs[:2]).max() <= 0.9 and np.abs(obs[:2] + obs[2:]).max() <= 0.9 + 1e-6


def test_reward_is_minus_the_distance_after_the_move():
    env = Reach()
    obs, _ = env.reset(seed=0)
    after, reward, _, _, info = env.step(np.array([1.0, -0.5]))
    np.testing.assert_allclose(after[:2], obs[:2] + np.array([0.1, -0.05]), atol=1e-6)
    distance = np.linalg.norm(after[2:])
    assert reward == pytest.approx(-distance, abs=1e-6)
    assert info["success"] == (distance <= RADIUS)


def test_walls_hold():
    env = Reach()
    env.reset(seed=0)
    for _ in range(DECISIONS):
        obs, *_ = env.step(np.array([1.0, 1.0]))
    np.testing.assert_array_equal(obs[:2], [1.0, 1.0])


def test_frame_shows_agent_and_goal():
    env = Reach()
    obs, _ = env.reset(seed=1)
    env.step(np.zeros(2))
    frame = env.render()
    assert frame.shape == (256, 256, 3) and frame.dtype == np.uint8
    column, row = np.round((obs[0] + 1.1) / 2.2 * 255), np.round((1.1 - obs[1]) / 2.2 * 255)
    np.testing.assert_array_equal(frame[int(row), int(column)], [226, 110, 92])
    before = frame.copy()
    env.step(np.ones(2))
    assert (env.render() != before).any()
