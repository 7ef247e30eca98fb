"""Compiled programs that runs of one process share: a second run, an evaluation or a loaded policy compiles nothing.

Programs depend on the config alone, and not on all of it; the random keys of the seeds are their arguments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import jax

from ubp2.agents.base import Agent
from ubp2.config import files as config_files
from ubp2.config import own
from ubp2.config.schema import Config
from ubp2.envs.base import EnvSpec
from ubp2.system import require_32_bits
from ubp2.training.programs import Programs, make_programs, roots

__all__ = ["Kept", "shared_programs"]

MOST = 8  # configurations


class Kept:
    """The programs of the last configurations that were asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: dict[str, Programs] = {}

    def get(self, key: str, make: Callable[[], Programs]) -> Programs:
        with self._lock:
            self._programs[key] = found = self._programs.pop(key, None) or make()
            while len(self._programs) > MOST:
                del self._programs[next(iter(self._programs))]
        return found


_KEPT = Kept()


def shared_programs(config: Config, agent: Agent, spec: EnvSpec, seeds: Sequence[int]) -> Programs:
    """`make_programs` for an agent as the registry makes it, with what an earlier run of this process has compiled.

    Programs of an agent or a query strategy of somebody's own are made anew: the code behind them may have changed.
    """
    require_32_bits()
    values = dict(config_files.leaves(config))
    names = {setting: values[setting] for setting in own.SETTINGS}
    if any(own.is_named(name) or name in config_files.FURTHER.get(setting, ()) for setting, name in names.items()):
        return make_programs(config, agent, spec, seeds)
    key = repr((traced(config), spec, len(seeds), sorted(jax.config.values.items())))
    found, keys = _KEPT.get(key, lambda: make_programs(config, agent, spec, seeds)), roots(seeds)
    fresh = {program: program.bind(*(program.bound and (keys,))) for program in found}
    return Programs(*(fresh[program] for program in found))


def traced(config: Config) -> Config:
    """The config without the settings on which no program depends."""
    plain = Config()
    return replace(
        config,
        seed=plain.seed,
        steps=plain.steps,
        teacher=plain.teacher,
        environment=plain.environment,  # its sizes are in the spec
        checkpoint=plain.checkpoint,
        evaluation=replace(config.evaluation, every=plain.evaluation.every, episodes=plain.evaluation.episodes),
    )
