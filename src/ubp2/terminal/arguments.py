"""The options of a command, read from its dataclass: what can be completed, and what a mistyped one is nearest to.

tyro makes the parser of the same dataclasses, by the same rules; a test compares this with the help of every command.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import tyro

from ubp2.errors import UserError

__all__ = ["Argument", "Arguments", "arguments_of", "check_words", "free_words", "settings_named"]


class Argument(NamedTuple):
    """An option (--name) or a positional argument (no dashes). metavar: what it takes, where the dataclass says so."""

    name: str
    choices: tuple[str, ...] = ()
    metavar: str = ""
    switch: bool = False  # takes no value
    many: bool = False


class Arguments(NamedTuple):
    """Of one command: options by name, positionals in order, and for a command with names the arguments of each."""

    options: Mapping[str, Argument]
    positionals: Sequence[Argument]
    named: Mapping[str, type]


def arguments_of(kind: type) -> Arguments:
    """All arguments of a dataclass, those of its sections as --section.name."""
    options, positionals, named = {}, [], {}
    for found in _walk(kind, ""):
        if isinstance(found, Argument):
            if found.name.startswith("--"):
                options[found.name] = found
            else:
                positionals.append(found)
        else:
            named |= found
    help_option = Argument("--help", switch=True)
    return Arguments({**options, "--help": help_option}, positionals, named)


def _walk(kind: type, prefix: str) -> Iterator[Argument | dict[str, type]]:
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        bare, marks = _bare(hints[field.name])
        name = next((mark.name for mark in marks if getattr(mark, "name", None) is not None), field.name)
        subcommands = _subcommands(bare)
        if tyro.conf.Suppress in marks:
            continue
        if subcommands:
            yield subcommands
        elif dataclasses.is_dataclass(bare):
            assert isinstance(bare, type)
            yield from _walk(bare, f"{prefix}{name}." if name else prefix)
        else:
            yield from _argument(name.replace("_", "-"), prefix.replace("_", "-"), bare, marks)


def _argument(name: str, prefix: str, bare: Any, marks: Sequence[Any]) -> Iterator[Argument]:
    metavar = next((mark.metavar for mark in marks if getattr(mark, "metavar", None)), "")
    choices = _choices(bare)
    many = tyro.conf.UseAppendAction not in marks and any(get_origin(part) is tuple for part in (bare, *get_args(bare)))
    if tyro.conf.Positional in marks:
        yield Argument(name, choices, metavar, many=many)
    elif bare is bool:
        yield Argument(f"--{prefix}{name}", switch=True)
        if tyro.conf.FlagCreatePairsOff not in marks:
            yield Argument(f"--{prefix}no-{name}", switch=True)
    else:
        yield Argument(f"--{prefix}{name}", choices, metavar, many=many)


def _bare(hint: Any) -> tuple[Any, list[Any]]:
    """A type without its annotations, which come beside it, the outermost first."""
    marks: list[Any] = []
    while get_origin(hint) is Annotated:
        hint, *own = get_args(hint)
        marks += own
    return hint, marks


def _subcommands(bare: Any) -> dict[str, type]:
    """The names of a union of annotated dataclasses, as `ubp2 bench` has them."""
    if get_origin(bare) not in (Union, types.UnionType):
        return {}
    parts = [_bare(part) for part in get_args(bare)]
    return {marks[0].name: part for part, marks in parts if isinstance(part, type) and dataclasses.is_dataclass(part)}


def _choices(bare: Any) -> tuple[str, ...]:
    """The words of every Literal inside."""
    if get_origin(bare) is Literal:
        return tuple(map(str, get_args(bare)))
    return tuple(word for part in get_args(bare) for word in _choices(part))


def check_words(command: str, kind: type, words: Sequence[str]) -> None:
    """Refuse an option that the command does not have, with the nearest that it has, and a word that nothing takes."""
    arguments = arguments_of(kind)
    if arguments.named and words and words[0] in arguments.named:
        return check_words(f"{command} {words[0]}", arguments.named[words[0]], words[1:])
    for word in words:
        name = _name(word)
        if name.startswith("--") and name != "--" and "--tyro-" not in name and name not in arguments.options:
            near = _nearest(name, arguments.options)
            raise UserError(f"unknown option {name}.{near} All options: {command} --help")
    free, most = free_words(arguments, words), len(arguments.positionals)
    if not arguments.named and len(free) > most and not any(each.many for each in arguments.positionals):
        word, takes = free[most], ", ".join(each.metavar.strip("[]") or each.name for each in arguments.positionals)
        meant = f" Did you mean --env {word}?" if "/" in word and "--env" in arguments.options else ""
        raise UserError(f"{command} takes {takes or 'options alone'}, and '{word}' is one word too many.{meant}")
    return None


def free_words(arguments: Arguments, words: Sequence[str]) -> list[str]:
    """The words that are positional: neither options nor what belongs to the option before them."""
    free, rest = [], iter(words)
    taking = False  # an option with any number of values is open
    for word in rest:
        option = arguments.options.get(_name(word))
        if option is not None:
            taking = option.many and "=" not in word
            if not option.switch and not option.many and "=" not in word:
                next(rest, None)
        elif not taking and word != "-h":
            free.append(word)
    return free


def settings_named(words: Sequence[str]) -> set[str]:
    """The settings that these words name as options, by dotted name in the configuration."""
    found = set()
    for word in words:
        section, dot, last = _name(word).removeprefix("--").replace("-", "_").rpartition(".")
        found.add(f"{section}{dot}{last.removeprefix('no_')}" if word.startswith("--") else "")
    return found - {""}


def _name(word: str) -> str:
    """An option as it is listed: without its value, and with dashes where tyro also takes underscores."""
    return "--" + word.partition("=")[0][2:].replace("_", "-") if word.startswith("--") else word


def _nearest(name: str, options: Mapping[str, Argument]) -> str:
    """A setting whose section was left out or mistaken is found by its last part; anything else by its letters."""
    last = name.lstrip("-").rpartition(".")[2]
    near = [option for option in options if option.lstrip("-").rpartition(".")[2] == last][:3]
    near = near or difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    return f" Did you mean {' or '.join(near)}?" if near else ""
