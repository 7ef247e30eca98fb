"""People as teachers, played by a thread that answers the store: waiting, going on, falling back, undoing."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubp2
from ubp2.config.files import overridden
from ubp2.config.schema import Config
from ubp2.preference.store import LabelStore, Pending
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import read_metrics
from ubp2.training import asking

SMALL = {
    "steps": 400,
    "training.warmup": 100,
    "training.warmup_updates": 2,
    "training.batch_size": 8,
    "model.width": 16,
    "model.depth": 1,
    "planner.samples": 8,
    "planner.elites": 4,
    "planner.policy_samples": 2,
    "planner.iterations": 1,
    "planner.horizon": 2,
    "preferences.every": 100,
    "preferences.per_session": 4,
    "preferences.budget": 12,
    "preferences.candidates": 8,
    "evaluation.every": 0,
    "evaluation.episodes": 1,
    "environment.in_process": True,
    "teacher.serve": False,
}


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """These runs have a thread for a person, which needs no page."""
    monkeypatch.setattr(asking, "POLL", 0.01)


def config(**changes: Any) -> Config:
    return overridden(ubp2.preset("cpu", env="toy/reach"), {**SMALL, "teacher.name": "human", **changes})


class Person(threading.Thread):
    """Answers whatever is open from the true reward, as the oracle would; `also` may do more after each answer."""

    def __init__(
        self, run: Path, pause: float = 0.0, also: Callable[[LabelStore, Pending], None] | None = None
    ) -> None:
        super().__init__(daemon=True)
        self.run_folder, self.pause, self.also = run, pause, also
        self.done = threading.Event()

    def run(self) -> None:
        while not (self.run_folder / "labels.sqlite").exists() and not self.done.wait(0.02):
            pass
        with LabelStore(self.run_folder / "labels.sqlite") as store:
            while not self.done.wait(0.02):
                for question in store.pending():
                    key, weight = f"k{question.id}", self.weigh(question)
                    try:
                        label = self.judge(question)
                    except IndexError:  # a run that began again has not come to that episode yet
                        break
                    store.answer(question.id, label, weight, annotator="ann", key=key)
                    time.sleep(self.pause)
                    if self.also:
                        self.also(store, question)

    def weigh(self, question: Pending) -> float:
        return 1.0

    def judge(self, question: Pending) -> float:
        with EpisodeArchive(self.run_folder / "episodes.sqlite") as archive:
            query, length = question.query, len(question.query.left_obs)
            left = archive.rewards(query.left_episode, query.left_start, length).sum(dtype=np.float64)
            right = archive.rewards(query.right_episode, query.right_start, length).sum(dtype=np.float64)
        return 0.5 if left == right else float(left > right)


def trained(own: Config, out: Path, person: Person | None, progress: bool = False) -> Any:
    if person:
        person.start()
    try:
        return ubp2.train(own, out=out, progress=progress)
    finally:
        if person:
            person.done.set()
            person.join()


def rows(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in lines]


def test_a_person_with_the_true_reward_in_mind_is_the_oracle(tmp_path: Path) -> None:
    """The trainer cannot tell who answers: every number of the run is the same."""
    person = trained(config(), tmp_path / "person", Person(tmp_path / "person"))
    oracle = ubp2.train(
        dataclasses.replace(config(), teacher=ubp2.Config().teacher), out=tmp_path / "oracle", progress=False
    )
    assert person.labels == oracle.labels == 12
    assert rows(tmp_path / "person") == rows(tmp_path / "oracle")


def test_going_on_takes_answers_as_they_come(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = trained(config(**{"teacher.wait": "go-on", "steps": 600}), out, Person(out, pause=0.05))
    assert result.finished and 0 < result.labels <= 12


def test_nobody_answers_and_the_run_ends_all_the_same(tmp_path: Path) -> None:
    result = trained(config(**{"teacher.wait": "go-on"}), tmp_path / "run", None)
    assert result.finished and result.labels == 0
    with LabelStore(tmp_path / "run" / "labels.sqlite") as store:
        assert store.waiting() == 4, "one session is open, and no second one is piled on it"


def test_after_a_while_the_scripted_teacher_answers(tmp_path: Path) -> None:
    own = config(**{"teacher.wait": "fallback", "teacher.patience": 0.05})
    result = trained(own, tmp_path / "run", None)
    assert result.finished and result.labels == 12
    with LabelStore(tmp_path / "run" / "labels.sqlite") as store:
        assert {given.annotator for given in store.given()} == {"oracle"}
        notes = store.notes()
    assert notes["trainer"] == "running" and notes["waiting"] == "fallback" and notes["budget"] == 12
    judged = {name: value for name, value in notes.items() if name.startswith("judged:")}
    assert len(judged) == 8, "of the first session the model, which had learned nothing, says nothing"
    assert all(0 <= value <= 1 for value in judged.values())
    along = notes[next(iter(judged)).replace("judged", "reward")]
    assert len(along["left"]) == len(along["right"]) == 10 and np.isfinite(along["left"]).all()


def test_what_is_undone_is_taken_back_from_the_agent(tmp_path: Path) -> None:
    out, undone = tmp_path / "run", []

    def regret(store: LabelStore, question: Pending) -> None:
        if question.session == 1 and not undone:
            undone.append(store.withdraw("ann", key="undo"))

    result = trained(config(**{"teacher.wait": "go-on", "steps": 600}), out, Person(out, also=regret))
    assert undone and result.finished
    with LabelStore(out / "labels.sqlite") as store:
        assert result.labels == len([given for given in store.given() if given.weight > 0])


def test_what_is_said_while_answers_are_taken_is_taken_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody undoes the last answer after the run has read it and before it has noted how far it read."""
    out, undone = tmp_path / "run", []
    collect = asking.session.collect

    def meanwhile(*arguments: Any) -> Any:
        if not undone:
            with LabelStore(out / "labels.sqlite") as store:
                undone.append(store.withdraw("ann", key="undo"))
        return collect(*arguments)

    monkeypatch.setattr(asking.session, "collect", meanwhile)
    result = trained(config(**{"teacher.wait": "go-on", "steps": 600}), out, Person(out))
    assert undone and result.finished
    with LabelStore(out / "labels.sqlite") as store:
        assert result.labels == len([given for given in store.given() if given.weight > 0])


