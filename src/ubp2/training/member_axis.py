"""Members of one program: the structure they share, and the settings that each has of its own.

A configuration is a pytree: numbers that shape nothing are leaves, which programs take as arguments with the axis of
members [S]; everything else is structure. Members may share a program where their structures are equal. Sizes that only
set room aside (labels, questions a session, comparisons a minibatch) are widened to the largest member's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2.agents.base import Agent
from ubp2.agents.registry import make_agent
from ubp2.config import files as config_files
from ubp2.config import own
from ubp2.config.resolving import is_model_free
from ubp2.config.schema import (
    Config,
    EvaluationConfig,
    ModelConfig,
    OptimismConfig,
    PlannerConfig,
    PreferenceConfig,
    SacConfig,
    TrainingConfig,
    given,
)
from ubp2.envs.base import EnvSpec
from ubp2.envs.visual import is_visual

__all__ = ["Layout", "Settings", "Sizes", "clock_key", "differences", "group", "program_key"]

# Numbers that members may differ in, by section; ints are whole numbers, and what is not named here shapes programs.
NUMBERS: Mapping[type, tuple[str, ...]] = MappingProxyType(
    {
        OptimismConfig: (
            *("reward", "dynamics", "value"),
            *("lambda_reward", "lambda_dynamics", "lambda_value", "learning_rate", "target_policy_rate"),
        ),
        TrainingConfig: (
            *("learning_rate", "encoder_scale", "grad_clip", "discount", "rho", "entropy"),
            *("consistency_weight", "reward_weight", "value_weight", "value_target_rate"),
        ),
        PlannerConfig: ("temperature", "min_std", "max_std", "elites"),
        EvaluationConfig: ("bonus",),
        PreferenceConfig: ("every", "stop_accuracy", "center", "smoothing", "anchor", "recent"),
        ModelConfig: ("obs_floor", "obs_limit", "obs_tail"),
        SacConfig: (
            *("alpha", "alpha_learning_rate", "target_rate", "target_every", "epochs"),
            *("rune_beta", "rune_decay", "mrn_every", "mrn_weight", "surf_threshold", "surf_weight"),
        ),
    }
)
_SECTIONS = {type(getattr(Config(), each.name)): each.name for each in fields(Config)}
ORDERED = ("thompson", "kcenter-disagreement", "kcenter-entropy")  # the first K of these depend on K
NEVER = 2.0  # an accuracy that no member reaches stands for stop_accuracy None


def _register() -> None:
    """Make jax take configurations apart as the table says."""
    for section, numbers in NUMBERS.items():
        rest = [each.name for each in fields(section) if each.name not in numbers]
        jax.tree_util.register_dataclass(section, data_fields=list(numbers), meta_fields=rest)
    inner = [name for section, name in _SECTIONS.items() if section in NUMBERS]
    rest = [each.name for each in fields(Config) if each.name not in inner]
    jax.tree_util.register_dataclass(Config, data_fields=inner, meta_fields=rest)


_register()


class Sizes(NamedTuple):
    """Sizes of the environments, which members of a program share."""

    obs_dim: int
    action_dim: int
    episode_decisions: int

    @classmethod
    def of(cls, spec: EnvSpec) -> Sizes:
        """Those of an environment as an agent is shown it."""
        return cls(spec.obs_dim, spec.action_dim, spec.episode_decisions)


class Settings(NamedTuple):
    """The settings of a member inside a program; of all members with an axis [S]."""

    config: Config | None  # with traced numbers; None: members differ in none
    strategy: Array  # [] int32 which of the program's query strategies
    pairs: Array  # [] int32 comparisons in a minibatch


def _is_custom(config: Config) -> bool:
    """Whether the agent is somebody's own: its code may branch on numbers, and may have changed since the last run."""
    return own.is_named(config.agent) or config.agent in config_files.FURTHER.get("agent", ())


def _is_custom_strategy(name: str) -> bool:
    return own.is_named(name) or name in config_files.FURTHER.get("preferences.strategy", ())


def program_key(config: Config) -> Config:
    """The part of a resolved configuration that shapes programs: equal for runs that may share one."""
    if _is_custom(config):  # it may read any setting
        return replace(config, seed=0)
    plain, prefs = Config(), config.preferences
    ordered = prefs.strategy in ORDERED or _is_custom_strategy(prefs.strategy)
    fitted = is_model_free(config.agent)  # minibatches of a fit are parts of an epoch
    preferences = replace(
        prefs,
        strategy=prefs.strategy if ordered else "uniform",
        per_session=prefs.per_session if ordered else 1,
        candidates=max(prefs.candidates, prefs.per_session),
        batch_size=prefs.batch_size if fitted else 1,
        first=None,
        budget=0,
        imported=0,
    )
    evaluation = plain.evaluation
    config = replace(
        config,
        env=config.env if is_visual(config.env) else "",
        agent="ubp2" if config.agent == "mbp" else config.agent,  # its switches are numbers
        ablation=None,
        steps=plain.steps,
        seed=plain.seed,
        teacher=plain.teacher,
        environment=plain.environment,  # its sizes are in the spec
        checkpoint=plain.checkpoint,
        preferences=preferences,
        evaluation=replace(
            config.evaluation, every=evaluation.every, episodes=evaluation.episodes, seed=evaluation.seed
        ),
    )
    return _without_numbers(config)


def _without_numbers(config: Config) -> Config:
    plain = _plain(bool(config.preferences.anchor))
    sections: dict[str, Any] = {}
    for kind, numbers in NUMBERS.items():
        name = _SECTIONS[kind]
        wanted = getattr(plain, name)
        sections[name] = replace(getattr(config, name), **{number: getattr(wanted, number) for number in numbers})
    return replace(config, **sections)


