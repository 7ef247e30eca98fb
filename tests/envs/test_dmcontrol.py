"""The DeepMind Control Suite through the adapter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.envs.opengl import needs_opengl
from ubp2.config.schema import EnvironmentConfig
from ubp2.envs.base import Env
from ubp2.envs.registry import list_ids, make
from ubp2.errors import UserError

pytest.importorskip("dm_control")

OPTIONS = EnvironmentConfig()
FEW = ("dmc/walker-walk", "dmc/reacher-easy", "dmc/point_mass-hard")
IDS = [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in list_ids()["dmc"]]


def rollout(env: Env, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).uniform(-1, 1, (10, env.spec.action_dim))
    return np.stack([env.reset(seed), *(env.step(action).obs for action in noise)])


@pytest.mark.parametrize("env_id", IDS)
def test_an_episode_depends_on_seed_and_actions_alone(env_id):
    try:
        env, other = make(env_id, OPTIONS), make(env_id, OPTIONS)
    except UserError as error:
        assert "does not work with numpy" in str(error)
        pytest.skip(str(error))
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    fresh = rollout(env, seed=1)
    rollout(env, seed=2)
    np.testing.assert_array_equal(rollout(env, seed=1), fresh)
    np.testing.assert_array_equal(rollout(other, seed=1), fresh)
    assert not np.array_equal(rollout(env, seed=3), fresh)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # type: ignore[index]


def test_clock_and_sizes():
    env = make("dmc/walker-walk", OPTIONS)
    assert env.spec == ("dmc/walker-walk", 24, 6, 500, 2, 20, False, (-1.0,) * 6, (1.0,) * 6, 0)
    assert make("dmc/walker-walk", EnvironmentConfig(action_repeat=1)).spec.episode_decisions == 1000


def test_the_suites_own_clock_does_not_end_the_episode():
    env = make("dmc/cartpole-balance", EnvironmentConfig(action_repeat=1, episode_decisions=1002))
    env.reset(0)
    steps = [env.step(np.zeros(1)) for _ in range(1002)]
    assert [step.truncated for step in steps].index(True) == 1001
    assert not any(step.terminated for step in steps)


def test_unknown_task():
    with pytest.raises(UserError, match="Did you mean walker-walk"):
        make("dmc/walker-wlak", OPTIONS)


def test_actions_without_bounds_are_refused():
    """The suite calls them -1e10 and 1e10, to which nobody wants an action to be scaled."""
    with pytest.raises(UserError, match=r"the actions of dmc/lqr-lqr_2_1 have no bounds"):
        make("dmc/lqr-lqr_2_1", OPTIONS)
    assert not any("lqr" in name for name in list_ids()["dmc"])


@needs_opengl
def test_render():
    env = make("dmc/walker-walk", OPTIONS)
    env.reset(0)
    frame = env.render()
    assert frame.shape == (256, 256, 3) and frame.dtype == np.uint8 and frame.std() > 10
    assert env.cameras == ("side", "back")
    np.testing.assert_array_equal(env.render("side"), frame)
    back = env.render("back", 320)
    assert back.shape == (320, 320, 3) and back.std() > 10 and (env.render("back") != frame).any()
