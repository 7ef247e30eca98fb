"""The command line of `ubp2 train`, which is parsed twice.

The first look finds --preset, --env, --config and --resume, which decide the base configuration; the second lays the
flags over it, so that --help shows the values of the preset that was asked for. With several --env each has a base
configuration of its own. `--teacher NAME` is short for `--teacher.name NAME`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ubp2.config import own
from ubp2.config.files import check_resumable, load_yaml, overridden
from ubp2.config.presets import DEFAULT_ENV, DEFAULT_PRESET, preset
from ubp2.config.schema import Config
from ubp2.config.switching import check_asked
from ubp2.errors import UserError
from ubp2.storage.population import members
from ubp2.storage.runs import Run
from ubp2.terminal import commands
from ubp2.terminal.arguments import settings_named

__all__ = ["parsed"]

Parse = Callable[..., commands.Train | None]


def parsed(arguments: list[str], parse: Parse) -> commands.Train | None:
    """Find the base configuration, lay the flags over it, and check that a resumed run keeps its own."""
    arguments = _spelled_out(arguments)
    asked, (arguments, named) = settings_named(arguments), _own_functions(arguments)
    resume = _peek(arguments, "--resume")
    if _peek(arguments, "--population") is not None:
        return _parse_program(arguments, parse)
    envs = _values(arguments, "--env")
    if resume is None:
        _check_envs(envs)
        each = [_parse_new(_with_env(arguments, env), named, asked, parse) for env in envs or [None]]
        first = each[0]
        if first is None or len(each) == 1:
            return first
        return replace(first, configs=tuple(own.config for own in each if own is not None))
    for flag in ("--preset", "--config"):
        if _peek(arguments, flag) is not None:
            raise UserError(f"--resume goes on with the configuration of the run; leave out {flag}")
    if _peek(arguments, "--labels") is not None:
        raise UserError(
            f"--resume goes on with the labels in the folder; add more with: ubp2 labels import {resume} FILE"
        )
    if _peek(arguments, "--seeds") is not None:
        raise UserError("--resume goes on with the seeds in the folder; leave out --seeds")
    saved = Run.open(members(resume)[0]).config
    found = parse("train", arguments, commands.Train(config=overridden(saved, named)))
    if found is not None:
        check_resumable(saved, found.config)
    return found


def _parse_new(arguments: list[str], named: Mapping[str, str], asked: set[str], parse: Parse) -> commands.Train | None:
    """A new run of one environment."""
    found = parse("train", arguments, commands.Train(config=overridden(_base_config(arguments), named)))
    if found is not None:
        check_asked(found.config, asked)
    return found


def _parse_program(arguments: list[str], parse: Parse) -> commands.Train | None:
    """The runs that a file names have their configurations."""
    allowed = {"--population", "--minutes", "--quiet", "--json", "--fake-preempt", "--help"}
    for word in arguments:
        flag = word.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag not in allowed:
            raise UserError(f"--population goes by the file, which names configurations; leave out {flag}")
    return parse("train", arguments, commands.Train())


def _check_envs(envs: Sequence[str]) -> None:
    """Refuse an environment that is named twice, which would train the same twice."""
    for env in envs:
        if envs.count(env) > 1:
            raise UserError(f"--env {env} stands there {_times(envs.count(env))}; for more runs of it there is --seeds")


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _with_env(arguments: list[str], env: str | None) -> list[str]:
    """The arguments with this --env alone."""
    if env is None:
        return arguments
    left, rest = [], iter(arguments)
    for word in rest:
        if word == "--env":
            next(rest, None)
        elif not word.startswith("--env="):
            left.append(word)
    return [*left, "--env", env]


def _values(arguments: list[str], flag: str) -> list[str]:
    """Every value that is given to `flag`, in order; one that is missing is left to the parser."""
    found = [_peek(arguments[i : i + 2], flag) for i, word in enumerate(arguments) if word.partition("=")[0] == flag]
    return [] if None in found else [value for value in found if value is not None]


def _base_config(arguments: list[str]) -> Config:
    """The configuration below the flags: the preset, and the file over it. Each environment has its column."""
    name, env, file = (_peek(arguments, flag) for flag in ("--preset", "--env", "--config"))
    if env is None:
        env = DEFAULT_ENV if file is None else load_yaml(Path(file), Config(env=DEFAULT_ENV)).env
    base = preset(DEFAULT_PRESET if name is None else name, env)
    return base if file is None else load_yaml(Path(file), base)


def _spelled_out(arguments: list[str]) -> list[str]:
    """The arguments with --teacher NAME and --teacher=NAME as the flags that tyro knows; an address means people."""
    spelled: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag != "--teacher":
            spelled.append(argument)
            continue
        values = [value] if equals else list(itertools.islice(rest, 1))
        if values and "://" in values[0]:
            spelled += ["--teacher.name", "human", "--teacher.url", *values]
        else:
            spelled += ["--teacher.name", *values]
    return spelled


def _own_functions(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """The arguments without settings that name module:function, and these: tyro knows their choices alone."""
    named = {name: value for name in own.SETTINGS if own.is_named(value := _peek(arguments, f"--{name}"))}
    left, words = [], iter(arguments)
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag.removeprefix("--") not in named:
            left.append(word)
        elif not equals:
            next(words, None)
    return left, {name: str(value) for name, value in named.items()}


def _peek(arguments: list[str], flag: str) -> str | None:
    """Return the last value given to `flag`, before any real parsing."""
    value = None
    for i, here in enumerate(arguments):
        if here == flag:
            after = arguments[i + 1 : i + 2]
            value = after[0] if after and not after[0].startswith("--") else None
        elif here.startswith(f"{flag}="):
            value = here.partition("=")[2]
    return value