# What `clock_key` has, by name.
CLOCK = (
    *("steps", "training.warmup", "training.warmup_updates", "training.update_every"),
    *("environment.in_process", "environment.patience"),
)
CLOCKS = ("evaluation.", "checkpoint.", "visual.")


def clock_key(config: Config) -> Hashable:
    """The settings that members in lock-step share besides their program: steps, updates, evaluation, checkpoints."""
    training, evaluation = config.training, config.evaluation
    updates = (training.warmup, training.warmup_updates, training.update_every)
    in_process = (config.environment.in_process, config.environment.patience)
    return (config.steps, updates, replace(evaluation, bonus=0.0), config.checkpoint, in_process, config.visual)


def differences(one: Config, other: Config) -> list[str]:
    """Names of the settings that keep two runs out of one program."""
    first, second = (dict(config_files.leaves(program_key(each))) for each in (one, other))
    found = [name for name in first if first[name] != second[name]]
    if clock_key(one) != clock_key(other):
        first, second = (dict(config_files.leaves(each)) for each in (one, other))
        names = [name for name in first if name in CLOCK or name.startswith(CLOCKS)]
        found += [name for name in names if first[name] != second[name] and name not in found]
    return found


def group(configs: Sequence[Config], specs: Sequence[EnvSpec]) -> list[list[int]]:
    """The fewest programs: which runs, by number, go into each. People answer one run at a time."""
    groups: dict[Hashable, list[int]] = {}
    for i, (config, spec) in enumerate(zip(configs, specs, strict=True)):
        alone = i if config.teacher.name == "human" else None
        groups.setdefault((alone, program_key(config), clock_key(config), Sizes.of(spec)), []).append(i)
    return list(groups.values())


@dataclass(frozen=True)
class Layout:
    """The members of a program: what they share, and each one's own configuration."""

    config: Config
    """The shared structure, with sizes of the largest member and numbers of nobody."""
    strategies: tuple[str, ...]
    """Query strategies that some member uses."""
    sizes: Sizes
    """Those of every environment."""
    members: tuple[Config, ...]
    """Resolved configurations."""

    @classmethod
    def of(cls, members: Sequence[Config], spec: EnvSpec | Sizes) -> Layout:
        """The layout of members that `group` puts together."""
        first, prefs = program_key(members[0]), [member.preferences for member in members]
        for member in members[1:]:
            if program_key(member) != first:
                names = ", ".join(differences(members[0], member))
                raise ValueError(f"members of one program must be equal in {names}")
        config = replace(
            first,
            preferences=replace(
                first.preferences,
                per_session=max(each.per_session for each in prefs),
                batch_size=max(each.batch_size for each in prefs),
                budget=max(given(each.budget) + each.imported for each in prefs),
            ),
        )
        sizes = spec if isinstance(spec, Sizes) else Sizes.of(spec)
        return cls(config, tuple(sorted({each.strategy for each in prefs})), sizes, tuple(members))

    @property
    def size(self) -> int:
        """How many members there are, S."""
        return len(self.members)

    @property
    def custom(self) -> bool:
        """Whether code of somebody's own is in the programs."""
        return self.fixed or any(_is_custom_strategy(name) for name in self.strategies)

    @property
    def fixed(self) -> bool:
        """Whether numbers are constants of the programs, for an agent of somebody's own may branch on them."""
        return _is_custom(self.config)

    def settings(self) -> Settings:
        """The settings of all members, [S]."""
        structure = None if self.fixed else jax.tree.structure(_numbers(self.config))
        rows = []
        for member in self.members:
            config = None if structure is None else jax.tree.unflatten(structure, _typed(_numbers(member)))
            strategy = np.int32(self.strategies.index(member.preferences.strategy))
            rows.append(Settings(config, strategy, np.int32(member.preferences.batch_size)))  # type: ignore[arg-type]
        return jax.tree.map(lambda *own: jnp.asarray(np.stack(own)), *rows)

    def config_of(self, settings: Settings) -> Config:
        """The configuration of a member inside a program."""
        return self.config if settings.config is None else settings.config

    def agent_of(self, settings: Settings, agent: Agent) -> Agent:
        """The agent of a member inside a program; `agent` is the one that the loop has."""
        return agent if settings.config is None else make_agent(settings.config, *self.sizes[:2])

    def key(self) -> str:
        """Everything that compiled programs depend on."""
        return repr((self.config, self.strategies, self.sizes, self.size, sorted(jax.config.values.items())))


def _numbers(config: Config) -> Config:
    """With numbers in place of None, and None in place of what switches a part of the state off."""
    prefs = config.preferences
    stop = NEVER if prefs.stop_accuracy is None else prefs.stop_accuracy
    return replace(config, preferences=replace(prefs, stop_accuracy=stop, anchor=prefs.anchor or None))


def _typed(config: Config) -> list[np.generic]:
    """The numbers of a configuration, each in the type that its default has."""
    leaves, structure = jax.tree.flatten(config)
    kinds = jax.tree.leaves(_numbers(_plain(bool(config.preferences.anchor))))
    assert len(kinds) == len(leaves), structure
    types: dict[type, Callable[[Any], np.generic]] = {bool: np.bool_, int: np.int32, float: np.float32}
    return [types[type(kind)](value) for kind, value in zip(kinds, leaves, strict=True)]


def _plain(anchored: bool) -> Config:
    """Numbers of nobody, each in its type. Whether members are anchored is structure: the anchor is in the state."""
    plain = Config()
    return replace(
        plain,
        training=replace(plain.training, discount=0.0),
        preferences=replace(plain.preferences, stop_accuracy=0.0, anchor=1.0 if anchored else 0.0),
    )
