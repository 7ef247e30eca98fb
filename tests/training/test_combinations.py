"""Every agent with every teacher and every query strategy: short runs that ask, learn, and stay finite.

The usual suite has a subset in which each agent, teacher and strategy occurs. The product is marked slow. A teacher
changes no compiled program, and so the six teachers are six seeds of one run there.
"""

from __future__ import annotations

import dataclasses
import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.helpers import assert_same_run, rows, table, tiny
from tests.training.test_population import SHORT, Uneven, alone, assert_close_run, train
from tests.training.test_resume import command, stop_at
from tests.training.test_session import make as near
from ubp2 import api
from ubp2.agents.registry import AGENTS as REGISTERED
from ubp2.config.files import from_dict, save_yaml
from ubp2.config.resolving import MODEL_FREE
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.preference.queries import STRATEGIES
from ubp2.preference.teachers import TEACHERS
from ubp2.storage import population
from ubp2.training import session

AGENTS = ("ubp2", "mbp", "pebble", "rune", "mrn", "surf", "sac")  # a new agent is added here, and to COVER
ASK = [agent for agent in AGENTS if agent != "sac"]  # sac has the true reward
PAIRS_AT_RANDOM = ["mbp"]  # whatever the config says
FIT_AT_SESSIONS = [agent for agent in MODEL_FREE if agent != "sac"]
TRAITS: dict[str, dict[str, float]] = {"skip": {"skip": 1.0}}  # skips what is below the mean, else it never would
POSITIVE = ("skip", "equal")  # they compare with shares of the return, which toy/reach has below 0
SMALL: dict[str, Any] = {"sac": {"neighbours": 16, "epochs": 3, "reset_updates": 3, "mrn_every": 20}}

# agent, teacher, strategy
COVER = [
    ("pebble", "oracle", "optimistic"),
    ("pebble", "noisy", "disagreement"),
    ("pebble", "skip", "kcenter"),
    ("pebble", "mistake", "promising"),
    ("rune", "myopic", "entropy"),
    ("rune", "equal", "uniform"),
    ("rune", "skip", "kcenter-entropy"),
    ("mrn", "mistake", "information-gain"),
    ("mrn", "noisy", "thompson"),
    ("mrn", "equal", "kcenter-disagreement"),
    ("surf", "mistake", "disagreement"),
    ("ubp2", "equal", "entropy"),
    ("mbp", "myopic", "uniform"),
]
QUICK = [COVER[0], COVER[7]]  # each agent alone has tests of its own


def config_of(agent: str, strategy: str = "uniform", teacher: str = "oracle") -> Config:
    return tiny(
        agent=agent,
        ceiling=agent == "sac",
        preferences={"strategy": strategy, "first": 40},
        teacher={"name": teacher, **TRAITS.get(teacher, {})},
        evaluation={"every": 0},
        **SMALL,
    )


def check(folder: Path, agent: str, teacher: str, strategy: str) -> None:
    """Who asked what and who answered, how often the reward was fitted, and that every number is one."""
    asked = table(folder / "labels.sqlite", "SELECT session, strategy, score FROM queries")
    assert {row[1] for row in asked} == {"uniform" if agent in PAIRS_AT_RANDOM else strategy}
    assert np.isfinite([row[2] for row in asked]).all()
    answers = table(folder / "labels.sqlite", "SELECT annotator, label, weight FROM answers")
    assert len(answers) == len(asked) and {row[0] for row in answers} == {teacher}
    given = [label for _, label, weight in answers if weight > 0]
    assert set(given) <= {0.0, 0.5, 1.0} and (0.5 in given) == (teacher == "equal")
    if teacher == "skip":
        assert 0 < len(given) <= 14, "who skips a lot has not answered all questions when the run ends"
    else:
        assert len(given) == len(answers) == 14
    check_numbers(folder)
    sessions = [row for row in rows(folder, "labels") if "labels/accuracy_before" in row]
    assert len(rows(folder, "fit")) == (len(sessions) if agent in FIT_AT_SESSIONS else 0)


