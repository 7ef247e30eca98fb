"""Colours, as a terminal and a file get them: one rule for help, errors, progress and the doctor."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pytest

from tests.training.helpers import environment
from ubp2.terminal import colour
from ubp2.terminal.progress import Progress

ESCAPE = "\x1b["


def on_terminal(*arguments: str, **variables: str) -> str:
    """What `ubp2 ...` writes to a terminal."""
    leader, follower = pty.openpty()
    env = {name: value for name, value in environment().items() if name not in ("NO_COLOR", "UBP2_COLOR")}
    command = [sys.executable, "-m", "ubp2", *arguments]
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=env | {"TERM": "xterm"} | variables
    ) as process:
        os.close(follower)
        written = b""
        try:
            while piece := os.read(leader, 65536):
                written += piece
        except OSError:  # Linux says so when the last writer is gone
            pass
    os.close(leader)
    assert process.returncode in (0, 2)
    return written.decode()


@pytest.mark.parametrize("line", ["eval --help", "eval nowhere", "eval"], ids=["help", "sentence", "box"])
def test_a_terminal_has_colours_unless_they_are_not_wanted(line: str) -> None:
    words = line.split()
    assert ESCAPE in on_terminal(*words)
    assert ESCAPE not in on_terminal(*words, "--no-color")
    assert ESCAPE not in on_terminal(*words, NO_COLOR="1")
    assert ESCAPE not in on_terminal(*words, TERM="dumb")


def test_what_is_piped_is_plain_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    for variables, expected in (({}, False), ({"UBP2_COLOR": "always"}, True)):
        command = [sys.executable, "-m", "ubp2", "eval", "--help"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment() | variables)
        assert (ESCAPE in done.stdout) is expected


def test_always_and_never_come_before_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("UBP2_COLOR", "always")
    assert colour.paint("x", "red", io.StringIO()) == "\x1b[31mx\x1b[0m"
    with colour.chosen(["train", "--no-color", "--steps", "3"]) as words:
        assert words == ["train", "--steps", "3"]
        assert colour.paint("x", "red", io.StringIO()) == "x"
    assert os.environ["UBP2_COLOR"] == "always"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("mode", "expected"), [("never", False), ("always", True)])
def test_the_bar_follows_the_rule(mode: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without colours it still moves: codes of the cursor are no colours."""
    monkeypatch.setenv("UBP2_COLOR", mode)
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    with Progress(10, stream=stream) as progress:
        progress.update(5, phase="planning")
    shown = stream.getvalue()
    assert "planning" in shown
    assert any(f"\x1b[{code}" in shown for code in ("3", "1;3", "38")) is expected
