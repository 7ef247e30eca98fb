"""Tab completion in real shells: what they offer is what `ubp2` takes."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.helpers import environment
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.storage.runs import Run
from ubp2.terminal.cli import COMMANDS
from ubp2.terminal.completion import SCRIPTS, candidates

KINDS = {name: command.arguments for name, command in COMMANDS.items()}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], ["train"]),
        (["--v"], ["--version"]),
        (["bench", "up"], ["update"]),
        (["bench", "plan", "--prec"], ["--precision"]),
        (["labels", "ve"], ["verify"]),
        (["encoder", ""], ["train"]),
        (["train", "--planner.hor"], ["--planner.horizon"]),
        (["train", "--no-col"], ["--no-color"]),
        (["train", "--env", "toy/"], ["toy/reach"]),
        (["train", "--env=toy/"], ["--env=toy/reach"]),
        (["train", "--env", "=", "toy/"], ["toy/reach"]),  # as bash splits it
        (["train", "--env", "="], ["toy/reach"]),
        (["train", "--preset", ""], ["best", "cpu", "demo", "paper", "pebble"]),
        (["train", "--agent", "p"], ["pebble"]),
        (["train", "--teacher", "no"], ["noisy"]),
        (["train", "--json", "--planner.optimizer", ""], ["mppi", "cem"]),
        (["reproduce", "table"], ["table1", "table2", "table-horizon", "table-conservative"]),
        (["report", "x", "--columns", "average", "r"], []),  # a value, or the next run: the shell offers files
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["nothing", "x"], []),
        (["train", "--config", ""], []),
    ],
    ids=" ".join,
)
def test_what_may_stand_at_the_cursor(
    words: list[str], expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = candidates(words, KINDS)
    assert found[: len(expected)] == expected if words[-1] == "=" else found == expected


def test_dm_control_is_asked_when_its_name_is_begun() -> None:
    pytest.importorskip("dm_control")
    assert candidates(["train", "--env", "dmc/walker-w"], KINDS) == ["dmc/walker-walk"]
    assert not any(name.startswith("dmc/") for name in candidates(["train", "--env", ""], KINDS))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs, in which `ubp2` is a command."""
    monkeypatch.chdir(tmp_path)
    for name in ("runs/one", "runs/two of them"):
        Run.create(tmp_path / name, resolve(preset("cpu", "toy/reach"), 50)).close()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ubp2"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ubp2 "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return tmp_path


@pytest.mark.parametrize("before", [["eval"], ["eval", "--episodes", "3"], ["info"], ["train", "--resume"], ["label"]])
def test_run_folders(before: list[str], folder: Path) -> None:
    assert set(candidates([*before, ""], KINDS)) == {"runs/one", "runs/two of them"}
    assert candidates([*before, "runs/o"], KINDS) == ["runs/one"]
    assert candidates([*before, "nowhere"], KINDS) == []


# Each shell with its script, asked what it would offer at the end of a line.
ASK = {
    "bash": """source <(ubp2 completion bash)
        COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); _ubp2
        if (( ${{#COMPREPLY[@]}} )); then printf '%s\\n' "${{COMPREPLY[@]}}"; else echo files; fi
        complete -p ubp2 >&2""",
    "zsh": """autoload -U compinit; compinit -D -u; source <(ubp2 completion zsh)
        compadd() {{ shift; print -rl -- "$@" }}; _files() {{ print files }}
        words=({words}); CURRENT=$#words; _ubp2""",
    "fish": """ubp2 completion fish | source; complete -C "{line}" """,
}


@pytest.mark.parametrize("shell", ASK)
def test_a_real_shell(shell: str, folder: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")

    def offered(line: str) -> list[str]:
        words = " ".join(f"'{word}'" for word in line.split(" "))
        options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
        command = [program, *options, "-c", ASK[shell].format(words=words, line=line)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment(), timeout=60)
        assert done.returncode == 0, done.stderr
        return [row.partition("\t")[0] for row in done.stdout.splitlines() if row]

    assert offered("ubp2 compl") == ["completion"]
    assert offered("ubp2 train --env toy/") == ["toy/reach"]
    spaced = "runs/two of them" if shell != "bash" else r"runs/two\ of\ them"  # the others quote by themselves
    assert set(offered("ubp2 eval runs/")) >= {"runs/one", spaced}
    if shell != "fish":  # which offers files besides
        assert offered("ubp2 train --config ") == ["files"]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_scripts_parse(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(SCRIPTS[shell])
    subprocess.run([program, "-n", tmp_path / "script"], check=True)
