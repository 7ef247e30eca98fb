"""Every command and snippet of the README runs, made small: the same words, then flags that shrink the run."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

import ubp2
from ubp2 import cli
from ubp2.config_io import load_yaml
from ubp2.configs import Config
from ubp2.presets import preset as real_preset

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
SMALL = shlex.split(
    "--steps 400 --training.warmup 100 --training.warmup-updates 2 --training.batch-size 8 --model.width 16 "
    "--model.depth 1 --planner.samples 8 --planner.elites 4 --planner.policy-samples 2 --planner.iterations 1 "
    "--planner.horizon 2 --preferences.every 200 --preferences.per-session 2 --preferences.budget 2 "
    "--preferences.candidates 8 --evaluation.every 0 --evaluation.episodes 1 --environment.in-process"
)


def blocks(language: str) -> list[str]:
    """The fenced blocks of the README in one language ('' for none)."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Each `ubp2 ...` line, without its comment."""
    lines = [line.split("#")[0].strip() for block in blocks("") for line in block.splitlines()]
    return [line for line in lines if line.startswith("ubp2 ")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that stands for RUN."""
    folder = tmp_path_factory.mktemp("readme") / "run"
    assert cli.main(["train", *SMALL, "--quiet", "--out", str(folder)]) == 0
    return folder


def test_the_readme_has_commands_and_a_snippet() -> None:
    """The commands are found at all: a changed layout of the README must not empty this file silently."""
    assert len(commands()) >= 7 and len(blocks("python")) >= 1


@pytest.mark.parametrize("command", commands())
def test_command_runs(command: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [str(run) if word == "RUN" else word for word in shlex.split(command)[1:]]
    if words[0] == "train" and "--resume" not in words:
        words = [*without_steps(words), *SMALL, "--quiet"]
    if words[0] == "eval":
        words[words.index("--episodes") + 1] = "2"
    assert cli.main(words) == 0


def without_steps(words: list[str]) -> list[str]:
    """Drop --steps N, which SMALL gives."""
    if "--steps" not in words:
        return words
    at = words.index("--steps")
    return words[:at] + words[at + 2 :]


@pytest.mark.parametrize("snippet", blocks("python"))
def test_snippet_runs(snippet: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = load_yaml(run / "config.yaml")

    def preset(name: str, env: str) -> Config:
        assert real_preset(name, env).env == env
        return dataclasses.replace(small, env=env)

    monkeypatch.setattr(ubp2, "preset", preset)
    namespace: dict = {}
    exec(compile(snippet, "README.md", "exec"), namespace)
    assert namespace["result"].finished and namespace["action"].shape == (1,)
