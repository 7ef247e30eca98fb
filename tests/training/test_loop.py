"""Algorithm 1 as its traces show it: the files of a run, its phases, its labels, and where the true reward is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

from tests.training.helpers import (
    agent_arrays,
    assert_same_arrays,
    labels,
    rows,
    saved,
    table,
    tiny,
    untimed,
)
from ubp2 import api
from ubp2.agents.registry import make_agent
from ubp2.config.files import load_yaml
from ubp2.config.resolving import resolve
from ubp2.envs.toy import Reach
from ubp2.preference.store import LabelStore
from ubp2.storage.archive import EpisodeArchive
from ubp2.training import loop, session
from ubp2.training.programs import Programs
from ubp2.training.records import memory
from ubp2.training.state import Device

LOSSES = {"loss/consistency", "loss/preference", "loss/value", "loss/policy"}
LAMBDAS = {"lambda/reward", "lambda/dynamics", "lambda/value"}
UNCERTAINTIES = {"uncertainty/reward", "uncertainty/dynamics", "uncertainty/value"}
PLAN = {"bonus/reward", "bonus/dynamics", "bonus/value", "plan/reward", "plan/value"}
EPISODE = {"episode/return", "episode/success_any", "episode/success_last", "episode/length"}
TIMES = {"time/decisions_per_second", "time/compiled"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run from preferences on toy/reach, with a row for every episode."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "ROW_EVERY", 20)
        folder = tmp_path_factory.mktemp("loop") / "run"
        result = api.train(tiny(), out=folder, progress=False)
    assert result == api.RunResult(folder, 300, 14, True, result.evaluation)
    return folder


@pytest.fixture(scope="module")
def ceiling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in ceiling mode."""
    folder = tmp_path_factory.mktemp("loop") / "ceiling"
    assert api.train(tiny(ceiling=True), out=folder, progress=False).labels == 0
    return folder


def test_a_run_leaves_a_whole_folder(run: Path) -> None:
    assert {path.name for path in run.iterdir()} >= {
        "config.yaml",
        "info.json",
        "metrics.jsonl",
        "labels.sqlite",
        "episodes.sqlite",
        "checkpoints",
        "tensorboard",
        "videos",
    }
    assert load_yaml(run / "config.yaml") == resolve(tiny(), 20)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["000000280", "000000300"]
    assert sum(path.stat().st_size for path in (run / "tensorboard").iterdir()) > 1000
    lengths = table(run / "episodes.sqlite", "SELECT length, terminated FROM episodes")
    assert lengths == [(20, 0)] * 15


def test_rows_have_the_promised_keys(run: Path) -> None:
    learning = [row for row in rows(run, "train") if row["decision"] > 60]
    assert learning
    for row in learning:
        assert row.keys() >= LOSSES | LAMBDAS | UNCERTAINTIES | EPISODE | TIMES | {"labels/used"}
    for row in rows(run, "labels"):
        assert row.keys() == {"kind", "decision", "labels/used", "labels/accuracy_before", "labels/score"}
        assert 0 <= row["labels/accuracy_before"] <= 1
    scores = {f"{who}/{what}" for who in ("policy", "planner") for what in ("success_any", "success_last", "return")}
    for row in rows(run, "eval"):
        assert row.keys() >= scores | {"reward/rank_correlation"}
        assert -1 <= row["reward/rank_correlation"] <= 1
    assert [row["decision"] for row in rows(run, "eval")] == [150, 300]
    for row in rows(run):
        assert None not in row.values(), f"a value is not finite in {row}"


