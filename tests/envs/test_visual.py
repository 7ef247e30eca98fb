"""Environments seen through their frames: what workers hand over, and what is said where there is nothing to see."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.envs import probes
from tests.envs.opengl import needs_opengl
from ubp2.config.schema import EnvironmentConfig, VisualConfig
from ubp2.envs.adapter import adapt
from ubp2.envs.base import EnvSpec
from ubp2.envs.registry import make
from ubp2.envs.visual import base_id, is_visual, squared, visual_id
from ubp2.envs.workers import make_vector
from ubp2.errors import UserError

OPTIONS, INLINE = EnvironmentConfig(), EnvironmentConfig(in_process=True)
SMALL = VisualConfig(pixels=28)


def test_ids() -> None:
    assert is_visual("dmc-visual/walker-walk") and not is_visual("dmc/walker-walk")
    assert not is_visual("gym/my-visual")  # the suite says it, not the task
    assert base_id("gym-visual/pkg:Arm-visual-v0") == "gym/pkg:Arm-visual-v0"
    assert visual_id("toy/reach") == "toy-visual/reach"


@pytest.mark.parametrize("options", [OPTIONS, INLINE])
def test_observations_are_the_frames_of_the_environment(options: EnvironmentConfig) -> None:
    envs, plain = make_vector("toy-visual/reach", options, 2, SMALL), make("toy/reach", OPTIONS)
    try:
        assert envs.spec == plain.spec._replace(id="toy-visual/reach", obs_dim=28 * 28 * 3, pixels=28)
        assert EnvSpec.from_dict(envs.spec._asdict()) == envs.spec
        envs.send_resets({0: 5, 1: 6})
        first = envs.receive_resets()
        plain.reset(5)
        np.testing.assert_array_equal(first[0].reshape(28, 28, 3), plain.render(None, 28))
        actions = np.random.default_rng(0).uniform(-1, 1, (4, 2, 2)).astype(np.float32)
        for action in actions:
            envs.send(action)
            step, outcome = envs.receive(), plain.step(action[0])
            assert step.obs.dtype == np.uint8 and step.obs.shape == (2, 28 * 28 * 3)
            np.testing.assert_array_equal(step.obs[0].reshape(28, 28, 3), plain.render(None, 28))
            assert step.true_reward[0] == outcome.true_reward
        assert not np.array_equal(step.obs[0], first[0])
        assert envs.render(0).shape[-1] == 3
    finally:
        envs.close()


def test_an_episode_that_is_over_stands_still() -> None:
    env = make("toy-visual/reach", EnvironmentConfig(episode_decisions=2), SMALL)
    env.reset(0)
    env.step(np.ones(2, np.float32))
    last = env.step(np.ones(2, np.float32))
    again = env.step(-np.ones(2, np.float32))
    assert last.truncated and again.truncated and again.true_reward == 0.0
    np.testing.assert_array_equal(again.obs, last.obs)
    assert env.reset(1).tobytes() != last.obs.tobytes()


def test_frames_of_another_shape_are_made_square() -> None:
    frame = np.zeros((40, 60, 3), np.uint8)
    frame[:, 30:] = 200
    small = squared(frame, 20)
    assert small.shape == (20, 20, 3) and small[:, :8].max() == 0 and small[:, 12:].min() == 200
    assert squared(small, 20) is small


def test_a_users_own_environment() -> None:
    class Lamp(probes.BoundedAction):
        def render(self):  # type: ignore[override]
            return np.full((30, 30, 3), 7, np.uint8)

    env = adapt(Lamp, OPTIONS, "mine", SMALL)
    assert env.spec.pixels == 28 and (env.reset(0) == 7).all()

    class Dark(probes.BoundedAction):
        def render(self):  # type: ignore[override]
            return None

    with pytest.raises(UserError, match=r"mine is seen through its frames.*render_mode='rgb_array'.*without -visual"):
        adapt(Dark, OPTIONS, "mine", SMALL)


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match=r"visual.pixels is the side of a frame.*got 0"):
        make("toy-visual/reach", OPTIONS, VisualConfig(pixels=0))
    with pytest.raises(UserError, match="toy-visual/reach has one view and no cameras to choose from"):
        make("toy-visual/reach", OPTIONS, VisualConfig(camera="left"))
    with pytest.raises(UserError, match="unknown toy task 'reahc'"):
        make("toy-visual/reahc", OPTIONS)
    with pytest.raises(UserError, match=r"unknown environment suite 'dcm'. Did you mean dmc\?.*dmc-visual"):
        make("dcm-visual/walker-walk", OPTIONS)


def test_without_opengl_it_is_told_before_anything_begins() -> None:
    """In a process of its own, because the backend is chosen when mujoco loads."""
    code = "import ubp2.envs.registry as r, ubp2; r.make('metaworld-visual/reach', ubp2.Config().environment)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"MUJOCO_GL": "disable"}
    )
    (told,) = [line for line in done.stderr.splitlines() if "UserError: metaworld-visual" in line]
    for word in ("metaworld-visual/reach is seen", "libosmesa6", "From its own observations: metaworld/reach"):
        assert word in told


@needs_opengl
@pytest.mark.parametrize("env_id", ["metaworld-visual/door-close", "dmc-visual/walker-walk"])
def test_simulators(env_id: str) -> None:
    """The same seed and actions give the same frames, also after another episode; cameras differ."""
    if env_id.startswith("dmc"):
        pytest.importorskip("dm_control")
    env = make(env_id, OPTIONS, VisualConfig(pixels=56))
    actions = np.random.default_rng(0).uniform(-1, 1, (5, env.spec.action_dim)).astype(np.float32)

    def play(seed: int) -> np.ndarray:
        return np.stack([env.reset(seed), *(env.step(action).obs for action in actions)])

    first, _, again = play(3), play(4), play(3)
    np.testing.assert_array_equal(first, again)
    assert (first[0] != first[-1]).any() and first.std() > 10
    other = make(env_id, OPTIONS, VisualConfig(pixels=56, camera=env.cameras[1]))
    assert (other.reset(3) != first[0]).mean() > 0.1
    for each in (env, other):
        each.close()
