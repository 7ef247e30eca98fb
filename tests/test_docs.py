"""Every command and snippet of the README runs, made small: the same words, then flags that shrink the run.

So does the teacher that docs/teachers.md adds; its commands, and those of the pages of the agents, are parsed.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import ubp2
from ubp2.agents.registry import AGENTS
from ubp2.config.files import load_yaml
from ubp2.config.presets import preset as real_preset
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.terminal import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEACHERS = (ROOT / "docs" / "teachers.md").read_text(encoding="utf-8")
SMALL = shlex.split(
    "--steps 400 --training.warmup 100 --training.warmup-updates 2 --training.batch-size 8 --model.width 16 "
    "--model.depth 1 --planner.samples 8 --planner.elites 4 --planner.policy-samples 2 --planner.iterations 1 "
    "--planner.horizon 2 --preferences.every 200 --preferences.first 200 --preferences.per-session 2 "
    "--preferences.budget 2 --preferences.candidates 8 --evaluation.every 0 --evaluation.episodes 1 "
    "--environment.in-process"
)


def blocks(language: str, page: str = README) -> list[str]:
    """The fenced blocks of a page in one language ('' for none)."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


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


def execute(snippet: str, run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """What a snippet leaves behind, its presets made as small as `run`."""
    monkeypatch.chdir(folder)
    small = load_yaml(run / "config.yaml")

    def preset(name: str, env: str) -> Config:
        assert real_preset(name, env).env == env
        return dataclasses.replace(small, env=env)

    monkeypatch.setattr(ubp2, "preset", preset)
    namespace: dict = {}
    exec(compile(snippet, "a page", "exec"), namespace)
    return namespace


@pytest.mark.parametrize("snippet", blocks("python"))
def test_snippet_runs(snippet: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = execute(snippet, run, tmp_path, monkeypatch)
    assert namespace["result"].finished and namespace["action"].shape == (1,)


def test_the_teacher_of_the_page_teaches(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (snippet,) = blocks("python", TEACHERS)
    namespace = execute(snippet, run, tmp_path, monkeypatch)
    assert namespace["result"].finished and namespace["result"].labels == 2
    rewards = np.random.default_rng(0).normal(size=(2, 1000, 5))
    labels, weights = namespace["impressed"](1, *rewards)
    assert 0.85 < weights.mean() < 0.95 and 0.45 < labels.mean() < 0.55


def test_commands_with_teachers_are_understood() -> None:
    found = dict.fromkeys(re.findall(r"`ubp2 (train [^`]*--teacher [^`]*)`", TEACHERS))
    configs = [cli._parse_train(shlex.split(line)[1:]) for line in found]
    names = [parsed.config.teacher.name for parsed in configs if parsed]
    assert names == ["oracle", "noisy", "myopic", "mistake", "skip", "equal", "noisy"]
    parsed = cli._parse_train(["--teacher.compat", "bpref-code"])
    assert parsed and parsed.config.teacher.compat == "bpref-code"


def test_every_agent_has_a_page_whose_commands_are_understood() -> None:
    index = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    for agent in AGENTS:
        assert f"[{agent}](agents/{agent}.md)" in index
        page = (ROOT / "docs" / "agents" / f"{agent}.md").read_text(encoding="utf-8")
        (command,) = re.findall(r"\*\*Command.\*\* `ubp2 train ([^`]*)`", page)
        parsed = cli._parse_train(shlex.split(command))
        assert parsed and resolve(parsed.config, episode_decisions=100).agent == agent
        for section, field in re.findall(r"`(sac|preferences|training)\.(\w+)", page):
            assert hasattr(getattr(parsed.config, section), field), f"{page}: {section}.{field}"
