"""Tables of the docs that scripts write: each stands in its page between <!-- table:NAME --> and <!-- end -->."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

__all__ = ["filled", "markdown"]


def filled(page: str, table: Callable[[str], str]) -> str:
    """The page with every table written anew, by its name."""

    def fill(match: re.Match[str]) -> str:
        return f"<!-- table:{match[1]} -->\n{table(match[1])}\n<!-- end -->"

    return re.sub(r"<!-- table:([^\n]+?) -->\n.*?<!-- end -->", fill, page, flags=re.DOTALL)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A pipe table; the first line is its head."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])
