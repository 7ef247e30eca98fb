"""What the label store keeps of people: keys, undo, questions asked again, several annotators, notes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.preference.test_store import query
from ubp2.errors import UserError
from ubp2.preference import schema
from ubp2.preference.store import LabelStore


@pytest.fixture
def store(tmp_path: Path):
    with LabelStore(tmp_path / "labels.sqlite") as store:
        store.ask(100, 0, [query(n) for n in range(3)], "uniform")
        yield store


def ids(store: LabelStore) -> list[int]:
    return [pending.id for pending in store.session(0)]


def test_a_key_makes_a_repeated_answer_one_answer(store: LabelStore) -> None:
    first = ids(store)[0]
    one = store.answer(first, 1.0, annotator="ann", key="a", swapped=True, seconds=2.0)
    store.answer(first, 0.0, annotator="ann", key="b")
    assert store.answer(first, 1.0, annotator="ann", key="a") == one, "a late repetition is not a change of mind"
    (given,) = store.given()
    assert (given.label, given.annotator) == (0.0, "ann")
    with pytest.raises(UserError, match="belongs to an answer to another question"):
        store.answer(ids(store)[1], 1.0, annotator="ann", key="a")


def test_undo_takes_the_newest_answer_back_and_keeps_it(store: LabelStore, tmp_path: Path) -> None:
    first, second, _ = ids(store)
    store.answer(first, 1.0, annotator="ann", key="a")
    store.answer(second, 0.5, annotator="ann", key="b")
    assert store.withdraw("ann", key="u1") == second
    assert store.withdraw("ann", key="u1") == second, "a repeated undo is one undo"
    assert [given.query_id for given in store.given()] == [first]
    assert [pending.id for pending in store.pending()] == ids(store)[1:]
    assert store.waiting() == 2 and store.count().labels == 1
    assert store.withdraw("ann", key="u2") == first
    assert store.withdraw("ann", key="u3") is None
    store.answer(second, 0.0, annotator="ann", key="c")
    assert [given.label for given in store.given()] == [0.0]
    with sqlite3.connect(tmp_path / "labels.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM answers").fetchone()[0] == 5


def test_a_question_that_nobody_can_tell_is_not_spent(store: LabelStore) -> None:
    """Of later questions, and of what was said later, a run that goes back to decision 100 knows nothing."""
    first, second, _ = ids(store)
    store.answer(first, 0.5, weight=0.0, annotator="ann")
    told = store.answer(second, 1.0, annotator="ann")
    assert store.spent(up_to_decision=100, up_to=told) == 2
    assert store.spent(up_to_decision=99, up_to=told) == 0
    (later,) = store.ask(200, 1, [query(9)], "uniform")
    unsure = store.answer(later, 0.5, weight=0.0, annotator="ann")
    assert store.spent(up_to_decision=100, up_to=told) == store.spent(up_to_decision=100, up_to=unsure) == 2
    assert (store.spent(up_to_decision=200, up_to=told), store.spent(up_to_decision=200, up_to=unsure)) == (3, 2)
    other = store.answer(first, 1.0, annotator="bob")
    assert store.spent(up_to_decision=200, up_to=other) == 3, "somebody else could"


def test_a_reader_learns_that_what_it_has_was_changed(store: LabelStore) -> None:
    first, second, _ = ids(store)
    cursor = store.answer(first, 1.0, annotator="ann", key="a")
    assert not store.corrected(cursor)
    store.answer(second, 1.0, annotator="ann", key="b")
    assert not store.corrected(cursor), "a new answer is no correction"
    store.withdraw("ann", key="u")
    assert not store.corrected(cursor), "what it never had does not matter"
    store.withdraw("ann", key="v")
    assert store.corrected(cursor)
    assert not store.corrected(cursor, up_to=cursor + 1), "later than one looks"
    assert not store.corrected(cursor, up_to_decision=0), "asked later than one has come"
    assert store.newest() > cursor and not store.corrected(store.newest())
    assert store.answers() == []
    assert [each.query_id for each in store.answers(up_to=cursor)] == [first], "as it was when the reader took it"


def test_several_annotators_get_what_they_have_not_answered(store: LabelStore) -> None:
    first, second, third = ids(store)
    store.answer(first, 1.0, annotator="ann", key="a")
    assert [p.id for p in store.pending("bob")] == [second, third]
    assert [p.id for p in store.pending("bob", overlap=2)] == [first, second, third]
    assert [p.id for p in store.pending("ann", overlap=2)] == [second, third]
    store.answer(first, 0.0, annotator="bob", key="b")
    assert [p.id for p in store.pending("cid", overlap=2)] == [second, third]
    assert len(store.answers()) == 2


def test_questions_asked_again_are_no_labels(store: LabelStore) -> None:
    first = ids(store)[0]
    store.answer(first, 1.0, annotator="ann", key="a")
    one = store.check(first, 0.0, 1.0, "ann", 1.5, key="c", swapped=True)
    assert store.check(first, 0.0, 1.0, "ann", 1.5, key="c", swapped=True) == one
    (check,) = store.checks("ann")
    assert (check.label, check.swapped, check.seconds) == (0.0, True, 1.5)
    assert store.count().labels == 1 and store.checks("bob") == []


def test_notes_are_the_newest_value_of_each_name(store: LabelStore) -> None:
    store.note({"phase": "planning", "judged:1": 0.25})
    store.note({"phase": "policy"})
    assert store.notes() == {"phase": "policy", "judged:1": 0.25}
    assert store.notes("judged:") == {"judged:1": 0.25}


def test_a_question_can_be_looked_up_also_when_it_was_replaced(store: LabelStore) -> None:
    first = ids(store)[0]
    store.ask(100, 0, [query(7)], "uniform")
    found = store.question(first)
    assert found is not None and found.id == first
    assert store.question(999) is None


def test_nothing_of_a_check_can_be_changed_or_removed(store: LabelStore, tmp_path: Path) -> None:
    store.check(ids(store)[0], 0.0, 1.0, "ann", key="c", swapped=False)
    with sqlite3.connect(tmp_path / "labels.sqlite") as connection:
        for statement in ("DELETE FROM checks", "UPDATE checks SET label = 1"):
            with pytest.raises(sqlite3.IntegrityError, match="checks are kept"):
                connection.execute(statement)


def test_a_file_of_the_first_version_is_read_with_its_answers(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    with sqlite3.connect(path) as connection:
        for statement in schema.MIGRATIONS[0]:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
        connection.execute("PRAGMA user_version=1")
    with LabelStore(tmp_path / "other.sqlite") as other:
        other.ask(5, 0, [query(0)], "uniform")
    with sqlite3.connect(path) as connection:
        connection.execute("ATTACH ? AS other", (str(tmp_path / "other.sqlite"),))
        connection.execute("INSERT INTO queries SELECT * FROM other.queries")
        connection.execute(
            "INSERT INTO answers (query, annotator, revision, label, weight, answered_at) VALUES (1, 'ann', 0, 1, 1, 0)"
        )
    with LabelStore(path) as store:
        assert [each.label for each in store.answers()] == [1.0]
        assert store.withdraw("ann", key="u") == 1
        assert store.answers() == []


def test_where_the_questions_are_is_known_without_reading_them(store: LabelStore) -> None:
    first, second, third = ids(store)
    store.answer(first, 1.0, annotator="ann", key="a")
    assert [each.id for each in store.open()] == [second, third]
    assert [each.id for each in store.open(overlap=2)] == [first, second, third]
    placed, pending = store.placed(second), store.question(second)
    assert placed is not None and pending is not None
    assert placed[:4] == (*pending[:1], pending.decision, pending.session, pending.position)
    assert (*placed.left, *placed.right, placed.length) == (*pending.query[4:8], len(pending.query.left_obs))
    assert store.placed(999) is None
    store.note({"phase": "planning", "judged:1": 0.25})
    assert store.notes(plain=True) == {"phase": "planning"}


def test_where_an_imported_label_came_from_is_never_changed(store: LabelStore, tmp_path: Path) -> None:
    store.answer(ids(store)[0], 1.0, annotator="ann", key="a")
    with LabelStore(tmp_path / "other.sqlite") as other:
        other.take_in(store.labels("run"))
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        for statement in ("DELETE FROM origins", "UPDATE origins SET run = 'mine'"):
            with pytest.raises(sqlite3.IntegrityError, match="origins are kept"):
                connection.execute(statement)