def check_numbers(folder: Path) -> None:
    for row in rows(folder):
        strange = [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
        assert not strange, (row["kind"], row["decision"], strange)
    assert {"train", "eval"} <= {row["kind"] for row in rows(folder)}


def test_the_lists_are_complete() -> None:
    assert set(AGENTS) == set(REGISTERED)
    learned = [row for row in COVER if row[0] in MODEL_FREE]
    assert {teacher for _, teacher, _ in learned} == set(TEACHERS)
    assert {strategy for _, _, strategy in learned} == set(STRATEGIES)
    assert {agent for agent, teacher, _ in COVER if teacher != "oracle"} == set(ASK)


@pytest.mark.parametrize(
    ("agent", "teacher", "strategy"),
    [row if row in QUICK else pytest.param(*row, marks=pytest.mark.slow) for row in COVER],
)
def test_a_run_with_each_agent_teacher_and_strategy(agent: str, teacher: str, strategy: str, tmp_path: Path) -> None:
    env = near if teacher in POSITIVE else None
    result = api.train(config_of(agent, strategy, teacher), env=env, out=tmp_path / "run", progress=False)
    assert (result.decisions, result.labels, result.finished) == (300, 14, True)
    check(tmp_path / "run", agent, teacher, strategy)
    skipped = table(tmp_path / "run" / "labels.sqlite", "SELECT id FROM answers WHERE weight = 0")
    assert bool(skipped) == (teacher == "skip")


def test_a_run_of_sac_on_the_true_reward(tmp_path: Path) -> None:
    """It asks nobody."""
    result = api.train(config_of("sac"), out=tmp_path / "run", progress=False)
    assert (result.decisions, result.labels, result.finished) == (300, 0, True)
    assert table(tmp_path / "run" / "labels.sqlite", "SELECT * FROM queries") == []
    for act in (api.evaluate, api.load):
        with pytest.raises(UserError, match="a run of sac, which has no planner; use its policy"):
            act(tmp_path / "run", controller="planner")
    check_numbers(tmp_path / "run")


@pytest.fixture
def a_teacher_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed i has the i-th teacher."""
    answer, teachers = session.answer, [config_of("ubp2", teacher=name).teacher for name in TEACHERS]

    def by_seed(config: Config, *rest: Any) -> None:
        answer(dataclasses.replace(config, teacher=teachers[config.seed]), *rest)

    monkeypatch.setattr(session, "answer", by_seed)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("agent", [agent for agent in ASK if agent not in PAIRS_AT_RANDOM])
def test_every_agent_with_every_strategy_and_every_teacher(
    agent: str, strategy: str, tmp_path: Path, a_teacher_each: None
) -> None:
    config = config_of(agent, strategy)
    result = api.train(config, seeds=len(TEACHERS), env=near, out=tmp_path / "all", progress=False)
    assert result.finished and result.decisions == 300
    for folder, teacher in zip(population.members(tmp_path / "all"), TEACHERS, strict=True):
        check(folder, agent, teacher, strategy)


@pytest.mark.slow
@pytest.mark.parametrize("agent", PAIRS_AT_RANDOM)
def test_every_teacher_of_an_agent_that_asks_at_random(agent: str, tmp_path: Path, a_teacher_each: None) -> None:
    api.train(config_of(agent), seeds=len(TEACHERS), env=near, out=tmp_path / "all", progress=False)
    for folder, teacher in zip(population.members(tmp_path / "all"), TEACHERS, strict=True):
        check(folder, agent, teacher, "uniform")


@pytest.mark.slow
def test_pebble_killed_and_stopped_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """SIGKILL between a session and the next checkpoint, SIGTERM after the session that follows."""
    config, whole, folder = config_of("pebble", "disagreement", "noisy"), tmp_path / "whole", tmp_path / "run"
    assert api.train(config, out=whole, progress=False).finished
    save_yaml(config, tmp_path / "config.yaml")
    start = ["train", "--config", tmp_path / "config.yaml", "--out", folder, "--quiet"]
    ended = command(start, "decision", 83, signal.SIGKILL)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    result = stop_at(61, signal.SIGTERM, lambda: api.resume(folder, progress=False))
    assert (result.decisions, result.finished) == (131, False)
    assert api.resume(folder, progress=False).finished
    assert_same_run(folder, whole)


@pytest.mark.slow
def test_each_seed_of_pebble_does_what_it_would_do_alone(tmp_path: Path) -> None:
    """With sessions, and so fits and new critics, at different decisions."""
    config = from_dict({"agent": "pebble", "seed": 3, "preferences": {"first": 40}, **SMALL}, SHORT)
    members = train(config, tmp_path / "all", Uneven)
    for seed, folder in zip((3, 4), members, strict=True):
        assert_close_run(folder, alone(config, tmp_path / f"alone-{seed}", seed, Uneven))
    fits = [[row["decision"] for row in rows(folder, "fit")] for folder in members]
    assert fits[0] and fits[1] and fits[0] != fits[1], "the seeds must not learn together, or this proves little"


@pytest.mark.slow
def test_the_first_session_of_pebble_comes_when_it_should_and_asks_at_random(tmp_path: Path) -> None:
    """Whatever the strategy: a reward that has not been fitted has nothing to say."""
    asked = {}
    for strategy in ("uniform", "disagreement"):
        config = from_dict({"preferences": {"first": 100}}, config_of("pebble", strategy))
        assert api.train(config, out=tmp_path / strategy, progress=False).finished
        columns = "session, decision, left_episode, left_start, right_episode, right_start"
        asked[strategy] = table(tmp_path / strategy / "labels.sqlite", f"SELECT {columns} FROM queries")
    decisions = sorted({row[1] for row in asked["uniform"]})
    assert decisions == [100, 140, 180, 220], "sessions at ends of episodes of 20, the first at 100, then every 40"
    first = {name: [row for row in rows if row[0] == 0] for name, rows in asked.items()}
    assert first["uniform"] == first["disagreement"] != []
    assert asked["uniform"] != asked["disagreement"]
