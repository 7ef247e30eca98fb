"""Every command on every page is understood, and those that a newcomer follows line by line are run, made small.

A block that cannot be run says why, in a comment right before it: <!-- not run: needs a cluster -->.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks, commands, followed, lines, pages
from tests.docs.staging import OTHER_CODES, execute, serves, small, understandable
from ubp2.config.resolving import resolve
from ubp2.terminal import cli

COMMANDS = commands()
RUNNABLE = {command.words: command for command in COMMANDS if command.fenced and not command.reason}
SNIPPETS = [block for block in blocks("python") if not block.reason]


def slow_unless_followed(name: str) -> list[pytest.MarkDecorator]:
    return [] if followed(name) else [pytest.mark.slow]


def mentions(words: list[str]) -> bool:
    """Whether a sentence names a command, as `ubp2 train` or `ubp2 train --labels`, and gives no whole line."""
    if any(word.startswith("--") for word in words[1:-1]) or words[-1] in ("--dry-run", "--remote"):
        return False
    named = cli._WITH_NAME.get(words[0])
    assert words[0] in (*cli.COMMANDS, "--help", "--version")
    assert named is None or len(words) == 1 or words[1] in named.names
    return True


def test_pages_commands_and_snippets_are_found() -> None:
    """A changed layout must not empty these tests silently."""
    assert len(pages()) > 30 and len(COMMANDS) > 150 and len(RUNNABLE) > 40 and len(SNIPPETS) > 8
    assert sum(command.name.startswith("README.md") for command in RUNNABLE.values()) >= 7


def test_what_is_not_run_says_why() -> None:
    for page, text in pages().items():
        marks = len(re.findall(r"^<!-- not run", text, re.MULTILINE))
        reasons = [block.reason for block in blocks() if block.page == page and block.reason is not None]
        assert marks == len(reasons), f"{page}: a comment 'not run: ...' stands right before a block, and nowhere else"
        for reason in reasons:
            assert len(reason.split()) >= 2, f"{page}: '{reason}' does not say why the block is not run"


@pytest.mark.parametrize("page", sorted({re.split(r":", command.name)[0] for command in COMMANDS}))
def test_commands_are_understood(page: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed, and the configuration of a run resolved; nothing is run."""
    monkeypatch.chdir(tmp_path)
    parsed: list[Any] = []
    own = {command.words: command for command in COMMANDS if command.name.split(":")[0] == page}
    for command in own.values():
        words = understandable(command.words, run, tmp_path)
        if not command.fenced and mentions(words):
            continue
        with monkeypatch.context() as patched:
            patched.setattr(cli.Command, "run", lambda _, found: parsed.append(found))
            before = len(parsed)
            cli._run(words)
        assert len(parsed) == before + 1, command.name
        if words[0] == "train":
            resolve(parsed[-1].config, episode_decisions=100)


@pytest.mark.parametrize(
    "command",
    [pytest.param(own, id=own.name, marks=slow_unless_followed(own.name)) for own in RUNNABLE.values()],
)
def test_commands_run(command: Any, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = understandable(command.words, run, tmp_path, command.name.partition(":")[0])
    if serves(words):
        pytest.skip("waits for people; tests/labelling has them")
    assert cli.main(small(words)) in (0, *OTHER_CODES.get(words[0], ())), command.name


@pytest.mark.parametrize(
    "block", [pytest.param(own, id=own.name, marks=slow_unless_followed(own.name)) for own in SNIPPETS]
)
def test_snippets_run(block: Any, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = execute(block.text, run, tmp_path, monkeypatch)
    if "result" in left:
        assert left["result"].finished


def test_other_commands_name_what_there_is() -> None:
    """Targets of make, scripts, extras."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, line, _ in lines():
        if match := re.match(r"make ([\w-]+)", line):
            assert match[1] in targets, f"{name}: there is no target {match[1]} in the Makefile"
        for extras in re.findall(r"(?:ubp2|'\.)\[([\w,]+)\]", line):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), f"{name}: {line}"
        if match := re.match(r"python (\S+\.py)", line):
            assert (ROOT / match[1]).is_file(), f"{name}: there is no {match[1]}"
