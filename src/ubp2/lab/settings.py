"""Settings: names for overrides of the configuration, from a file, the command line or the built-in list.

A field is named with dots, as in flags. There is no list of fields here: whatever `ubp2.config.schema` has can be
varied, and mistakes are told as `ubp2.config.files` tells them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from ubp2.config.files import not_yaml, overridden
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.errors import UserError

__all__ = ["BUILT_IN", "Settings", "configs", "gather"]

Settings = Mapping[str, Mapping[str, Any]]

BUILT_IN: Settings = MappingProxyType(
    {
        "default": {},
        "tanh head": {"model.reward_head": "tanh"},
        "reads the action": {"model.reward_inputs": "state-action"},
        "raw units": {"model.reward_units": "raw"},
        "noise integrated out": {"model.reward_likelihood": "marginal"},
        "never stops": {"preferences.stop_accuracy": None},
        "level free": {"preferences.center": 0.0},
        "as the paper has it": {
            "model.reward_head": "tanh",
            "model.reward_inputs": "state-action",
            "model.reward_units": "raw",
            "preferences.stop_accuracy": None,
            "preferences.center": 0.0,
        },
        "smoothing": {"preferences.smoothing": 0.1},
        "smoothing, never stops": {"preferences.smoothing": 0.1, "preferences.stop_accuracy": None},
        "anchor": {"preferences.anchor": 1.0},
        "bootstrap": {"preferences.bootstrap": True},
        "crops": {"preferences.crop": 5},
        "5 members": {"model.reward_members": 5},
        "width 32": {"model.width": 32},
        "segments of 5": {"preferences.segment_length": 5},
        "segments of 20": {"preferences.segment_length": 20},
    }
)

_FORM = "'name: {dotted field: value}', such as 'linear head: {model.reward_head: linear}'"


def gather(file: Path | None, lines: Iterable[str]) -> Settings:
    """The settings of the file and then of the command line; the built-in ones where neither names any."""
    found: dict[str, Mapping[str, Any]] = {}
    sources = [] if file is None else [(str(file), _text(file))]
    for source, text in [*sources, *((f"--set '{line}'", line) for line in lines)]:
        for name, overrides in _parsed(source, text).items():
            if name in found:
                raise UserError(f"{source}: there is already a setting '{name}'; give each a name of its own")
            found[name] = overrides
    return found or BUILT_IN


def configs(settings: Settings, base: Config, episode_decisions: int) -> dict[str, Config]:
    """The resolved configuration of each setting; a mistake is told with the name of its setting."""
    return {name: _config(name, overrides, base, episode_decisions) for name, overrides in settings.items()}


def _config(name: str, overrides: Mapping[str, Any], config: Config, episode_decisions: int) -> Config:
    try:
        return resolve(overridden(config, overrides), episode_decisions)
    except UserError as error:
        raise UserError(f"setting '{name}': {error}") from None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"there is no file of settings {file}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the settings in {file}: {error}") from None


def _parsed(source: str, text: str) -> dict[str, Mapping[str, Any]]:
    """Settings from YAML, keys as text; a name with nothing behind it changes nothing."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"{not_yaml(source, error)}; write {_FORM}") from None
    if not isinstance(data, Mapping) or not data:
        raise UserError(f"{source} must hold settings, {_FORM}, got {data!r}")
    for name, overrides in data.items():
        if overrides is not None and not isinstance(overrides, Mapping):
            raise UserError(f"{source}: the setting '{name}' must be a table of fields, {_FORM}, got {overrides!r}")
    return {
        str(name): {str(field): value for field, value in (overrides or {}).items()} for name, overrides in data.items()
    }
