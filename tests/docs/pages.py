"""The pages of the project as tests read them: fenced blocks, commands, links, and why a block is not run."""

from __future__ import annotations

import itertools
import re
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# What a newcomer follows line by line: `make test` runs what it shows. Of the other pages `make test-all` does.
FOLLOWED = ("README.md",)
BLOCK = re.compile(
    r"(?:^<!-- not run:(?P<reason>.*?)-->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
INLINE = re.compile(r"`(?:\.venv/bin/)?(ubp2 [^`]+)`")


class Block(NamedTuple):
    """A fenced block; reason: why it is not run, if its page says so."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    """A line that begins with ubp2, its comment cut off; where: fenced, or in code type inside a sentence."""

    name: str
    words: tuple[str, ...]
    reason: str | None
    fenced: bool


@cache
def pages() -> dict[str, str]:
    """Text of every page by its path from the root."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("examples/*.md"), *sorted(DOCS.rglob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}


def blocks(language: str | None = None) -> list[Block]:
    """The fenced blocks of all pages, or those of one language ('' for none)."""
    found = []
    for page, text in pages().items():
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start("text")) + 1
            reason = match["reason"]
            if language in (None, match["language"]):
                found.append(Block(page, line, match["language"], match["text"], reason and reason.strip()))
    return found


def followed(name: str) -> bool:
    """Whether a newcomer follows this page line by line."""
    return name.startswith(FOLLOWED)


def lines() -> list[tuple[str, str, str | None]]:
    """Every line of the blocks without a language that is a command of a shell: name, line, reason not to run it."""
    return [
        (f"{block.page}:{block.line + number}", stripped, block.reason)
        for block in blocks("")
        for number, line in enumerate(block.text.splitlines())
        if (stripped := re.sub(r"(^|\s)#.*", "", line).strip())
    ]


def commands() -> list[Command]:
    """Every command of ubp2 on every page; words such as `...` that stand for others are left out."""
    found = []
    for name, line, reason in lines():
        if match := re.match(r"(?:\.venv/bin/)?ubp2 (.+)", line):
            found.append(Command(name, _words(match[1]), reason, True))
    for page, text in pages().items():
        for match in INLINE.finditer(BLOCK.sub(lambda block: "\n" * block.group().count("\n"), text)):
            words = _words(match[1].removeprefix("ubp2 "))
            if words:
                found.append(Command(f"{page}: {match[1]}", words, None, False))
    return found


def _words(line: str) -> tuple[str, ...]:
    words = itertools.takewhile(lambda word: word not in ("|", ">", ">>", "&&", "&"), shlex.split(line))
    return tuple(word for word in words if word not in ("...", "…"))
