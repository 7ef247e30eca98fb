"""Sessions with teachers who err, skip and tie, or who are the user's own: what is kept, counted and learned from."""

from __future__ import annotations

import dataclasses
import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.training.helpers import agent_arrays, assert_same_run, labels, rows, saved, table, tiny
from tests.training.test_resume import stop_at
from ubp2 import api
from ubp2.config.files import save_yaml
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.envs.base import EnvSpec
from ubp2.envs.toy import Reach
from ubp2.errors import UserError
from ubp2.preference.store import LabelStore
from ubp2.preference.teachers import Situation, make_teacher
from ubp2.storage import population
from ubp2.storage.archive import EpisodeArchive
from ubp2.terminal.cli import main
from ubp2.training import session, silence
from ubp2.training.member_axis import Layout
from ubp2.training.state import Counters

# Half of all segments are below the mean of the recent ones, and so a pair is skipped about one time in four.
COMBINED = tiny(teacher={"name": "noisy", "gamma": 0.9, "mistake": 0.2, "skip": 1.0, "equal": 0.05})


class Near(Reach):
    """Reach with a reward above 0, as B-Pref's thresholds need it."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, 3.0 + reward, terminated, truncated, info


def make() -> gymnasium.Env:
    return Near()


def given(folder: Path) -> list[tuple[Any, ...]]:
    """Session, label and weight of every answer."""
    query = "SELECT q.session, a.label, a.weight FROM answers a JOIN queries q ON q.id = a.query ORDER BY a.id"
    return table(folder / "labels.sqlite", query)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a teacher of every trait."""
    folder = tmp_path_factory.mktemp("session") / "run"
    result = api.train(COMBINED, env=make, out=folder, progress=False)
    assert (result.labels, result.finished) == (14, True)
    return folder


def test_skipped_pairs_are_kept_and_cost_nothing(run: Path) -> None:
    answers = given(run)
    weights = [weight for *_, weight in answers]
    assert weights.count(1.0) == 14 and weights.count(0.0) > 0
    assert {label for _, label, weight in answers if weight} == {0.0, 0.5, 1.0}
    used = [row["labels/used"] for row in rows(run, "labels")]
    assert used == [sum(weight for s, _, weight in answers if s <= session) for session in range(len(used))]
    assert len(used) > 4, "an oracle spends the budget in four sessions"
    assert {saved(run).meta[name] for name in ("labels", "asked")} == {14}
    assert saved(run).meta["cursor"] == len(answers)


