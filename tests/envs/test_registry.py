"""Ids, and what is said about those that do not exist."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from tests.envs import probes
from ubp2.config.schema import EnvironmentConfig
from ubp2.envs.registry import list_ids, make
from ubp2.errors import UserError

OPTIONS = EnvironmentConfig()


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("tyo/reach", ["unknown environment suite 'tyo'", "Did you mean toy"]),
        ("toy/reahc", ["unknown toy task 'reahc'", "Did you mean reach"]),
        ("metaworld/door-clsoe", ["unknown Meta-World task", "Did you mean door-close"]),
        ("gym/Pendulum-v9", ["unknown Gymnasium id", "Pendulum-v1", "gym/<module>:<id>"]),
        ("gym/no_such_module:X-v0", ["cannot import no_such_module"]),
        ("door-close", ["expected suite/task", "Did you mean metaworld/door-close?"]),
        ("my_arm:Arm-v0", ["expected suite/task", "Did you mean gym/my_arm:Arm-v0?"]),
        ("gym/no_arm:Arm-v0", ["cannot import no_arm", "start ubp2 in the folder that it lies in"]),
        ("gym/Pendulum-v2", ["unknown Gymnasium id", "Did you mean Pendulum-v1"]),
        ("", ["expected suite/task"]),
    ],
)
def test_unknown_ids(env_id, words):
    with pytest.raises(UserError) as caught:
        make(env_id, OPTIONS)
    for word in words:
        assert word in str(caught.value)


def test_missing_package_names_the_extra(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dm_control" else find(name))
    with pytest.raises(UserError, match=r"pip install 'ubp2\[dmc\]'"):
        make("dmc/walker-walk", OPTIONS)
    assert list_ids()["dmc"] == []


def test_a_package_that_cannot_be_imported_names_the_backend(monkeypatch):
    def broken(name):
        raise RuntimeError("invalid value for environment variable MUJOCO_GL: foo")

    monkeypatch.setattr(importlib, "import_module", broken)
    monkeypatch.setenv("MUJOCO_GL", "foo")
    with pytest.raises(UserError, match=r"metaworld cannot be imported .*MUJOCO_GL, which is foo.*MUJOCO_GL=disable"):
        make("metaworld/door-close", OPTIONS)


def test_listing():
    ids = list_ids()
    suites = ["toy", "metaworld", "dmc", "gym"]
    assert list(ids) == [*suites, *(f"{suite}-visual" for suite in suites)]
    assert len(ids["metaworld"]) == len(ids["metaworld-visual"]) == 50
    assert all(name.startswith(f"{suite}/") for suite, names in ids.items() for name in names)


def test_gym_ids_exist():
    import gymnasium

    assert all(name.removeprefix("gym/") in gymnasium.registry for name in list_ids()["gym"])


def test_importing_the_registry_loads_no_simulator():
    code = "import sys, ubp2.envs.registry; print({'mujoco', 'gymnasium', 'jax'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_gym_takes_the_registered_clock():
    env = make("gym/Pendulum-v1", OPTIONS)
    assert (env.spec.episode_decisions, env.spec.action_repeat, env.spec.has_success) == (200, 1, False)
    assert make("gym/Pendulum-v1", EnvironmentConfig(action_repeat=4)).spec.episode_decisions == 50
    longer = make("gym/Pendulum-v1", EnvironmentConfig(episode_decisions=300))
    longer.reset(0)
    steps = [longer.step(np.zeros(1)).truncated for _ in range(300)]
    assert steps.index(True) == 299


def test_gym_discrete_is_refused():
    with pytest.raises(UserError, match="continuous Box action space"):
        make("gym/CartPole-v1", OPTIONS)


def test_gym_takes_an_environment_without_an_argument_for_rendering():
    """An id of somebody's own may be a class that takes nothing."""
    gymnasium.register("Plain-v0", probes.RewardOfAction, max_episode_steps=7)  # type: ignore[arg-type]
    try:
        env = make("gym/Plain-v0", EnvironmentConfig())
        assert env.spec.episode_decisions == 7 and env.reset(0).shape == (1,)
    finally:
        del gymnasium.registry["Plain-v0"]
