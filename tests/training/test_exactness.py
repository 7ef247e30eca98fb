"""Run to 2N = run to N, SIGKILL, resume to 2N, bit for bit on a CPU: every agent, one seed and several, people too."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import assert_same_run, saved, tiny
from tests.training.test_people import Person
from tests.training.test_resume import command
from ubp2 import api
from ubp2.agents.registry import AGENTS
from ubp2.config.files import save_yaml
from ubp2.config.schema import Config
from ubp2.preference.store import Pending
from ubp2.storage import population

N = 100
QUICK = {("pebble", 1)}  # the others with `make test-all`; ubp2 has tests of its own in test_resume.py


def config(agent: str, **changes: Any) -> Config:
    """Sessions before and after N, a checkpoint before it, an evaluation after it."""
    return tiny(
        agent=agent,
        steps=2 * N,
        ceiling=agent == "sac",  # which has nothing else to learn from
        training={"warmup": 40, "warmup_updates": 3},
        evaluation={"every": 150},
        **changes,
    )


def killed(own: Config, folder: Path, seeds: int = 1, at: int = N) -> None:
    """`ubp2 train` that kills itself at decision `at`."""
    save_yaml(own, folder.with_suffix(".yaml"))
    start = ["train", "--config", folder.with_suffix(".yaml"), "--seeds", str(seeds), "--out", folder, "--quiet"]
    ended = command(start, "decision", at, signal.SIGKILL)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.mark.parametrize(
    ("agent", "seeds"),
    [
        pytest.param(agent, seeds, marks=() if (agent, seeds) in QUICK else pytest.mark.slow)
        for agent in AGENTS
        for seeds in (1, 2)
    ],
)
def test_every_agent(tmp_path: Path, agent: str, seeds: int) -> None:
    own, whole, folder = config(agent), tmp_path / "whole", tmp_path / "killed"
    assert api.train(own, seeds=seeds, out=whole, progress=False).finished
    killed(own, folder, seeds)
    assert api.resume(folder, progress=False).finished
    for one, other in zip(population.members(folder), population.members(whole), strict=True):
        assert_same_run(one, other)


class Unsure(Person):
    """Cannot tell the second question of each session, which then costs no budget."""

    def weigh(self, question: Pending) -> float:
        return float(question.position != 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "at"),
    [
        ("ubp2", 90),
        pytest.param("ubp2", 130, marks=pytest.mark.slow),
        pytest.param("pebble", 130, marks=pytest.mark.slow),
    ],
)
def test_labels_of_people_arrive_in_between(tmp_path: Path, agent: str, at: int) -> None:
    """A person answers while the run trains, is dead, and goes on; sessions at 40, 80, 120 and 160.

    The budget ends in the third session, so that whoever counts it otherwise asks otherwise.
    """
    own = config(agent, teacher={"name": "human", "serve": False}, preferences={"budget": 9})
    folders = [tmp_path / "whole", tmp_path / "killed"]
    people = [Unsure(folder) for folder in folders]
    for person in people:
        person.start()
    try:
        assert api.train(own, out=folders[0], progress=False).finished
        killed(own, folders[1], at=at)
        assert api.resume(folders[1], progress=False).finished
    finally:
        for person in people:
            person.done.set()
            person.join()
    assert_same_run(folders[1], folders[0])
    assert saved(folders[1]).meta["asked"] == 9