def test_rows_of_the_training_episodes_tell_the_true_return(run: Path) -> None:
    with EpisodeArchive(run / "episodes.sqlite") as archive:
        told = {row["decision"] // 20 - 1: row["episode/return"] for row in rows(run, "train")}
        for index, value in told.items():
            assert value == pytest.approx(archive.read(index).true_reward.sum())
    assert len(told) == 15


class Awake(Exception):
    """The device was woken."""


def test_the_first_decision_waits_for_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has been sent, and its time taken, before parameters are made."""
    decided: list[bool] = []

    def wake(device: Device, programs: Programs) -> None:
        raise Awake

    monkeypatch.setattr(loop.Stopwatch, "decided", lambda _, planned: decided.append(planned))
    monkeypatch.setattr(Device, "wake", wake)
    with pytest.raises(Awake):
        api.train(tiny(), out=tmp_path / "run", progress=False)
    assert decided == [False]


def test_phases_are_random_then_planning_then_the_policy(run: Path) -> None:
    planned = {row["decision"]: row.keys() >= PLAN for row in rows(run, "train")}
    # Warm-up until 60; the last label is asked at 160, the end of an episode that was planned.
    assert planned == {t: 60 < t <= 160 for t in range(20, 301, 20)}
    for row in rows(run, "train"):
        assert not (row.keys() & PLAN) or planned[row["decision"]]
        assert (row.keys() >= LOSSES) == (row["decision"] > 60)
    random = [np.random.default_rng([0, 2, t]).uniform(-1.0, 1.0, 2).astype(np.float32) for t in range(60)]
    with EpisodeArchive(run / "episodes.sqlite") as archive:
        actions = np.concatenate([episode.action for episode in archive.iterate()])
    np.testing.assert_array_equal(actions[:60], random)
    assert np.abs(actions).max() <= 1 and len(np.unique(actions[60:], axis=0)) > 200


def test_ceiling_mode_plans_to_the_end_and_asks_nothing(ceiling: Path) -> None:
    learning = [row for row in rows(ceiling, "train") if row["decision"] > 60]
    assert [row["decision"] for row in learning] == [100, 200, 300]
    for row in learning:
        assert row.keys() >= PLAN | LAMBDAS | {"loss/reward"} and "loss/preference" not in row
    assert rows(ceiling, "labels") == [] and labels(ceiling) == []


def test_sessions_come_on_time_and_spend_the_budget_exactly(run: Path) -> None:
    assert [(row["decision"], row["labels/used"]) for row in rows(run, "labels")] == [
        (40, 4),
        (80, 8),
        (120, 12),
        (160, 14),
    ]
    used = {row["decision"]: row["labels/used"] for row in rows(run, "train")}
    assert used == {t: min(t // 40 * 4, 14) for t in range(20, 301, 20)}
    asked = table(run / "labels.sqlite", "SELECT decision, session, position FROM queries WHERE current ORDER BY id")
    assert asked == [(40 * (s + 1), s, p) for s in range(4) for p in range(4 if s < 3 else 2)]
    assert {saved(run).meta[name] for name in ("labels", "asked", "cursor")} == {14}


def test_a_session_waits_for_the_end_of_the_episode(tmp_path: Path) -> None:
    config = tiny(steps=160, preferences={"every": 30}, evaluation={"every": 0})
    api.train(config, out=tmp_path / "run", progress=False)
    # 30 falls into the episode that ends at 40, 60 is an end, 90 waits until 100, 120 is an end.
    assert [row["decision"] for row in rows(tmp_path / "run", "labels")] == [40, 60, 100, 120]


def test_questions_are_slices_of_the_archive_and_answers_compare_true_returns(run: Path) -> None:
    with EpisodeArchive(run / "episodes.sqlite") as archive, LabelStore(run / "labels.sqlite") as store:
        answers = store.answers()
        assert len(answers) == 14
        for answered in answers:
            query, returns = answered.query, []
            for obs, action, index, start in (
                (query.left_obs, query.left_action, query.left_episode, query.left_start),
                (query.right_obs, query.right_action, query.right_episode, query.right_start),
            ):
                assert index < answered.decision // 20, "the episode had not happened yet"
                episode = archive.read(index)
                np.testing.assert_array_equal(obs, episode.obs[start : start + 5])
                np.testing.assert_array_equal(action, episode.action[start : start + 5])
                returns.append(episode.true_reward[start : start + 5].sum())
            assert answered.label == (returns[0] > returns[1]) and returns[0] != returns[1]
            assert (answered.weight, answered.annotator) == (1.0, "oracle")
    assert {answered.label for answered in answers} == {0.0, 1.0}, "one answer for all would prove little"


# The true reward never reaches the agent (DESIGN, idea 3).


class Rescaled(Reach):
    """Reach with another reward that prefers the same segments."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, 8.0 * reward + 3.0, terminated, truncated, info


class Opposite(Reach):
    """Reach with the opposite reward: the other answer to every question."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, -reward, terminated, truncated, info


def _learned(folder: Path) -> list[dict[str, Any]]:
    """The rows without what is measured with the true reward."""
    measured = ("episode/", "policy/return", "planner/return", "reward/rank_correlation")
    return [{key: value for key, value in row.items() if not key.startswith(measured)} for row in untimed(folder)]


@pytest.mark.parametrize(("env", "same"), [(Rescaled, True), (Opposite, False)])
def test_only_the_answers_carry_the_reward(
    run: Path, env: Callable[[], gymnasium.Env], same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "ROW_EVERY", 20)
    api.train(tiny(), env=env, out=tmp_path / "run", progress=False)
    if not same:  # the same check sees a reward that does arrive, by the one way it may
        with pytest.raises(AssertionError):
            assert_same_arrays(agent_arrays(run), agent_arrays(tmp_path / "run"))
        return
    assert_same_arrays(saved(run).arrays, saved(tmp_path / "run").arrays)
    assert labels(run) == labels(tmp_path / "run")
    assert _learned(run) == _learned(tmp_path / "run")
    ours, theirs = ([row["episode/return"] for row in rows(f, "train")] for f in (run, tmp_path / "run"))
    np.testing.assert_allclose(8.0 * np.array(ours) + 3.0 * 20, theirs)


def test_between_sessions_nobody_reads_the_true_reward(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive holds NaN but while the teacher answers, and so does what the loop hands to the device."""
    answer, make, hidden, told = session.answer, loop.shared_programs, {}, []

    def guarded(config: Any, teacher: Any, archive: EpisodeArchive, *rest: Any) -> None:
        with archive._database.write() as connection:
            connection.executemany("UPDATE episodes SET true_reward = ? WHERE number = ?", hidden.values())
        answer(config, teacher, archive, *rest)
        with archive._database.write() as connection:
            found = connection.execute("SELECT true_reward, number FROM episodes").fetchall()
            hidden.update({number: (reward, number) for reward, number in found})
            nans = [(np.full(len(reward) // 8, np.nan).tobytes(), number) for reward, number in found]
            connection.executemany("UPDATE episodes SET true_reward = ? WHERE number = ?", nans)

    def blinded(*arguments: Any) -> Programs:
        programs = make(*arguments)

        return programs._replace(record=_Blinded(programs.record, told))

    monkeypatch.setattr(session, "answer", guarded)
    monkeypatch.setattr(loop, "shared_programs", blinded)
    monkeypatch.setattr(loop, "ROW_EVERY", 20)
    api.train(tiny(), out=tmp_path / "run", progress=False)
    with EpisodeArchive(tmp_path / "run" / "episodes.sqlite") as archive:
        assert np.isnan([archive.rewards(i, 0, 20) for i in range(8)]).all(), "the guard did not work"
    assert len(told) == 300 and len(hidden) == 8
    assert_same_arrays(agent_arrays(run), agent_arrays(tmp_path / "run"))
    assert labels(run) == labels(tmp_path / "run")
    assert untimed(run) == untimed(tmp_path / "run")


class _Blinded:
    """The program `record`, told that every reward is NaN."""

    def __init__(self, program: Any, told: list[Any]) -> None:
        self._program, self._told = program, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def __call__(self, *arguments: Any) -> Any:
        *others, true_reward = arguments
        self._told.append(true_reward)
        return self._program(*others, np.full_like(true_reward, np.nan))


def _names(tree: Any) -> Iterator[str]:
    """The names on the way to every array of a pytree."""
    for path, _ in jax.tree_util.tree_leaves_with_path(tree):
        yield jax.tree_util.keystr(path)


def test_nothing_on_the_device_has_a_place_for_a_reward() -> None:
    for ceiling_mode in (False, True):
        config = resolve(dataclasses.replace(tiny(), ceiling=ceiling_mode), 20)
        remembered = memory(config, 4, 2, 20)
        assert any("reward" in name for name in _names(remembered)) == ceiling_mode
        agent = jax.eval_shape(make_agent(config, 4, 2).init, jax.random.key(0))
        # What the agent has of that name are the weights of its own reward model, their optimiser, and their units.
        places = [name for name in _names(agent) if "reward" in name and name != ".reward_units"]
        assert places and all(".model.reward." in n or n.startswith(".model_optimizer[") for n in places)
    assert {field.name for field in dataclasses.fields(Device)} == {"agent", "memory", "carry", "metrics", "health"}
