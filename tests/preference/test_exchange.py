"""Two label files become the same: what came from the other is there once, whatever became of either in between."""

from __future__ import annotations

import json
from pathlib import Path

from tests.labelling.conftest import question
from ubp2.preference.exchange import Event, Exchange, Place
from ubp2.preference.store import LabelStore
from ubp2.preference.verification import verify


def test_an_answer_from_elsewhere_is_what_was_said(tmp_path: Path) -> None:
    with LabelStore(tmp_path / "a") as first, LabelStore(tmp_path / "b") as second:
        ids = first.ask(1, 0, [question(0), question(1)], "uniform")
        second.ask(1, 0, [question(0), question(1)], "uniform")
        first.answer(ids[1], 1.0, 1.0, "ann", 2.5, key="k1", swapped=True)
        first.answer(ids[1], 0.0, 1.0, "ann", 1.5, key="k2")
        first.answer(ids[0], 0.5, 0.0, "bob", key="k3", reason="no clip")
        first.withdraw("ann", key="undo")
    with Exchange(tmp_path / "a") as first, Exchange(tmp_path / "b") as second:
        events = first.events(0, 10, without="x")
        assert events == [Event.of(json.loads(json.dumps(each))) for each in events] and len(events) == 4
        assert second.take_in(events, "page/") == 4 and second.take_in(events, "page/") == 0
        assert second.events(0, 10, without="page/") == []
        assert [each[1:] for each in second.events(0, 10, without="x")] == [each[1:] for each in events]
        unknown = events[0]._replace(id=9, place=Place(5, 0, events[0].place.fingerprint))
        assert second.take_in([unknown], "page/") == 0, "a question that is not known here"
    assert verify(tmp_path / "b").problems == [], "what came twice leaves no gap that looks like a loss"


def test_an_undo_arrives_also_after_the_trainer_has_left_its_course(tmp_path: Path) -> None:
    """A trainer that resumes says answers once more to itself; the page knows them, and may know better by now."""
    first, other = [question(0), question(1)], [question(0), question(2)]
    with LabelStore(tmp_path / "run") as run, LabelStore(tmp_path / "double") as double:
        for queries in (first, other):
            run.ask(1, 0, queries, "uniform")
            double.ask(1, 0, queries, "uniform")
        double.ask(1, 0, first, "uniform")
        double.answer(double.session(0)[1].id, 1.0, annotator="ann", key="ann/1")
        with Exchange(tmp_path / "run") as here, Exchange(tmp_path / "double") as there:
            here.take_in(there.events(0, 10, without=" trainer/"), "page/")
            run.ask(1, 0, first, "uniform")  # the answered question is current again, and its answer said again
            double.withdraw("ann", key="ann/undo")
            there.take_in(here.events(0, 10, without="page/"), " trainer/")
            here.take_in(there.events(0, 10, without=" trainer/"), "page/")
        assert run.given() == double.given() == []
        assert run.waiting() == double.waiting() == 2, "what the trainer waits for can be answered"


def test_an_answer_with_the_id_of_another_is_another_answer(tmp_path: Path) -> None:
    """A backup was put in the place of the other file. Of what 0.1.0 took in, nothing comes a second time."""
    with LabelStore(tmp_path / "a") as store:
        store.ask(1, 0, [question(0)], "uniform")
    place = Place(0, 0, question_print(tmp_path / "a"))
    first = Event(1, place, "ann", 1.0, 1.0, 2.0, 1795054430.18186, False, False, None)
    with Exchange(tmp_path / "a") as file, LabelStore(tmp_path / "a") as store:
        assert [file.take_in([each], "page/") for each in (first, first, first._replace(answered_at=9.5))] == [1, 0, 1]
        store.answer(1, 0.5, annotator="bob", key="page/7")
        old = store.given("bob")[0]
        told = first._replace(id=7, annotator="bob", label=0.5, answered_at=old.answered_at)
        assert file.take_in([told], "page/") == 0 and file.take_in([told._replace(answered_at=8.5)], "page/") == 1
        assert file.events(0, 10, without="page/") == []


def question_print(path: Path) -> str:
    with Exchange(path) as file:
        return file.questions()[0][0]
