"""Names of the run folders of several configurations that train together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.storage.runs import Run

__all__ = ["Configs", "by_name", "common_folder"]

Configs = Config | Sequence[Config] | Mapping[str, Config]
"""One configuration, several, or several by the names of their folders."""


def by_name(config: Configs, seeds: int) -> dict[str, Config]:
    """Configurations by the names of their run folders; "" for a single one."""
    if isinstance(config, Config):
        if seeds == 1:
            return {"": config}
        return {f"s{own.seed}": own for own in _seeded(config, seeds)}
    if isinstance(config, Mapping):
        named = {str(name): each for name, each in config.items()}
    elif isinstance(config, Sequence) and not isinstance(config, str):
        named = _named(list(config), seeds)
    else:
        raise UserError(
            f"expected a configuration such as ubp2.preset() returns, or several of them, got {type(config).__name__}"
        )
    for name, each in named.items():
        if not isinstance(each, Config):
            raise UserError(f"expected configurations, got {type(each).__name__} for {name}; ubp2.preset() makes one")
    if not named:
        raise UserError("expected at least one configuration, got none")
    if isinstance(config, Mapping) and seeds > 1:
        return {f"{name}/s{own.seed}": own for name, each in named.items() for own in _seeded(each, seeds)}
    return named


def _seeded(config: Config, seeds: int) -> list[Config]:
    return [dataclasses.replace(config, seed=seed) for seed in range(config.seed, config.seed + seeds)]


def _named(configs: Sequence[Config], seeds: int) -> dict[str, Config]:
    """Names of task, agent and seed; configurations that share them are numbered."""
    named: dict[str, Config] = {}
    for config in configs:
        if not isinstance(config, Config):
            raise UserError(f"expected configurations, got {type(config).__name__}; ubp2.preset() makes one")
        agent = config.agent.replace(":", "-") + (f"-{config.ablation}" if config.ablation else "")
        for own in _seeded(config, seeds):
            task = own.env.replace("/", "-").replace(":", "-")
            names = (f"{task}/{agent}{number}/s{own.seed}" for number in ("", *(f"-{n}" for n in range(2, 10**6))))
            named[next(name for name in names if name not in named)] = own
    return named


def common_folder(runs: Sequence[Run], names: Mapping[str, Config]) -> Path:
    """The folder of a population, from the first of its runs."""
    return runs[0].folder.parents[len(Path(next(iter(names))).parts) - 1]
