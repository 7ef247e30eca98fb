"""Meta-World: the seed decides the episode, and the protocols are what they say."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.envs.opengl import needs_opengl
from ubp2.config.schema import EnvironmentConfig
from ubp2.envs.base import Env
from ubp2.envs.registry import METAWORLD_TASKS, make

PAPER, BPREF = EnvironmentConfig(), EnvironmentConfig(protocol="bpref")
FEW = ("door-close", "peg-insert-side", "lever-pull")
TASKS = [task if task in FEW else pytest.param(task, marks=pytest.mark.slow) for task in METAWORLD_TASKS]


def rollout(env: Env, seed: int, decisions: int = 15) -> tuple[np.ndarray, np.ndarray]:
    """Observations and rewards of an episode under noise that the seed determines."""
    noise = np.random.default_rng(seed).uniform(-1, 1, (decisions, 4)).astype(np.float32)
    first, steps = env.reset(seed), []
    steps = [env.step(action) for action in noise]
    return np.stack([first, *(step.obs for step in steps)]), np.array([step.true_reward for step in steps])


def equal(left: tuple, right: tuple) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(left, right, strict=True))


@pytest.mark.parametrize("task", TASKS)
def test_an_episode_depends_on_seed_and_actions_alone(task):
    np.random.seed(0)
    env, other = make(f"metaworld/{task}", PAPER), make(f"metaworld/{task}", PAPER)
    fresh = rollout(env, seed=1)
    rollout(env, seed=2, decisions=40)
    np.random.seed(123)
    assert equal(rollout(env, seed=1), fresh), "leftovers of an earlier episode"
    assert equal(rollout(other, seed=1), fresh), "another instance"
    assert not equal(rollout(other, seed=3), fresh)
    assert fresh[0].shape == (16, 39)


@pytest.mark.parametrize("task", TASKS)
def test_the_goal_is_visible_and_stays(task):
    obs, _ = rollout(make(f"metaworld/{task}", PAPER), seed=1, decisions=5)
    assert np.abs(obs[0, 36:]).max() > 0
    np.testing.assert_array_equal(obs[:, 36:], np.broadcast_to(obs[0, 36:], (6, 3)))


@pytest.mark.parametrize("task", FEW)
def test_reset_equals_two_full_resets_of_the_same_pose(task):
    """The settling that our reset leaves out of Meta-World's first pass changes nothing."""
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    env = make(f"metaworld/{task}", EnvironmentConfig(action_repeat=1))
    ours = rollout(env, seed=5)
    theirs = ALL_V3_ENVIRONMENTS[f"{task}-v3"]()
    theirs._partially_observable = False
    del theirs.sawyer_observation_space
    theirs._set_task_called = theirs._freeze_rand_vec = True
    theirs._last_rand_vec = env._env._env._last_rand_vec  # type: ignore[attr-defined]
    obs = [theirs.reset()[0]]
    for action in np.random.default_rng(5).uniform(-1, 1, (15, 4)).astype(np.float32):
        obs.append(theirs.step(action)[0])
    np.testing.assert_array_equal(ours[0], np.array(obs, np.float32))


def test_poses_are_new_at_every_reset():
    env = make("metaworld/door-close", PAPER)
    poses = {tuple(env.reset(seed)[4:7]) for seed in range(5)}
    assert len(poses) == 5


def test_the_global_generator_is_left_alone():
    env = make("metaworld/door-close", PAPER)
    np.random.seed(7)
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    rollout(env, seed=1, decisions=3)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # type: ignore[index]


def test_first_observation_repeats_the_frame():
    obs = make("metaworld/door-close", PAPER).reset(0)
    np.testing.assert_array_equal(obs[:18], obs[18:36])


def test_paper_protocol():
    env = make("metaworld/door-close", PAPER)
    assert env.spec == ("metaworld/door-close", 39, 4, 100, 2, 40, True, (-1.0,) * 4, (1.0,) * 4, 0)
    env.reset(0)
    ends = [env.step(np.zeros(4)) for _ in range(100)]
    assert [step.truncated for step in ends] == [False] * 99 + [True]
    assert not any(step.terminated for step in ends)


def test_repeat_sums_the_reward():
    double, single = (
        make("metaworld/door-close", PAPER),
        make("metaworld/door-close", EnvironmentConfig(action_repeat=1)),
    )
    double.reset(4)
    single.reset(4)
    action = np.array([0.5, -0.2, 0.1, 1.0], np.float32)
    assert single.spec.episode_decisions == 200
    by_hand = single.step(action).true_reward + single.step(action).true_reward
    assert double.step(action).true_reward == by_hand


def test_bpref_protocol():
    env = make("metaworld/door-close", BPREF)
    assert env.spec == ("metaworld/door-close", 39, 4, 500, 1, 80, True, (-1.0,) * 4, (1.0,) * 4, 0)
    obs, _ = rollout(env, seed=0)
    np.testing.assert_array_equal(obs[:, 36:], 0.0)
    visible, _ = rollout(make("metaworld/door-close", EnvironmentConfig(action_repeat=1)), seed=0)
    np.testing.assert_array_equal(obs[:, :36], visible[:, :36])


def test_longer_than_meta_world_allows():
    env = make("metaworld/door-close", EnvironmentConfig(action_repeat=1, episode_decisions=502))
    env.reset(0)
    assert [env.step(np.zeros(4)).truncated for _ in range(502)].index(True) == 501


def test_the_task_list_is_meta_worlds():
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    assert sorted(f"{task}-v3" for task in METAWORLD_TASKS) == sorted(ALL_V3_ENVIRONMENTS)


@needs_opengl
@pytest.mark.parametrize("task", TASKS)
def test_render(task):
    env = make(f"metaworld/{task}", PAPER)
    env.reset(0)
    frame = env.render()
    assert frame.shape == (256, 256, 3) and frame.dtype == np.uint8 and frame.std() > 10
    env.close()


@needs_opengl
def test_cameras():
    env = make("metaworld/door-close", PAPER)
    env.reset(0)
    frame = env.render()
    model = env._env._env.model  # type: ignore[attr-defined]
    assert sorted(env.cameras) == sorted(model.camera(number).name for number in range(model.ncam))
    views = [env.render(camera, 320) for camera in env.cameras]
    assert all(view.shape == (320, 320, 3) and view.std() > 10 for view in views)
    assert all(np.abs(one.astype(int) - other).mean() > 5 for one in views for other in views if one is not other)
    assert env.render(size=1000).shape == (480, 480, 3)  # as large as the model allows
    np.testing.assert_array_equal(env.render(), frame)  # other sizes and cameras leave nothing behind
    env.close()


def test_without_opengl_only_rendering_fails():
    code = (
        "import ctypes.util; ctypes.util.find_library = lambda name: None\n"
        "import numpy as np\n"
        "from ubp2.config.schema import EnvironmentConfig\n"
        "from ubp2.envs.registry import make\n"
        "env = make('metaworld/door-close', EnvironmentConfig()); env.reset(0); env.step(np.zeros(4))\n"
        "try: env.render()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    clean = {name: value for name, value in os.environ.items() if name != "MUJOCO_GL"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=True)
    assert done.stdout.startswith("UserError metaworld/door-close cannot be rendered")
    assert "apt-get install libosmesa6" in done.stdout
