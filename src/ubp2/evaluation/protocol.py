"""What runs must share to stand in one figure, and what tells the methods in it apart.

The protocol is what the agent is up against: the task as it is presented, who answers and how often, and how it is
measured. Everything else in a configuration is the method.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ubp2.config.files import PLACE, leaves
from ubp2.config.schema import Config, TeacherConfig
from ubp2.errors import UserError, unknown_name

__all__ = [
    "SETTINGS",
    "Bound",
    "check",
    "check_vary",
    "differences",
    "method_names",
    "protocol_of",
    "same_method",
    "shown",
]

_TEACHER = tuple(f"teacher.{field.name}" for field in dataclasses.fields(TeacherConfig) if field.name not in PLACE)
SETTINGS = (
    "ceiling",
    "environment.protocol",
    "environment.action_repeat",
    "environment.episode_decisions",
    "custom_environment",
    "preferences.budget",
    "preferences.imported",
    *_TEACHER,
    "custom_teacher",
    "evaluation.seed",
    "evaluation.episodes",
)
# These do not depend on the task, so that an average over tasks needs them alike; the others are compared on each task.
_EVERYWHERE = ("metric", "environment.protocol", *_TEACHER, "custom_teacher")

DERIVED = "derived"  # stands for a value that another setting gives, such as a horizon of training that is the plans'

# How long, where and how often: neither protocol nor method.
_NEITHER = {"env", "agent", "steps", "seed", "environment.in_process", "environment.patience"}
_NEITHER |= {f"evaluation.{name}" for name in ("every", "controllers", "workers", "video")}
_NEITHER |= {f"teacher.{name}" for name in PLACE}
_SWITCHES = ("optimism.reward", "optimism.dynamics", "optimism.value")


class Bound(NamedTuple):
    """A run or an imported series, and the protocol that it is bound to; a setting that is unknown is left out."""

    task: str
    where: str
    protocol: Mapping[str, Any]


def protocol_of(config: Config, info: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """The protocol of a run. One that learns from the true reward asks nobody; Meta-World alone has two protocols."""
    own = dict(leaves(config)) | {name: bool(info.get(name)) for name in ("custom_environment", "custom_teacher")}
    asks = not config.ceiling
    kept = {
        name: own[name]
        for name in SETTINGS
        if (asks or not name.startswith(("preferences.", "teacher.", "custom_teacher")))
        and (name != "environment.protocol" or config.env.startswith("metaworld/"))
    }
    return kept | {"metric": metric}


def check_vary(vary: Iterable[str]) -> None:
    """Refuse to let something vary that is no setting of the protocol."""
    for name in vary:
        if name not in SETTINGS:
            raise unknown_name("setting of the protocol", name, SETTINGS)


def check(bound: Sequence[Bound], vary: Collection[str] = ()) -> None:
    """Refuse what was made under different protocols, with each difference named and one run of each side."""
    tasks: dict[str, list[Bound]] = defaultdict(list)
    for one in bound:
        tasks[one.task].append(one)
    found: dict[str, str] = {}
    for task, own in tasks.items():
        for name in ("metric", *SETTINGS):
            _note(found, name, own, f" on {task}")
    for name in _EVERYWHERE:
        _note(found, name, bound, "")
    found = {name: sentence for name, sentence in found.items() if name not in vary}
    if not found:
        return
    allowed = [name for name in found if name in SETTINGS]
    advice = "Report them apart"
    if len(allowed) == len(found):
        advice += f", or allow it with --vary {' '.join(allowed)}"
    raise UserError(f"these were made under different protocols: {'; '.join(found.values())}. {advice}")


def _note(found: dict[str, str], name: str, bound: Sequence[Bound], where: str) -> None:
    """Add the first difference in one setting, unless there is one already."""
    known = [one for one in bound if name in one.protocol]
    other = next((one for one in known if one.protocol[name] != known[0].protocol[name]), None)
    if other is not None and name not in found:
        first = known[0]
        found[name] = (
            f"{name} is {shown(first.protocol[name])} in {first.where} and {shown(other.protocol[name])} "
            f"in {other.where}{where}"
        )


def method_settings(config: Config) -> dict[str, Any]:
    """What makes the method: every setting that is neither protocol nor bookkeeping; derived values are called so.

    The four switches of an ablation are told as one word, as the paper does.
    """
    own = {
        name: value
        for name, value in leaves(config)
        if name not in _NEITHER and name not in SETTINGS and not name.startswith("checkpoint.")
    }
    derived = {
        "training.horizon": config.planner.horizon,
        "training.warmup_updates": config.training.warmup,
        "training.replay_capacity": min(config.steps, 1_000_000),
    }
    own |= {name: DERIVED for name, value in derived.items() if own[name] == value}
    if config.ablation is not None:
        digits = "".join(str(int(own.pop(name))) for name in _SWITCHES)
        own["ablation"] = digits + str(int(own.pop("preferences.strategy") == "optimistic"))
    return own


def method_names(configs: Sequence[Config], vary: Collection[str] = ()) -> list[str]:
    """Each run's method: its agent, and the settings in which runs of that agent on one task differ.

    A setting of the protocol that was allowed to vary is named for all agents, where it does vary.
    """
    own = _side_by_side(configs)
    telling: dict[str, set[str]] = defaultdict(set)
    for env in {config.env for config in configs}:
        here = [i for i, config in enumerate(configs) if config.env == env]
        for agent in {configs[i].agent for i in here}:
            telling[agent] |= _differing([own[i] for i in here if configs[i].agent == agent])
            telling[agent] |= _differing([_chosen(configs[i], vary) for i in here])
    return [_name(config, settings, vary, telling[config.agent]) for config, settings in zip(configs, own, strict=True)]


def _side_by_side(configs: Sequence[Config]) -> list[dict[str, Any]]:
    """The settings of each; where one run of ubp2 is an ablation, those that say nothing of it get their digits too."""
    if not any(config.ablation and config.agent == "ubp2" for config in configs):
        return [method_settings(config) for config in configs]
    plain = [
        dataclasses.replace(config, ablation="given")
        if config.agent == "ubp2" and config.preferences.strategy in ("optimistic", "uniform")
        else config
        for config in configs
    ]
    return [method_settings(config) for config in plain]


def differences(first: Config, second: Config) -> dict[str, tuple[Any, Any]]:
    """The settings of the method in which two runs differ, with the values that they trained with."""
    told = _side_by_side([first, second])
    trained = [
        {**dict(leaves(config)), **{name: value for name, value in own.items() if value != DERIVED}}
        for config, own in zip((first, second), told, strict=True)
    ]
    found = {name: (trained[0].get(name), trained[1].get(name)) for name in sorted(_differing(told))}
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


def _chosen(config: Config, vary: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in leaves(config) if name in vary}


def _differing(settings: Sequence[Mapping[str, Any]]) -> set[str]:
    names = {name for own in settings for name in own}
    return {name for name in names if len({repr(own.get(name)) for own in settings}) > 1}


def _name(config: Config, settings: Mapping[str, Any], vary: Collection[str], telling: set[str]) -> str:
    parts = [config.agent, *(["true reward"] if config.ceiling else [])]
    known = {**_chosen(config, vary), **settings}
    parts += [f"{name} {shown(known[name])}" for name in known if name in telling and name != "ceiling"]
    return ", ".join(parts)


def shown(value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def same_method(first: tuple[Path, Config], other: tuple[Path, Config], name: str) -> None:
    """Refuse to pool runs under one name that differ in their method."""
    configs = [first[1], other[1]]
    told = zip(_side_by_side(configs), configs, strict=True)
    a, b = (own | {"agent": config.agent} for own, config in told)
    for setting in sorted(_differing([a, b])):
        raise UserError(
            f"both called '{name}', {first[0]} and {other[0]} differ in {setting}: {shown(a.get(setting))} and "
            f"{shown(b.get(setting))}; give them different names"
        )
