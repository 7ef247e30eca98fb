"""Configurations as plain data: to and from dictionaries and YAML, every key and value checked by name.

The dataclasses of `ubp2.config.schema` are the only schema. A file may name any subset of the fields; what it leaves
out keeps the value of the base it is laid over.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from ubp2.config import own
from ubp2.config.schema import Config
from ubp2.config.switching import SWITCHED, check_asked
from ubp2.errors import UserError, did_you_mean

__all__ = [
    "FURTHER",
    "PLACE",
    "check_resumable",
    "checked",
    "differences",
    "extended",
    "filled",
    "from_dict",
    "leaves",
    "load_yaml",
    "moved",
    "not_yaml",
    "overridden",
    "save_yaml",
    "to_dict",
]

# Where people are asked, which changes nothing of what is learned from them: a resumed run may have it elsewhere.
PLACE = ("serve", "url", "host", "port", "browser", "instruction")
# Fields of the model that runs of earlier versions lack: what those runs did.
_BEFORE = {"obs_floor": 0.01, "obs_limit": 10.0, "obs_tail": 0.0}
_WAITING = ("wait", "patience", "fallback")  # nor need a run go on waiting for people who no longer come

FURTHER: dict[str, list[str]] = {}  # what a field of `own.SETTINGS` takes besides its choices: names registered


def to_dict(config: Config) -> dict[str, Any]:
    """Return `config` as nested dictionaries of plain values, as YAML and JSON have them.

    Tuples become lists, and numbers of NumPy plain ones.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, (tuple, list)):
            return [plain(item) for item in value]
        return value.tolist() if hasattr(value, "tolist") else value

    return plain(dataclasses.asdict(config))


def checked(config: Config) -> Config:
    """A configuration made in Python, as if it came from a file: every value has the type of its field, or is named."""
    return from_dict(to_dict(config), own_names=True)


def from_dict(data: Mapping[str, Any], base: Config | None = None, *, own_names: bool = False) -> Config:
    """Return `base` (the defaults, if None) with the fields named in `data` replaced; refuse unknown keys and types."""
    return _overlay(Config() if base is None else base, _as_of_today(data), "", own.SETTINGS if own_names else ())


def overridden(config: Config, settings: Mapping[str, Any]) -> Config:
    """`config` with fields by dotted name, as in flags, replaced one after the other."""
    for name, value in settings.items():
        for key in reversed(name.split(".")):
            value = {key: value}
        config = from_dict(value, config)
    return config


def save_yaml(config: Config, path: Path) -> None:
    """Write every field of `config`, in the order of the dataclasses."""
    path.write_text(yaml.safe_dump(to_dict(config), sort_keys=False), encoding="utf-8")


def load_yaml(path: Path, base: Config | None = None, *, own_names: bool = False) -> Config:
    """Return `base` with the fields that the file at `path` names; errors name the file.

    own_names: it is the configuration of a run, which is whole, and whose agent or query strategy may have a name that
    only another program has registered.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"there is no configuration file {path}") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; name a YAML file, such as {path / 'config.yaml'}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text file; name a YAML file of settings") from None
    except OSError as error:
        raise UserError(f"cannot read the configuration file {path}: {error}") from None
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise not_yaml(path, error) from None
    try:
        plain, dotted = _apart({} if data is None else data)
        plain = _as_it_was(plain) if own_names else plain
        config = overridden(from_dict(plain, base, own_names=own_names), dotted)
        if not _is_whole(data):
            check_asked(config, [name for name in SWITCHED if _names(data, name)])
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    if own_names and "keep" not in (data or {}).get("checkpoint", ()):
        raise UserError(f"{path} is cut off before its end, which is 'keep' of 'checkpoint'; put a backup in its place")
    return config


def not_yaml(source: Path | str, error: yaml.YAMLError) -> UserError:
    """The error for a text that is no YAML: where it goes wrong, and how."""
    mark, begun = (getattr(error, name, None) for name in ("problem_mark", "context_mark"))
    said = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    context = getattr(error, "context", None)
    where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    since = f" ({context} of line {begun.line + 1})" if context and begun else ""
    return UserError(f"{source} is not valid YAML{where}: {said}{since}")


def _apart(data: Any) -> tuple[Any, dict[str, Any]]:
    """What a file has in tables, and its settings by dotted name, as in flags; one that has both is a mistake."""
    if not isinstance(data, Mapping):
        return data, {}
    dotted = {name: value for name, value in data.items() if isinstance(name, str) and "." in name}
    plain = {name: value for name, value in data.items() if name not in dotted}
    for name in dotted:
        if _names(plain, name):
            raise UserError(f"{name} stands there twice, dotted and in a table; leave one of the two out")
    return plain, dotted


def _is_whole(data: Any) -> bool:
    """Whether a file names every section, as one that was saved does: not all in it was asked for."""
    return isinstance(data, Mapping) and all(field.name in data for field in dataclasses.fields(Config))


def _names(data: Any, name: str) -> bool:
    """Whether a file names this setting, dotted or in a table."""
    if isinstance(data, Mapping) and name in data:
        return True
    for key in name.split("."):
        if not isinstance(data, Mapping) or key not in data:
            return False
        data = data[key]
    return True


def differences(a: Config, b: Config) -> list[str]:
    """Return one line 'dotted.field: value in a -> value in b' for each field that differs."""
    other = dict(leaves(b))
    return [f"{name}: {value} -> {other[name]}" for name, value in leaves(a) if value != other[name]]


def filled(config: Config, resolved: Config) -> Config:
    """`config` with what it leaves open (None) taken from a resolved one."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value, other = getattr(config, field.name), getattr(resolved, field.name)
        if dataclasses.is_dataclass(value):
            changes[field.name] = filled(value, other)  # type: ignore[arg-type]
        elif value is None:
            changes[field.name] = other
    return dataclasses.replace(config, **changes)


def leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of every field that is not itself a section."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def check_resumable(saved: Config, asked: Config) -> None:
    """Refuse to go on with a run under another configuration; `steps` may grow, and people be waited for otherwise.

    Anything else would give curves that no single configuration produces.
    """
    changed = differences(moved(dataclasses.replace(saved, steps=asked.steps), asked), asked)
    if changed:
        raise UserError(
            f"a run resumes with the configuration it began with, and these fields differ: {'; '.join(changed)}. "
            f"Leave them out, or start a new run"
        )
    if asked.steps < saved.steps:
        raise UserError(f"a resumed run can be made longer but not shorter: --steps {asked.steps} < {saved.steps}")


def extended(saved: Config, wanted: Config | None) -> Config:
    """The saved config, with the steps of the wanted one; a replay that held the whole run still does."""
    if wanted is None:
        return saved
    wanted = filled(checked(wanted), saved)
    check_resumable(saved, wanted)
    training = saved.training
    if training.replay_capacity == min(saved.steps, 1_000_000):  # as `resolve` fills it in
        training = dataclasses.replace(training, replay_capacity=min(wanted.steps, 1_000_000))
    return moved(dataclasses.replace(saved, steps=wanted.steps, training=training), wanted)


def moved(saved: Config, asked: Config) -> Config:
    """`saved` with its page for people where `asked` has it, and waiting for them as `asked` does."""
    names = (*PLACE, *_WAITING) if saved.teacher.name == "human" else PLACE
    changes = {name: getattr(asked.teacher, name) for name in names}
    return dataclasses.replace(saved, teacher=dataclasses.replace(saved.teacher, **changes))


def _as_of_today(data: Any) -> Any:
    """Data with `preferences.teacher` of version 0.1.0 where it is now, so that earlier runs can be read."""
    before = data.get("preferences") if isinstance(data, Mapping) else None
    if not isinstance(before, Mapping) or "teacher" not in before:
        return data
    preferences = {key: value for key, value in before.items() if key != "teacher"}
    return {"teacher": before["teacher"], **data, "preferences": preferences}


def _as_it_was(data: Any) -> Any:
    """The whole configuration of a run, with the fields that its version lacked as that version acted."""
    model = data.get("model") if isinstance(data, Mapping) else None
    return {**data, "model": _BEFORE | dict(model)} if isinstance(model, Mapping) else data


@functools.cache
def _hints(section: type) -> dict[str, Any]:
    return typing.get_type_hints(section)


def _overlay(section: Any, data: Any, prefix: str, free: Collection[str]) -> Any:
    """Return the dataclass `section` with `data` laid over it; `prefix` is its dotted name with a final dot."""
    hints = _hints(type(section))
    if isinstance(data, str) and "name" in hints:  # teacher: noisy
        data = {"name": data}
    if not isinstance(data, Mapping):
        raise _mismatch(prefix.rstrip(".") or "the configuration", "a table of settings", data)
    replaced = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if key not in hints:
            place = f" in {prefix[:-1]}" if prefix else ""
            raise UserError(
                f"unknown setting '{name}'.{did_you_mean(str(key), hints)} Known{place}: {', '.join(hints)}"
            )
        current = getattr(section, key)
        nested = dataclasses.is_dataclass(current)
        if nested:
            replaced[key] = _overlay(current, value, f"{name}.", free)
        else:
            replaced[key] = value if name in free and isinstance(value, str) else _convert(value, hints[key], name)
    return dataclasses.replace(section, **replaced)


def _convert(value: Any, hint: Any, name: str) -> Any:
    """Return `value` as the type `hint`, or raise with what was expected and what came."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _convert(value, inner, name)
    if origin is Literal:
        choices = [*map(str, arguments), *FURTHER.get(name, ())]
        if value in choices or (name in own.SETTINGS and own.is_named(value)):
            return value
        advice = f" {own.remedy(name)}" if name in own.SETTINGS else ""
        raise UserError(
            f"{name} must be one of {', '.join(choices)}, got {value!r}.{did_you_mean(str(value), choices)}{advice}"
        )
    if origin is tuple:
        return _convert_tuple(value, arguments, name)
    if hint is float:
        return _convert_float(value, name)
    # bool is a subclass of int, and `steps: true` is a mistake
    if isinstance(value, hint) and isinstance(value, bool) == (hint is bool):
        return value
    raise UserError(f"{_mismatch(name, _NAMES[hint], value)}{_whole(value) if hint is int else ''}")


def _whole(value: Any) -> str:
    """What to write in place of 1e4 or 5.0, which YAML does not read as a whole number."""
    try:
        meant = float(value)
        return f"; write {int(meant)}" if meant == int(meant) and not isinstance(value, bool) else ""
    except (TypeError, ValueError, OverflowError):
        return ""


def _convert_float(value: Any, name: str) -> float:
    if isinstance(value, bool):
        raise _mismatch(name, "a number", value)
    try:  # YAML 1.1 reads 3e-4, without a point, as text
        return float(value)
    except (TypeError, ValueError):
        raise _mismatch(name, "a number", value) from None


def _convert_tuple(value: Any, arguments: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise _mismatch(name, "a list", value)
    if arguments[-1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    if len(value) != len(arguments):
        raise _mismatch(name, f"a list of {len(arguments)} values", value)
    return tuple(
        _convert(item, hint, f"{name}[{i}]") for i, (item, hint) in enumerate(zip(value, arguments, strict=True))
    )


_NAMES = {int: "a whole number", str: "text", bool: "true or false"}


def _mismatch(name: str, expected: str, value: Any) -> UserError:
    return UserError(f"{name} must be {expected}, got {value!r} ({type(value).__name__})")
