"""Environments in this process, for debugging, and what they share with those in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import gymnasium
import numpy as np

from ubp2.config.schema import EnvironmentConfig, VisualConfig
from ubp2.envs.base import Env, EnvSpec, Faulty, Lost
from ubp2.errors import UserError
from ubp2.types import Step

__all__ = ["EnvOrder", "Factory", "Inline", "check_actions", "common_spec", "gathered", "unanswered"]

Factory = Callable[[], gymnasium.Env]
"""A user's own function that builds a Gymnasium environment."""


class EnvOrder(NamedTuple):
    """Which environment to build, and how."""

    env: str | Factory
    """An id, or a function of the user's that builds one."""
    options: EnvironmentConfig
    """How it is presented."""
    visual: VisualConfig | None = None
    """How frames look; a function's environment is seen through frames if it is given, an id if it says so."""


class Inline:
    """W environments in this process, with the interface of `Workers`."""

    def __init__(self, orders: Sequence[EnvOrder]) -> None:
        from ubp2.envs.adapter import adapt
        from ubp2.envs.registry import make

        self._envs: list[Env] = [
            make(env, options, visual) if isinstance(env, str) else adapt(env, options, visual=visual)
            for env, options, visual in orders
        ]
        self._actions: np.ndarray | None = None
        self._stepping: Sequence[int] = ()
        self._resets: dict[int, int] = {}
        self.size = len(orders)
        self.specs: Sequence[EnvSpec] = [env.spec for env in self._envs]
        self.spec = common_spec(self.specs)

    def reset(self, index: int, seed: int) -> np.ndarray:
        with _blame(index):
            return self._envs[index].reset(seed)

    def send_resets(self, seeds: Mapping[int, int]) -> None:
        self._resets = dict(seeds)

    def receive_resets(self) -> dict[int, np.ndarray]:
        seeds, self._resets = self._resets, {}
        begun, faults = dict[int, np.ndarray](), list[Faulty]()
        for index, seed in seeds.items():
            try:
                begun[index] = self.reset(index, seed)
            except Faulty as error:
                faults.append(error)
        if faults:
            raise gathered(faults, observations=begun)
        return begun

    def send(self, actions: np.ndarray, which: Sequence[int] | None = None) -> None:
        self._actions = check_actions(actions, self.size, self.spec)
        self._stepping = range(self.size) if which is None else which

    def receive(self) -> Step:
        if self._actions is None:
            raise RuntimeError("receive() without send()")
        actions, self._actions = self._actions, None
        obs, reward = np.zeros((self.size, self.spec.obs_dim), self.spec.obs_type), np.zeros(self.size)
        flags = np.zeros((self.size, 3), bool)
        faults: list[Faulty] = []
        for i in self._stepping:
            try:
                with _blame(i):
                    obs[i], reward[i], *flags[i] = self._envs[i].step(actions[i])
            except Faulty as error:
                faults.append(error)
        step = Step(obs, reward, flags[:, 0], flags[:, 1], flags[:, 2])
        if faults:
            raise gathered(faults, step=step)
        return step

    def render(self, index: int) -> np.ndarray:
        with _blame(index):
            return self._envs[index].render()

    def revive(self, lost: Lost) -> None:
        raise lost  # an environment of this process dies with it

    def heed(self, stopping: Callable[[], bool]) -> None:
        """Nobody is waited for: a step is a call."""

    def close(self) -> None:
        for env in self._envs:
            env.close()


def common_spec(specs: Sequence[EnvSpec]) -> EnvSpec:
    """The spec of the first; the sizes of all others must be its."""
    first = specs[0]
    sizes = ("obs_dim", "action_dim", "episode_decisions", "pixels")
    for other in specs[1:]:
        for name in sizes:
            if getattr(other, name) != getattr(first, name):
                raise UserError(
                    f"environments of one program need equal sizes: {first.id} has {name} {getattr(first, name)}, "
                    f"{other.id} has {getattr(other, name)}; train them in programs of their own"
                )
    return first


def gathered(
    faults: Sequence[Faulty],
    lost: Lost | None = None,
    step: Step | None = None,
    observations: dict[int, np.ndarray] | None = None,
) -> Faulty:
    """One error of several environments."""
    first, *others = faults
    first.others, first.lost, first.step, first.observations = others, lost, step, observations or {}
    return first


def unanswered(error: Lost | Faulty) -> list[int]:
    """Environments that gave no answer."""
    if isinstance(error, Lost):
        return error.indices
    return [each.index for each in error.all] + (error.lost.indices if error.lost else [])


@contextmanager
def _blame(index: int) -> Iterator[None]:
    """Say which environment of this process a mistake is of."""
    try:
        yield
    except UserError as error:
        raise Faulty(str(error), index) from error


def check_actions(actions: np.ndarray, size: int, spec: EnvSpec) -> np.ndarray:
    """Actions [W, A] as float32."""
    actions = np.array(actions, np.float32)
    if actions.shape != (size, spec.action_dim):
        raise ValueError(f"expected actions of shape {(size, spec.action_dim)}, got {actions.shape}")
    return actions