def test_two_opinions_on_a_question_are_one_label(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def other(store: LabelStore, question: Pending) -> None:
        store.answer(question.id, 0.5, annotator="bob", key=f"b{question.id}")

    result = trained(config(), out, Person(out, also=other))
    assert result.labels == 12
    with LabelStore(out / "labels.sqlite") as store:
        assert len(store.given()) == 24


def test_labels_beyond_the_budget_are_not_counted_as_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What one person skips costs nothing; another tells these pairs once others have been asked in their place."""
    out, late, held = tmp_path / "run", [], []
    take = asking._take

    def watched(crew: Any, programs: Any, state: Any, *rest: Any) -> np.ndarray:
        taught = take(crew, programs, state, *rest)
        held.append((int(state.device.memory.preferences.count[0]), int(state.counters.labels[0])))
        return taught

    class Shy(Person):
        def weigh(self, question: Pending) -> float:
            return float(question.session > 0)

    def another(store: LabelStore, question: Pending) -> None:
        if question.session == 3 and not late:
            late.extend(store.session(0))
            for skipped in late:
                store.answer(skipped.id, 1.0, annotator="bob", key=f"b{skipped.id}")

    monkeypatch.setattr(asking, "_take", watched)
    result = trained(config(steps=600), out, Shy(out, also=another), progress=True)
    assert len(late) == 4 and result.labels == 12
    assert [on_device for on_device, _ in held] == [counted for _, counted in held] == [0, 4, 8, 12]
    assert "4 labels came when the budget was spent: the agent does not learn from them" in capsys.readouterr().err


def resumed(out: Path, person: Person) -> ubp2.RunResult:
    """The run gone on with, with somebody at the page."""
    person.start()
    try:
        result = ubp2.resume(out, progress=False)
        assert isinstance(result, ubp2.RunResult)
        return result
    finally:
        person.done.set()
        person.join()


def test_a_run_that_was_killed_while_it_waited_waits_again(tmp_path: Path) -> None:
    """Its questions are still open, and going on without their answers is not what was asked for."""
    out, own = tmp_path / "run", config()

    def killed(crew: Any, counters: Any, store: LabelStore, doing: str) -> None:
        if doing == "waiting for answers":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "_beat", killed)
        with pytest.raises(KeyboardInterrupt):
            ubp2.train(own, out=out, progress=False)
    with LabelStore(out / "labels.sqlite") as store:
        assert store.waiting() == 4 and store.waiting(up_to_decision=50) == 0
    assert resumed(out, Person(out)).labels == 12


def test_a_run_that_was_stopped_while_it_waited_waits_before_it_goes_on(tmp_path: Path) -> None:
    """No decision is made on fewer labels than it would have been made on without the stop."""
    out, own = tmp_path / "run", config()
    beat = asking._beat

    def stopped(crew: Any, counters: Any, member: Any, doing: str) -> None:
        beat(crew, counters, member, doing)
        if doing == "waiting for answers":
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "_beat", stopped)
        first = ubp2.train(own, out=out, progress=False)
    assert not first.finished and first.labels == 0
    with LabelStore(out / "labels.sqlite") as store:
        assert store.waiting(up_to_decision=first.decisions) == 4
    assert resumed(out, Person(out)).labels == 12
    learned = [row for row in read_metrics(out) if row.get("labels/used")]
    assert learned[0]["decision"] == first.decisions and learned[0]["labels/used"] == 4
