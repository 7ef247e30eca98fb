"""The label store: what was acknowledged stays, whoever is killed and however often the same thing is said."""

from __future__ import annotations

import math
import os
import sqlite3
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.storage.killing import killed, run_alone
from ubp2.errors import UserError
from ubp2.preference.store import Counts, LabelStore
from ubp2.types import Query


def query(number: int, score: float = 0.25, length: int = 3) -> Query:
    rng = np.random.default_rng(number)
    left_obs, right_obs = rng.normal(size=(2, length, 4)).astype(np.float32)
    left_action, right_action = rng.normal(size=(2, length, 2)).astype(np.float32)
    return Query(left_obs, left_action, right_obs, right_action, number, 1, number + 1, 2, score)


def same(a: Query, b: Query) -> bool:
    return a[4:] == b[4:] and all(
        x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(a[:4], b[:4], strict=True)
    )


@pytest.fixture
def store(tmp_path: Path):
    with LabelStore(tmp_path / "labels.sqlite") as store:
        yield store


def test_round_trip_through_the_file(tmp_path: Path):
    special = query(1)
    special.left_obs[0] = [np.nan, np.inf, -0.0, np.float32(1e-45)]
    with LabelStore(tmp_path / "labels.sqlite") as store:
        ids = store.ask(100, 0, [query(0), special], "optimistic")
        store.answer(ids[1], 0.5, weight=0.0, annotator="ann", seconds=2.5)
    with LabelStore(tmp_path / "labels.sqlite") as store:
        (waiting,) = store.pending()
        assert waiting[:5] == (ids[0], 100, 0, 0, "optimistic") and same(waiting.query, query(0))
        (answered,) = store.answers()
        assert (answered.query_id, answered.decision, answered.label, answered.weight) == (ids[1], 100, 0.5, 0.0)
        assert answered.query.left_obs.tobytes() == special.left_obs.tobytes()
        assert answered.query.left_obs.flags.writeable and answered.annotator == "ann"


def test_a_score_that_is_no_number_survives(store: LabelStore):
    store.ask(1, 0, [query(0, math.nan), query(1, math.inf)], "uniform")
    assert [math.isnan(p.query.score) or p.query.score for p in store.pending()] == [True, math.inf]


def test_asking_again_gives_the_same_ids_and_keeps_the_answers(store: LabelStore):
    ids = store.ask(100, 0, [query(0), query(1)], "uniform")
    store.answer(ids[0], 1.0)
    assert store.ask(100, 0, [query(0, score=9.0), query(1)], "uniform") == ids
    assert [a.query_id for a in store.answers()] == [ids[0]]
    assert [p.id for p in store.pending()] == [ids[1]]


def test_another_content_takes_the_place_and_the_old_row_is_kept(store: LabelStore, tmp_path: Path):
    first = store.ask(100, 0, [query(0), query(1), query(2)], "uniform")
    for each in first:
        store.answer(each, 1.0)
    second = store.ask(100, 0, [query(0), query(7)], "uniform")
    assert second[0] == first[0] and second[1] not in first
    assert [a.query_id for a in store.answers()] == [first[0]]
    assert [p.id for p in store.pending()] == [second[1]]
    assert store.count() == Counts(labels=1, asked=2)
    with sqlite3.connect(tmp_path / "labels.sqlite") as raw:
        assert raw.execute("SELECT count(*), sum(current) FROM queries").fetchone() == (4, 2)
        assert raw.execute("SELECT count(*) FROM answers").fetchone() == (3,)
    # the first content again: its answers count again
    assert store.ask(100, 0, [query(0), query(1), query(2)], "uniform") == first
    assert store.count() == Counts(labels=3, asked=3)


def test_the_same_answer_twice_is_one_answer(store: LabelStore):
    (id,) = store.ask(100, 0, [query(0)], "uniform")
    store.answer(id, 1.0, annotator="a")
    store.answer(id, np.float32(1.0), annotator="a", seconds=3.0)  # type: ignore[arg-type]
    assert len(store.answers()) == 1
    store.answer(id, 0.0, annotator="b")
    assert [(a.annotator, a.label) for a in store.answers()] == [("a", 1.0), ("b", 0.0)]


