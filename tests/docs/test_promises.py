"""What single pages promise beyond their commands: a teacher that teaches, a page an agent, every metric named."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.docs.pages import blocks, pages
from tests.docs.staging import SMALL, execute
from ubp2.agents.registry import AGENTS
from ubp2.config.resolving import resolve
from ubp2.terminal import cli


def test_the_teacher_of_the_page_teaches(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = next(block for block in blocks("python") if block.page == "docs/guides/teacher.md")
    namespace = execute(block.text, run, tmp_path, monkeypatch)
    assert namespace["result"].finished and namespace["result"].labels == 2
    rewards = np.random.default_rng(0).normal(size=(2, 1000, 5))
    labels, weights = namespace["cautious"](1, *rewards)
    assert 0.9 < weights.mean() <= 1 and 0.45 < labels.mean() < 0.55


def test_every_teacher_has_a_command() -> None:
    found = dict.fromkeys(re.findall(r"`ubp2 (train [^`]*--teacher [^`]*)`", pages()["docs/teachers.md"]))
    configs = [cli._parse_train(shlex.split(line)[1:]) for line in found]
    names = [parsed.config.teacher.name for parsed in configs if parsed]
    assert names == ["oracle", "noisy", "myopic", "mistake", "skip", "equal", "noisy"]


def test_every_agent_has_a_page_whose_commands_are_understood() -> None:
    for agent in AGENTS:
        assert f"[{agent}](agents/{agent}.md)" in pages()["docs/agents.md"]
        page = pages()[f"docs/agents/{agent}.md"]
        (command,) = re.findall(r"\*\*Command.\*\* `ubp2 train ([^`]*)`", page)
        parsed = cli._parse_train(shlex.split(command))
        assert parsed and resolve(parsed.config, episode_decisions=100).agent == agent
        for section, field in re.findall(r"`(sac|preferences|training)\.(\w+)", page):
            assert hasattr(getattr(parsed.config, section), field), f"{page}: {section}.{field}"


@pytest.mark.parametrize(
    "agent", ["ubp2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ceiling", "pebble", "surf", "mrn"))]
)
def test_the_dashboard_explains_every_number(agent: str, run: Path, tmp_path: Path) -> None:
    """Those that a run of this kind really writes."""
    if agent != "ubp2":
        words = ["--ceiling"] if agent == "ceiling" else ["--agent", agent]
        run = tmp_path / "run"
        arguments = ["train", *SMALL, *words, "--environment.in-process", "--quiet", "--out", str(run)]
        assert cli.main(arguments) == 0
    explained = set(re.findall(r"`([a-z]+/[a-z_]+)`", pages()["docs/dashboard.md"]))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    written = {name for row in rows for name in row} - {"kind", "decision"}
    assert written and not written - explained, f"docs/dashboard.md does not explain {written - explained}"