def test_answers_are_those_of_the_teacher_in_its_situation(run: Path) -> None:
    config = resolve(COMBINED, 20)
    with EpisodeArchive(run / "episodes.sqlite") as archive, LabelStore(run / "labels.sqlite") as store:
        everything, at = given(run), 0
        for number, row in enumerate(rows(run, "labels")):
            asked, decision = store.session(number), row["decision"]
            so_far = [archive.read(i).true_reward.sum() for i in range(decision // 20)]
            situation = Situation(number, float(np.mean(so_far[-10:])), 20)
            left = np.stack([archive.rewards(p.query.left_episode, p.query.left_start, 5) for p in asked])
            right = np.stack([archive.rewards(p.query.right_episode, p.query.right_start, 5) for p in asked])
            seed = int(np.random.SeedSequence([0, 7, decision]).generate_state(1)[0])
            label, weight = make_teacher(config.teacher, situation)(seed, left, right)
            own = everything[at : at + len(asked)]
            assert own == [(number, *pair) for pair in zip(label.tolist(), weight.tolist(), strict=True)]
            at += len(asked)
        assert at == len(everything)


def test_skipped_pairs_do_not_enter_the_fit(run: Path) -> None:
    with LabelStore(run / "labels.sqlite") as store:
        answers = store.answers()
    spec = EnvSpec.from_dict(saved(run).meta["environment"])
    batches = session.batches(Layout.of([resolve(COMBINED, 20)], spec), answers)
    assert sum(int(rows.count) for rows in batches) == 14
    for packed in batches:
        np.testing.assert_array_equal(np.asarray(packed.weight) > 0, np.arange(4) < packed.count)


def test_a_stopped_run_gets_the_same_answers(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for decisions, act in (
        (81, lambda: api.train(COMBINED, env=make, out=folder, progress=False)),
        (100, lambda: api.resume(folder, env=make, progress=False)),
    ):
        assert not stop_at(decisions, signal.SIGTERM, act).finished
    assert api.resume(folder, env=make, progress=False).finished
    assert_same_run(folder, run)


def test_answers_that_are_there_already_change_nothing(run: Path, tmp_path: Path) -> None:
    """A kill between two answers of a session: the others are what they would have been."""
    config, first = resolve(COMBINED, 20), given(run)[:4]
    with (
        LabelStore(run / "labels.sqlite") as whole,
        LabelStore(tmp_path / "labels.sqlite") as store,
        EpisodeArchive(run / "episodes.sqlite") as complete,
        EpisodeArchive(tmp_path / "episodes.sqlite") as archive,
    ):
        for index in range(2):  # those before the first session
            archive.append(complete.read(index))
        ids = store.ask(40, 0, [pending.query for pending in whole.session(0)], "uniform")
        for position in (0, 2):
            store.answer(ids[position], *first[position][1:], annotator="noisy")
        session.answer(config, None, archive, store, (40, 0), 20)
        found = {answered.query_id: (answered.label, answered.weight) for answered in store.answers()}
    assert [found[id] for id in ids] == [pair[1:] for pair in first]


def test_compat_counts_skipped_pairs_as_asked(tmp_path: Path) -> None:
    config = dataclasses.replace(COMBINED, teacher=dataclasses.replace(COMBINED.teacher, compat="bpref-code"))
    result = api.train(config, env=make, out=tmp_path / "run", progress=False)
    assert len(given(tmp_path / "run")) == 14 and result.labels < 14
    meta = saved(tmp_path / "run").meta
    assert (meta["asked"], meta["labels"]) == (14, result.labels)


def nothing(key_seed: int, left_rewards: np.ndarray, right_rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A teacher who skips everything."""
    return np.zeros(len(left_rewards)), np.zeros(len(left_rewards))


def shy(key_seed: int, left_rewards: np.ndarray, right_rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A teacher who prefers the better last decision and skips half of the pairs."""
    speaks = np.random.default_rng(key_seed).random(len(left_rewards)) < 0.5
    return (left_rewards[:, -1] > right_rewards[:, -1]).astype(float), speaks.astype(float)


def test_sessions_of_only_skips(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every session is asked, nothing is learned from the answers, and nothing is not a number."""
    config = tiny(steps=160, evaluation={"every": 160})
    result = api.train(config, teacher=nothing, out=tmp_path / "run")
    assert (result.labels, result.finished) == (0, True)
    assert "no label was given: the teacher skipped every question" in "".join(capfd.readouterr())
    asked = rows(tmp_path / "run", "labels")
    assert [row["decision"] for row in asked] == [40, 80, 120, 160]
    assert all(row.keys() == {"kind", "decision", "labels/used", "labels/score"} for row in asked)
    assert all(None not in row.values() for row in rows(tmp_path / "run"))
    assert all(np.isfinite(array).all() for array in agent_arrays(tmp_path / "run").values() if array.dtype.kind == "f")
    assert len(given(tmp_path / "run")) == 16 and saved(tmp_path / "run").meta["asked"] == 0
    assert main(["plot", str(tmp_path / "run"), "--out", str(tmp_path / "curve.png")]) == 0


LATE = {"steps": 50, "training": {"warmup": 10}, "preferences": {"every": 60, "budget": 4, "imported": 3}}


@pytest.mark.parametrize(
    ("changes", "counted", "waiting", "note"),
    [
        ({}, {"sessions": 1, "labels": 1}, 0, None),
        ({"ceiling": True}, {}, 0, None),
        ({}, {}, 0, "episodes had no two segments of 5 decisions; lower --preferences.segment-length"),
        (LATE, {"labels": 3}, 0, "no episode ends between decision 60, .* or lower --preferences.every"),
        ({}, {"sessions": 4}, 0, "the teacher skipped every question; lower --teacher.skip"),
        ({"teacher": {"name": "human"}}, {"sessions": 1}, 4, "no label was given: 4 questions wait for an answer"),
        ({"teacher": {"name": "human"}}, {"sessions": 4}, 0, "nobody could tell the segments of a pair apart"),
    ],
)
def test_why_nothing_was_learned_from_questions(
    changes: dict[str, Any], counted: dict[str, int], waiting: int, note: str | None
) -> None:
    config = resolve(tiny(**changes), 20)
    crew = crew_of([config], waiting)
    counters = Counters.start(1)
    for name, count in counted.items():
        getattr(counters, name)[:] = count
    told = silence.closing_note(crew, counters)
    assert told is None if note is None else told and re.search(note, told)


def crew_of(configs: list[Config], waiting: int = 0) -> Any:
    """Members with these resolved configurations, and as many questions that wait."""
    store = SimpleNamespace(waiting=lambda: waiting)
    spec = SimpleNamespace(episode_decisions=20)
    budgets = np.array([config.preferences.budget for config in configs])
    return SimpleNamespace(
        config=configs[0],
        people=configs[0].teacher.name == "human",
        members=[SimpleNamespace(store=store, config=config, spec=spec, teacher=None) for config in configs],
        budgets=budgets,
        alive=np.ones(len(configs), bool),
        name=lambda i: f"seed {configs[i].seed}",
    )


def test_what_is_said_of_one_seed_is_not_said_of_all() -> None:
    """Seven learned from labels; the eighth, whose episodes end early, had no session."""
    crew = crew_of([resolve(tiny(seed=3 + i), 20) for i in range(8)])
    counters = Counters.start(8)
    counters.sessions[:-1] = counters.labels[:-1] = 4
    told = silence.closing_note(crew, counters)
    assert told and told.startswith("seed 10: nothing was asked: episodes had no two segments")
    counters.sessions[:], counters.labels[0] = 4, 0
    told = silence.closing_note(crew, counters)
    assert told and told.startswith("seed 3, seed 10: no label was given: the teacher skipped every question")


@pytest.mark.parametrize(
    ("labels", "changes", "told"),
    [
        ([0.5, 0.5], {}, "all 2 answers of the first session are ties"),
        ([0.5, 1.0], {}, ""),
        ([0.5, 0.5], {"sessions": 1}, ""),
        ([0.5, 0.5], {"people": True}, ""),
        ([0.5, 0.5], {"teacher": shy}, ""),
    ],
)
def test_a_session_of_ties_is_told(labels: list[float], changes: dict[str, Any], told: str) -> None:
    """An environment without a reward, under a scripted teacher: nothing will ever be learned."""
    notes: list[str] = []
    progress, counters = SimpleNamespace(note=notes.append), Counters.start(1)
    counters.sessions[:] = changes.pop("sessions", 0)
    member = SimpleNamespace(teacher=changes.pop("teacher", None))
    crew: Any = SimpleNamespace(**{"people": False, "members": [member], "size": 1, "progress": progress} | changes)
    answers: Any = [SimpleNamespace(label=label, weight=1.0) for label in labels]
    silence.warn_of_ties(crew, counters, {0: answers})
    assert "".join(notes).startswith(told) and bool(notes) == bool(told)


@pytest.mark.slow
def test_a_teacher_of_ones_own_for_several_seeds_and_after_a_stop(tmp_path: Path) -> None:
    config = tiny(evaluation={"every": 300})
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert api.train(config, seeds=2, teacher=shy, out=whole, progress=False).finished
    begun = stop_at(130, signal.SIGTERM, lambda: api.train(config, seeds=2, teacher=shy, out=stopped, progress=False))
    assert not begun.finished
    with pytest.raises(UserError, match=r"answered by a teacher given from Python .*pass the same one to ubp2\.resume"):
        api.resume(stopped, progress=False)
    assert api.resume(stopped, teacher=shy, progress=False).finished
    for one, other in zip(population.members(whole), population.members(stopped), strict=True):
        assert_same_run(one, other)
        weights = [weight for *_, weight in given(one)]
        assert 0.0 in weights and weights.count(1.0) == saved(one).meta["labels"] > 8
    first, second = population.members(whole)
    assert {row[0] for row in table(first / "labels.sqlite", "SELECT annotator FROM answers")} == {"custom"}
    assert labels(first) != labels(second)


def test_a_wrong_teacher_is_told(run: Path, tmp_path: Path) -> None:
    for wrong in ("noisy", 3):
        with pytest.raises(UserError, match=r"teacher must be a function .*chosen by its name in config\.teacher"):
            api.train(tiny(), teacher=wrong, out=tmp_path / "run", progress=False)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match=r"one for each of the 4 pairs, got \(1,\)"):
        api.train(tiny(), teacher=lambda *_: (np.ones(1), np.ones(1)), out=tmp_path / "run", progress=False)
    with pytest.raises(UserError, match=r"answered by the teacher of its configuration; leave out teacher"):
        api.resume(run, env=make, teacher=shy, progress=False)


def test_a_combined_teacher_on_the_command_line(tmp_path: Path) -> None:
    save_yaml(tiny(steps=200, evaluation={"every": 0}), tmp_path / "tiny.yaml")
    line = f"train --config {tmp_path / 'tiny.yaml'} --env toy/reach --teacher noisy --teacher.mistake 0.5 --quiet"
    assert main([*line.split(), "--out", str(tmp_path / "run")]) == 0
    config: Config = population.Run.open(tmp_path / "run").config
    assert (config.teacher.name, config.teacher.mistake, config.teacher.beta) == ("noisy", 0.5, None)
    assert {row[0] for row in table(tmp_path / "run" / "labels.sqlite", "SELECT annotator FROM answers")} == {"noisy"}
    paths = (tmp_path / "run" / name for name in ("episodes.sqlite", "labels.sqlite"))
    with EpisodeArchive(next(paths)) as archive, LabelStore(next(paths)) as store:
        truth = [_better(archive, answered.query) for answered in store.answers()]
        said = [answered.label for answered in store.answers()]
    assert 2 <= np.sum(np.array(truth) != said) <= 12, "about half of 14 answers are wrong"
    assert main(["train", "--resume", str(tmp_path / "run"), "--teacher", "oracle"]) == 2


def _better(archive: EpisodeArchive, query: Any) -> float:
    left = archive.rewards(query.left_episode, query.left_start, 5).sum()
    return float(left > archive.rewards(query.right_episode, query.right_start, 5).sum())
