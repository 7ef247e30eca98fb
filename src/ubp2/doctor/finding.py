"""What a check found: one line, and what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Finding", "State"]

# note: something that is absent, and missed only by those who want it.
State = Literal["ok", "note", "warning", "problem"]


class Finding(NamedTuple):
    """The outcome of one check. `advice` is what to do; empty where there is nothing to do."""

    check: str
    state: State
    text: str
    advice: str = ""