def test_a_changed_answer_hides_the_earlier_and_history_is_kept(store: LabelStore, tmp_path: Path):
    (id,) = store.ask(100, 0, [query(0)], "uniform")
    for label in (1.0, 0.0, 1.0):
        store.answer(id, label)
    (last,) = store.answers()
    assert (last.id, last.label) == (3, 1.0)
    assert [a.label for a in store.answers(up_to=2)] == [0.0]
    with sqlite3.connect(tmp_path / "labels.sqlite") as raw:
        assert [row[0] for row in raw.execute("SELECT label FROM answers ORDER BY id")] == [1.0, 0.0, 1.0]
        for statement in (
            "DELETE FROM answers",
            "UPDATE answers SET label = 0",
            "DELETE FROM queries",
            "UPDATE queries SET left_obs = right_obs",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="kept"):
                raw.execute(statement)


def test_a_resumed_run_sees_the_labels_it_had(store: LabelStore):
    early = store.ask(100, 0, [query(0), query(1)], "uniform")
    store.answer(early[1], 1.0)
    cursor = store.answers()[-1].id
    before = store.answers(up_to_decision=100)
    late = store.ask(200, 1, [query(2)], "uniform")
    store.answer(late[0], 0.0)
    store.answer(early[0], 0.0)  # a person answers late
    store.answer(early[1], 0.5)  # and changes an answer
    assert [a.query_id for a in store.answers(up_to_decision=100)] == [early[0], early[1]]
    rebuilt = store.answers(up_to_decision=100, up_to=cursor)
    assert [a[:3] + a[4:] for a in rebuilt] == [a[:3] + a[4:] for a in before]
    assert [a.query_id for a in store.answers(after=cursor)] == [late[0], early[0], early[1]]
    assert store.answers(after=cursor, up_to_decision=99) == []


