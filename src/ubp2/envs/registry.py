"""Environment ids: ``suite/task`` to an `Env`. A suite is imported when one of its tasks is asked for."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import os
import platform
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ubp2.config.schema import EnvironmentConfig, VisualConfig
from ubp2.envs.base import Env
from ubp2.envs.visual import SUFFIX, Watched, base_id, is_visual, visual_id
from ubp2.errors import UserError, did_you_mean, unknown_name

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

__all__ = ["GYM_IDS", "INSTRUCTIONS", "METAWORLD_TASKS", "list_ids", "make", "missing"]

# Written out, so that listing them does not load a simulator; a test compares it with the installed Meta-World.
# fmt: off
METAWORLD_TASKS = (
    "assembly", "basketball", "bin-picking", "box-close", "button-press", "button-press-topdown",
    "button-press-topdown-wall", "button-press-wall", "coffee-button", "coffee-pull", "coffee-push", "dial-turn",
    "disassemble", "door-close", "door-lock", "door-open", "door-unlock", "drawer-close", "drawer-open",
    "faucet-close", "faucet-open", "hammer", "hand-insert", "handle-press", "handle-press-side", "handle-pull",
    "handle-pull-side", "lever-pull", "peg-insert-side", "peg-unplug-side", "pick-out-of-hole", "pick-place",
    "pick-place-wall", "plate-slide", "plate-slide-back", "plate-slide-back-side", "plate-slide-side", "push",
    "push-back", "push-wall", "reach", "reach-wall", "shelf-place", "soccer", "stick-pull", "stick-push", "sweep",
    "sweep-into", "window-close", "window-open",
)
# fmt: on

# Those of Gymnasium's own environments that have vector observations and continuous actions; others may be used too.
GYM_IDS = (
    "Ant-v5",
    "BipedalWalker-v3",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Humanoid-v5",
    "HumanoidStandup-v5",
    "InvertedDoublePendulum-v5",
    "InvertedPendulum-v5",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Pusher-v5",
    "Reacher-v5",
    "Swimmer-v5",
    "Walker2d-v5",
)

INSTRUCTIONS = {"toy/reach": "The red point should get into the green ring. Which clip comes closer to that?"}
"""What people are asked who compare clips, where the name of a task does not tell what to look for."""


def make(env_id: str, options: EnvironmentConfig, visual: VisualConfig | None = None) -> Env:
    """Build the environment of an id: toy/reach, metaworld/door-close, dmc/walker-walk, gym/Pendulum-v1.

    The observations of dmc-visual/walker-walk are frames, as `visual` says.
    """
    if is_visual(env_id):
        return Watched(make(base_id(env_id), options), env_id, visual or VisualConfig())
    suite, slash, task = env_id.partition("/")
    if not slash:
        known = [name for names in list_ids().values() for name in names if not is_visual(name)]
        nearest = [name for name in known if name.endswith(f"/{env_id}")]
        if ":" in env_id:  # as Gymnasium names what a module of somebody's own registers
            nearest = [f"gym/{env_id}"]
        hint = f" Did you mean {' or '.join(nearest)}?" if nearest else did_you_mean(env_id, known)
        raise UserError(f"'{env_id}' is no environment id, expected suite/task such as toy/reach.{hint}")
    if suite not in _SUITES:
        raise unknown_name("environment suite", suite, [*_SUITES, *(suite + SUFFIX for suite in _SUITES)])
    return _SUITES[suite](task, options)


def list_ids(dmc: bool = True) -> dict[str, list[str]]:
    """Ids of every suite; none of dmc where dm-control is not installed. gym/ takes any other registered id too.

    dmc: whether to look into dm-control as well, the one suite that has to be imported, for a second or two.
    """
    control: list[str] = []
    if dmc and importlib.util.find_spec("dm_control"):
        control = [f"dmc/{task}" for task in importlib.import_module("ubp2.envs.dmcontrol").task_ids()]
    ids = {
        "toy": ["toy/reach"],
        "metaworld": [f"metaworld/{task}" for task in METAWORLD_TASKS],
        "dmc": control,
        "gym": [f"gym/{name}" for name in GYM_IDS],
    }
    return ids | {f"{suite}{SUFFIX}": [visual_id(name) for name in names] for suite, names in ids.items()}


def _make_toy(task: str, options: EnvironmentConfig) -> Env:
    from ubp2.envs import toy
    from ubp2.envs.adapter import Adapter, clock

    if task != "reach":
        raise unknown_name("toy task", task, ["reach"])
    repeat, decisions = clock(options, repeat=1, simulator_steps=toy.DECISIONS)
    return Adapter(toy.Reach(), "toy/reach", action_repeat=repeat, episode_decisions=decisions, has_success=True)


def _make_metaworld(task: str, options: EnvironmentConfig) -> Env:
    if task not in METAWORLD_TASKS:  # before the import, which takes a second
        raise unknown_name("Meta-World task", task, METAWORLD_TASKS)
    return _suite("metaworld", "metaworld", "pip install 'metaworld>=3.1.1'").load(task, options)


def _make_dmc(task: str, options: EnvironmentConfig) -> Env:
    return _suite("dmcontrol", "dm_control", _install_dmc()).load(task, options)


def _install_dmc() -> str:
    """How to install dm-control, which the extra leaves out where it cannot be had (pyproject.toml says why)."""
    if sys.version_info >= (3, 13):
        have = platform.python_version()
        return f"pip install 'ubp2[dmc]' in an environment with Python 3.12 (dm-control cannot be had for {have})"
    return "pip install 'ubp2[dmc]'"


def _make_gym(name: str, options: EnvironmentConfig) -> Env:
    """Build a registered Gymnasium id without its wrappers for time limit and checks: the adapter does both."""
    import gymnasium
    from gymnasium.envs.registration import load_env_creator

    from ubp2.envs.adapter import Adapter, clock
    from ubp2.envs.gl import choose_backend

    choose_backend()
    spec = _gym_spec(name)
    repeat, decisions = clock(options, repeat=1, simulator_steps=spec.max_episode_steps)
    bare = dataclasses.replace(spec, max_episode_steps=None, order_enforce=False, disable_env_checker=True)
    try:
        entry = spec.entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
        env = gymnasium.make(bare, **_rendering(creator))
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise UserError(f"gym/{name} needs a package that is not installed: {error}") from error
    return Adapter(env, f"gym/{name}", action_repeat=repeat, episode_decisions=decisions)


def _rendering(creator: Any) -> dict[str, Any]:
    """The argument that makes it render; an environment of somebody's own need not have what Gymnasium's have."""
    parameters = inspect.signature(creator).parameters
    takes = "render_mode" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    modes = getattr(creator, "metadata", {}).get("render_modes", [])
    return {"render_mode": "rgb_array"} if takes and "rgb_array" in modes else {}


def _gym_spec(name: str) -> EnvSpec:
    """Find a registered id; ``module:Name-v0`` imports the module that registers it first."""
    import gymnasium

    module, _, registered = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise UserError(
                f"gym/{name}: cannot import {module}: {error}; install it, or start ubp2 in the folder that it lies in"
            ) from error
    spec = gymnasium.registry.get(registered)
    if spec is None:
        hint = "" if module else "; if another package registers it, write gym/<module>:<id>"
        # Gymnasium's own functions among the entries only say that a version has gone.
        gone = [name for name, each in gymnasium.registry.items() if _module(each.entry_point).startswith("gymnasium.")]
        known = gymnasium.registry.keys() - gone
        raise UserError(f"{unknown_name('Gymnasium id', registered, known)}{hint}")
    return spec


def _module(entry: Any) -> str:
    return getattr(entry, "__module__", "") if callable(entry) else ""


def missing() -> dict[str, str]:
    """Suites of which `list_ids` has no task, each with what to install."""
    if importlib.util.find_spec("dm_control"):
        return {}
    return dict.fromkeys(("dmc", f"dmc{SUFFIX}"), _absent("dm_control", _install_dmc()))


def _absent(package: str, install: str) -> str:
    return f"the package {package} is not installed; run: {install}"


def _suite(module: str, package: str, install: str) -> Any:
    """Import the module of a suite; a missing package becomes the command that installs it."""
    if importlib.util.find_spec(package) is None:
        raise UserError(_absent(package, install))
    try:
        return importlib.import_module(f"ubp2.envs.{module}")
    except Exception as error:  # MuJoCo loads OpenGL when it is imported, and each binding fails in its own way
        raise UserError(
            f"the package {package} cannot be imported ({type(error).__name__}: {error}); if that is about OpenGL, "
            f"change MUJOCO_GL, which is {os.environ.get('MUJOCO_GL', 'unset')}: `ubp2 doctor` says what works here, "
            f"and MUJOCO_GL=disable trains without clips"
        ) from error


_SUITES: dict[str, Callable[[str, EnvironmentConfig], Env]] = {
    "toy": _make_toy,
    "metaworld": _make_metaworld,
    "dmc": _make_dmc,
    "gym": _make_gym,
}
