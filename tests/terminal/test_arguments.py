"""The options as completion and suggestions know them are those of the parser; commands name the same thing alike."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ubp2.terminal.arguments import Arguments, arguments_of
from ubp2.terminal.cli import COMMANDS, main
from ubp2.terminal.usage import GROUPS

POSITIONALS_WITH_CHOICES = {"encoder": "train", "lab": "reward"}  # commands with a name that is an argument of theirs


def commands() -> Iterator[tuple[str, Arguments]]:
    """Every command, and each name of those that have names."""
    for name, command in COMMANDS.items():
        own = arguments_of(command.arguments)
        if not own.named:
            yield name, own
        for word, kind in own.named.items():
            yield f"{name} {word}", arguments_of(kind)


ALL = dict(commands())


@pytest.mark.parametrize("line", ALL)
def test_the_options_are_those_of_the_help(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    name = f"{line} {POSITIONALS_WITH_CHOICES[line]}" if line in POSITIONALS_WITH_CHOICES else line
    assert main([*name.split(), "--help"]) == 0
    shown = set()
    for header in re.findall(r"^. (?:-h, )?(--[a-z][\w.-]*(?:, --[\w.-]+)*)", capsys.readouterr().out, re.MULTILINE):
        shown |= set(header.split(", "))
    assert shown == set(ALL[line].options)


def test_every_command_has_its_place_in_the_help() -> None:
    placed = [name for names in GROUPS.values() for name in names]
    assert len(placed) == len(set(placed))
    assert set(COMMANDS) <= set(placed)


@pytest.mark.parametrize("line", ALL)
def test_the_same_thing_has_the_same_name(line: str) -> None:
    """Every command takes --json; a run folder is called RUN and comes first; nobody says --output or --verbose."""
    arguments = ALL[line]
    assert "--json" in arguments.options
    others = {"--output", "--output-dir", "--dir", "--folder", "--verbose", "--silent", "--n-steps", "--num-seeds"}
    assert not others & set(arguments.options)
    names = [argument.metavar.strip("[]").removesuffix(" ...") for argument in arguments.positionals]
    assert "RUN" not in names[1:]
    assert all(names) or line in POSITIONALS_WITH_CHOICES or line == "completion"


def test_the_help_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for line in ("--help", "train --help", "eval --help", "label --help"):
        assert main(line.split()) == 0
        _, _, sentence, *lines = capsys.readouterr().out.splitlines()  # tyro leaves the sentence to the terminal
        assert sentence and max(map(len, lines)) <= 80
