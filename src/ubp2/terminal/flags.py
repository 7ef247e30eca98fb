"""What the options of several commands share. Imports nothing heavy: help is instant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any

import tyro

from ubp2.errors import UserError

__all__ = ["Json", "Switch", "check_least", "check_minutes", "words"]

Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Json = Annotated[Switch, tyro.conf.arg(help="Print one JSON object on stdout, and everything else on stderr.")]


def check_least(what: object, least: Mapping[str, float]) -> None:
    """Refuse numbers that are too small, of those options that there are; several numbers are each looked at."""
    for name, bound in least.items():
        value = getattr(what, name, None)
        for number in value if isinstance(value, Sequence) else [] if value is None else [value]:
            if not math.isfinite(number):
                raise UserError(f"{_flag(name)} must be a finite number, got {number}")
            if number < bound:
                wanted = f"be at least {bound:g}" if bound else "not be negative"
                raise UserError(f"{_flag(name)} must {wanted}, got {number}")


def check_minutes(minutes: float | None) -> None:
    """Refuse a time in which nothing can happen."""
    if minutes is not None and not 0 < minutes < math.inf:
        raise UserError(f"--minutes must be more than 0, got {minutes:g}; leave it out for no limit")


def words(command: str, what: Any) -> list[str]:
    """The command line that gives these options, without how the answer comes out."""
    found = [command, type(what).__name__.lower()]
    for each in fields(what):
        value = getattr(what, each.name)
        if value == each.default or each.name in ("out", "json"):
            continue
        values = [] if value is True else value if isinstance(value, tuple) else [value]
        found += [_flag(each.name), *map(str, values)]
    return found


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
