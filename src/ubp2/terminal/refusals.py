"""What tyro says of arguments that it refuses, as one sentence like all others, with what to do."""

from __future__ import annotations

import contextlib
import re

from ubp2.config import own
from ubp2.errors import did_you_mean

__all__ = ["refusal"]

_KINDS = {"int": "a whole number", "float": "a number"}


def refusal(box: str, command: str) -> str:
    """The sentence in tyro's box, in words of ours where a person often ends up; `command`: ubp2 and its name."""
    said = _unboxed(box)
    for pattern, words in _WORDS:
        match = re.search(pattern, said)
        if match:
            return words(match, command)
    return f"{said.rstrip('.')}; all options: {command} --help"


def _unboxed(text: str) -> str:
    """The first paragraph of the box, without the frame and the title."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip(" │╭╮╰╯|") for line in text.splitlines()[1:]]
    first = [line for line in lines if line]
    rule = next((i for i, line in enumerate(first) if set(line) <= {"─", "-"}), len(first))
    return " ".join(first[:rule])


def _number(match: re.Match[str], command: str) -> str:
    flag, kind, value = match["flag"], "int" if "int()" in match[0] else "float", match["value"]
    hint = ""
    with contextlib.suppress(ValueError, OverflowError):
        meant = float(value.replace(",", ""))
        hint = f"; write {int(meant)}" if kind == "int" and meant == int(meant) else ""
    return f"{flag} must be {_KINDS[kind]}, got '{value}'{hint}"


def _choice(match: re.Match[str], command: str) -> str:
    known = re.findall(r"'([^']*)'", match["known"])
    hint = did_you_mean(match["value"], known)
    setting = match["flag"].removeprefix("--")
    advice = f". {own.remedy(setting)}" if setting in own.SETTINGS else ""
    return f"{match['flag']} has no choice '{match['value']}'.{hint} Known: {', '.join(known)}{advice}"


def _value(match: re.Match[str], command: str) -> str:
    return f"{match['flag']} needs a value; {command} --help says which"


def _missing(match: re.Match[str], command: str) -> str:
    what = re.sub(r"^\[.*\]\s|^[A-Z]+\s", "", match["what"].strip()).rstrip(".")
    return f"{command} needs {match['name']}: {what}; see {command} --help"


_WORDS = (
    (r"Error parsing (?P<flag>\S+): .*(?:literal for int\(\)|could not convert).*: '(?P<value>[^']*)'", _number),
    (r"invalid choice '(?P<value>.*)' for argument '(?P<flag>\S+)'\. Expected one of \((?P<known>.*)\)", _choice),
    (r"Missing value for argument '(?P<flag>[^' ]+)", _value),
    (r"Missing from \S+.*?: (?P<name>--\S+|\S+)(?P<what>.*?)(?: \(required\)|$)", _missing),
)
