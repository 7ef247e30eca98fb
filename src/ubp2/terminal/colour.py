"""Whether there are colours, decided in one place: UBP2_COLOR=never | always, else NO_COLOR, else where output goes.

`auto`, the default, means a terminal that can show them. What is piped or written to a file is plain.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from ubp2.errors import UserError

__all__ = ["check", "chosen", "paint", "wanted"]

MODES = ("auto", "never", "always")
CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34}


def wanted(stream: TextIO) -> bool:
    """Whether what is written to this stream may be coloured. https://no-color.org"""
    mode = os.environ.get("UBP2_COLOR")
    if mode in ("never", "always"):
        return mode == "always"
    return not os.environ.get("NO_COLOR") and stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def check() -> None:
    """Refuse a choice that does not exist."""
    mode = os.environ.get("UBP2_COLOR") or "auto"
    if mode not in MODES:
        raise UserError(f"UBP2_COLOR must be one of {', '.join(MODES)}, got '{mode}'")


def paint(text: str, name: str, stream: TextIO) -> str:
    """The text in this colour, if the stream may be coloured."""
    return f"\x1b[{CODES[name]}m{text}\x1b[0m" if wanted(stream) else text


@contextlib.contextmanager
def chosen(arguments: list[str]) -> Iterator[list[str]]:
    """Give the arguments without --no-color, which holds for this command and for the processes that it starts.

    tyro looks at stdout alone, also when it writes to stderr; it is told to be plain unless both may be coloured.
    """
    import tyro
    from tyro import _fmtlib

    before = os.environ.get("UBP2_COLOR")
    if "--no-color" in arguments:
        os.environ["UBP2_COLOR"] = "never"
    try:
        both = wanted(sys.stdout) and wanted(sys.stderr)
        tyro._experimental_options["ansi_codes"] = both
        _fmtlib._FORCE_ANSI = both
        yield [word for word in arguments if word != "--no-color"]
    finally:
        if before is None:
            os.environ.pop("UBP2_COLOR", None)
        else:
            os.environ["UBP2_COLOR"] = before