def test_a_run_that_left_its_course_still_gets_every_label(store: LabelStore):
    def ask_and_answer(decision: int, numbers: list[int]) -> list[int]:
        ids = store.ask(decision, decision // 100, [query(n) for n in numbers], "uniform")
        for waiting in store.pending():
            store.answer(waiting.id, 1.0)
        return ids

    ask_and_answer(100, [0, 1])
    cursor = store.answers()[-1].id  # a checkpoint; what follows is undone by a kill
    ask_and_answer(200, [2, 3])
    ask_and_answer(300, [4, 5])
    ids = ask_and_answer(200, [2, 9])  # another device rounds differently: one pair is not the same
    taken = store.answers(after=cursor, up_to_decision=200)
    assert sorted(a.query_id for a in taken) == sorted(ids)
    assert store.count() == Counts(labels=4, asked=4) and store.pending() == []  # 300 has not been asked on this course
    cursor = taken[-1].id
    ids = ask_and_answer(300, [4, 5])  # the same pairs as before, answered before the reader's cursor
    assert [a.query_id for a in store.answers(after=cursor, up_to_decision=300)] == ids
    assert store.count() == Counts(labels=6, asked=6)


def test_count_leaves_out_skipped_pairs(store: LabelStore):
    ids = store.ask(1, 0, [query(n) for n in range(3)], "uniform")
    store.answer(ids[0], 1.0)
    store.answer(ids[1], 0.5, weight=0.0)
    assert store.count() == Counts(labels=1, asked=3)


def test_count_up_to_a_decision(store: LabelStore):
    for decision in (100, 200):
        (id,) = store.ask(decision, decision // 100, [query(decision)], "uniform")
        store.answer(id, 1.0)
    assert store.count(up_to_decision=199) == Counts(labels=1, asked=1)
    assert store.count() == Counts(labels=2, asked=2)


def test_integers_of_numpy_are_integers(store: LabelStore):
    (id,) = store.ask(np.int64(100), np.int32(0), [query(0)], "uniform")  # type: ignore[arg-type]
    store.answer(np.int64(id), 1.0)  # type: ignore[arg-type]
    assert len(store.answers(np.int64(0), np.int64(100), np.int64(1))) == 1  # type: ignore[arg-type]


def test_bad_input_is_refused_and_changes_nothing(store: LabelStore):
    (id,) = store.ask(1, 0, [query(0)], "uniform")
    for label in (0.25, -1.0, math.nan):
        with pytest.raises(ValueError, match="a label is 0"):
            store.answer(id, label)
    for weight in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="a weight is finite"):
            store.answer(id, 1.0, weight=weight)
    with pytest.raises(UserError, match="no question 99"):
        store.answer(99, 1.0)
    with pytest.raises(ValueError, match="equal shape"):
        store.ask(1, 0, [query(0)._replace(right_obs=np.zeros((4, 4), np.float32))], "uniform")
    with pytest.raises(ValueError, match="float32"):
        store.ask(1, 0, [query(0)._replace(left_obs=np.zeros((3, 4)))], "uniform")
    assert [p.id for p in store.pending()] == [id]


def test_it_is_as_durable_as_promised(store: LabelStore):
    with store._database.read() as connection:
        pragma = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    assert pragma == {"journal_mode": "delete", "synchronous": 3}  # 3: EXTRA, which is FULL and the directory


@pytest.mark.parametrize(
    ("pragma", "sentence"), [("max_page_count=1", "the disk is full"), ("query_only=1", "it is read-only")]
)
def test_a_failing_disk_is_told_in_one_sentence_and_loses_nothing(store: LabelStore, pragma: str, sentence: str):
    (id,) = store.ask(1, 0, [query(0)], "uniform")
    store.answer(id, 1.0)
    connection = store._database._connection
    connection.execute(f"PRAGMA {pragma}")
    with pytest.raises(UserError, match=f"labels.sqlite: {sentence}; nothing written so far is lost.*--resume"):
        store.ask(2, 1, [query(n, length=500) for n in range(9)], "uniform")
    connection.execute("PRAGMA query_only=0")
    connection.execute("PRAGMA max_page_count=100000")
    assert store.count() == Counts(labels=1, asked=1)
    store.ask(2, 1, [query(1)], "uniform")


def test_files_that_are_not_ours_are_refused(tmp_path: Path):
    path = tmp_path / "labels.sqlite"
    path.write_bytes(b"not a database at all, " * 100)
    with pytest.raises(UserError, match=r"labels.sqlite is damaged .*backup"):
        LabelStore(path)
    path.unlink()
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE songs (name TEXT)")
    with pytest.raises(UserError, match="another kind"):
        LabelStore(path)
    with pytest.raises(UserError, match="cannot be opened"):
        LabelStore(tmp_path / "nowhere" / "labels.sqlite")


def test_a_newer_schema_is_refused(tmp_path: Path):
    path = tmp_path / "labels.sqlite"
    LabelStore(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version=9")
    with pytest.raises(UserError, match="schema version 9 and this ubp2 reads up to 4"):
        LabelStore(path)


def test_changed_bytes_are_noticed(tmp_path: Path):
    path = tmp_path / "labels.sqlite"
    with LabelStore(path) as store:
        store.ask(1, 0, [query(0, length=500)], "uniform")
    content = bytearray(path.read_bytes())
    at = content.index(query(0, length=500).right_obs[250:300].tobytes())
    content[at] ^= 1
    path.write_bytes(content)
    with LabelStore(path) as store, pytest.raises(UserError, match="damaged"):
        store.pending()


def test_trainer_and_server_write_at_once(tmp_path: Path):
    path = tmp_path / "labels.sqlite"
    with LabelStore(path) as trainer, LabelStore(path) as server:
        done = threading.Event()
        answered: list[int] = []

        def serve() -> None:
            while not done.is_set() or server.pending():
                for waiting in server.pending():
                    server.answer(waiting.id, 1.0, annotator="person")
                    answered.append(waiting.id)

        thread = threading.Thread(target=serve)
        thread.start()
        asked = [id for n in range(20) for id in trainer.ask(n, n, [query(2 * n), query(2 * n + 1)], "uniform")]
        done.set()
        thread.join(30)
        assert sorted(answered) == asked
        assert sorted(a.query_id for a in trainer.answers()) == asked


def test_threads_share_one_store(store: LabelStore):
    ids = store.ask(1, 0, [query(n) for n in range(8)], "uniform")
    threads = [threading.Thread(target=store.answer, args=(id, 1.0)) for id in ids for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.count() == Counts(labels=8, asked=8)


def test_nothing_acknowledged_is_lost_to_a_kill(tmp_path: Path):
    run_alone(__file__, tmp_path / "labels.sqlite")


def _ask_and_answer(path: Path, round: int, acknowledge: int) -> None:
    with LabelStore(path) as store:
        for session in range(1000 * round, 1000 * (round + 1)):
            for id in store.ask(session, session, [query(session), query(session + 1)], "uniform"):
                store.answer(id, float(id % 2))
                os.write(acknowledge, f"{id}\n".encode())


def _kill_many(path: Path, kills: int = 24) -> None:
    """Kill a writing child again and again, and look for each answer it had acknowledged."""
    acknowledged: set[int] = set()
    for round in range(kills):
        acknowledged |= set(killed(partial(_ask_and_answer, path, round)))
        with LabelStore(path) as store:
            found = {a.query_id: a.label for a in store.answers()}
        assert acknowledged <= found.keys()
        assert all(label == float(id % 2) for id, label in found.items())
        assert len(found) - len(acknowledged) <= round + 1  # at most the one in flight, each time
    assert len(acknowledged) >= kills


if __name__ == "__main__":
    _kill_many(Path(sys.argv[1]))
