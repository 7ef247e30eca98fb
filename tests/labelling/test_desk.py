"""Who gets which pair: leases, overlap, sides, undo, pairs asked again; each answer once, however often it is sent."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from typing import Any

import pytest

from tests.labelling.conftest import Clock, FakeClip, question, rows
from ubp2.labelling.leases import GRACE
from ubp2.labelling.tickets import Ticket
from ubp2.storage import locks


def test_a_pair_is_the_same_until_it_is_answered(place: Any):
    here = place()
    first = here.desk.next("ann")
    assert first == here.desk.next("ann") and first.why is None
    here.desk.answer("ann", first.pair["id"], "left", "key-00001", 1.5)
    then = here.desk.next("ann")
    assert then.pair["id"] == first.ahead["id"] and then.pair["id"] != first.pair["id"]


def test_sides_are_random_recorded_and_the_same_after_a_restart(place: Any):
    here = place(questions=60)
    before, sides = {}, Counter()
    for i in range(60):
        pair = here.desk.next("ann").pair
        left_episode = int(pair["left"]["clips"]["top"]["mp4"].split("-")[1])
        sides[left_episode % 2] += 1
        before[here.question_of("ann", pair["id"])] = left_episode
        here.desk.answer("ann", pair["id"], "left", f"key-{i:05}", None)
    assert min(sides.values()) > 15
    for given in here.store.given("ann"):
        shown_left_is_question_left = before[given.query_id] % 2 == 0
        assert given.swapped is not shown_left_is_question_left
        assert given.label == float(shown_left_is_question_left)  # the shown left was chosen each time
    again = place()
    assert again.tickets.swapped("ann", Ticket(5)) == here.tickets.swapped("ann", Ticket(5))
    assert again.tickets.swapped("ann", Ticket(5, True)) != here.tickets.swapped("ann", Ticket(5))


@pytest.mark.parametrize(("choice", "weight"), [("equal", 1.0), ("cant-tell", 0.0)])
def test_neither_side(place: Any, choice: str, weight: float):
    here = place()
    here.desk.answer("ann", here.shown("ann"), choice, "key-00001", None)
    (given,) = here.store.given()
    assert (given.label, given.weight) == (0.5, weight)
    assert here.desk.progress("ann")["answered"] == weight and here.desk.progress("ann")["mine"] == 1


def test_two_people_never_have_the_same_pair(place: Any):
    here = place(questions=6)
    seen: dict[str, set[int]] = {}
    for name in ("ann", "bob", "cleo"):
        hand = here.desk.next(name)
        seen[name] = {here.question_of(name, pair["id"]) for pair in (hand.pair, hand.ahead)}
    assert len(set.union(*seen.values())) == 6
    assert here.desk.next("dan").pair is not None  # takes what somebody has only ahead
    stolen = here.question_of("dan", here.shown("dan"))
    assert all(stolen != here.question_of(name, here.shown(name)) for name in ("ann", "bob", "cleo"))


def test_nobody_is_idle_while_a_pair_is_only_ahead_and_nobody_gets_one_that_is_shown(place: Any):
    here = place(questions=2)
    ann = here.desk.next("ann")
    assert ann.ahead is not None
    bob = here.desk.next("bob")
    assert here.question_of("bob", bob.pair["id"]) == here.question_of("ann", ann.ahead["id"])
    assert here.desk.next("ann").ahead is None and here.desk.next("ann").pair == ann.pair
    cleo = here.desk.next("cleo")
    assert cleo.pair is None and cleo.why == "the last pairs are with others"


def test_who_closes_the_page_gives_the_pair_back_unless_it_is_open_elsewhere(place: Any, clock: Clock):
    here = place(questions=1)
    pair = here.shown("bob")
    here.desk.leave("bob")
    assert here.desk.next("ann").pair is None, "another page of his may show it"
    clock.now += 12
    assert here.shown("bob") == pair
    clock.now += 12
    assert here.desk.next("ann").pair is None
    here.desk.leave("bob")
    here.desk.leave("nobody")
    clock.now += GRACE + 1
    assert here.question_of("ann", here.shown("ann")) == here.question_of("bob", pair)
    assert here.desk.next("bob").why == "the last pairs are with others"
    here.desk.answer("ann", here.shown("ann"), "left", "key-00001", 1.0)
    assert here.desk.next("bob").why == here.desk.next("ann").why == "everything is answered"  # no trainer runs


def test_overlap(place: Any):
    here = place(questions=3, overlap=2)
    for name in ("ann", "bob", "cleo"):
        for i in range(3):
            hand = here.desk.next(name)
            if hand.pair:
                here.desk.answer(name, hand.pair["id"], "equal", f"key-{name}-{i}", None)
    answers = Counter(given.query_id for given in here.store.given())
    assert set(answers.values()) == {2} and len(answers) == 3
    assert len({(given.query_id, given.annotator) for given in here.store.given()}) == 6


def test_double_click_retry_and_two_tabs_are_one_label(place: Any):
    here = place()
    first, second = here.desk.next("ann"), here.desk.next("ann")  # two tabs
    pair = first.pair["id"]
    assert second.pair["id"] == pair
    for _ in range(3):  # double click, and a retry after a dropped response
        here.desk.answer("ann", pair, "left", "key-tab-1", 1.0)
    assert len(rows(here)) == 1
    here.desk.answer("ann", second.pair["id"], "right", "key-tab-2", 1.0)
    (given,) = here.store.given()  # the second tab changed the answer: still one
    assert given.label == float(here.tickets.swapped("ann", Ticket(given.query_id)))
    assert len(rows(here)) == 2  # and nothing was destroyed
    restarted = place()
    restarted.desk.answer("ann", pair, "left", "key-tab-1", 1.0)
    assert len(rows(here)) == 2 and restarted.desk.progress("ann")["answered"] == 1


def test_undo_shows_the_pair_again_across_a_reload_and_destroys_nothing(place: Any):
    here = place()
    pairs = []
    for i in range(2):
        pairs.append(here.shown("ann"))
        here.desk.answer("ann", pairs[-1], "left", f"key-0000{i}", 1.0)
    back = here.desk.undo("ann", "undo-0001")
    assert back["id"] == pairs[1] and here.desk.undo("ann", "undo-0001")["id"] == pairs[1]  # a retry
    assert here.desk.next("ann").pair["id"] == pairs[1]  # a reload
    assert place().desk.next("ann").pair["id"] == pairs[1]  # a restart
    assert here.desk.progress("ann")["mine"] == 1
    here.desk.answer("ann", pairs[1], "left", "key-00001", 1.0)  # the old answer, sent once more by another tab
    assert here.desk.next("ann").pair["id"] == pairs[1], "what was undone stays undone"
    here.desk.answer("ann", pairs[1], "equal", "key-00009", 1.0)
    assert here.desk.undo("ann", "undo-0002")["id"] == pairs[1]
    assert here.desk.undo("ann", "undo-0003")["id"] == pairs[0]
    assert here.desk.undo("ann", "undo-0004") is None
    assert len(rows(here)) == 6 and here.store.given() == []


def test_undo_is_ones_own(place: Any):
    here = place()
    here.desk.answer("ann", here.shown("ann"), "left", "key-00001", 1.0)
    assert here.desk.undo("bob", "undo-0001") is None
    here.desk.answer("bob", here.shown("bob"), "left", "key-00001", 1.0)  # the same key is another person's
    assert len(here.store.given()) == 2


def test_pairs_are_asked_again_flipped_and_are_no_labels(place: Any):
    here = place(questions=40, again=0.25)
    checks, shown = 0, {}
    for i in range(80):
        pair = here.desk.next("ann").pair
        if pair is None:
            break
        ticket = here.tickets.read("ann", pair["id"])
        if ticket.again:
            checks += 1
            before, when = shown[ticket.question]
            assert pair["left"] == before["right"] and i - when > 6
        shown.setdefault(ticket.question, (pair, i))
        here.desk.answer("ann", pair["id"], "left", f"key-{i:05}", 1.0)
    assert len(here.store.given()) == 40 and 3 <= checks <= 20
    assert len(here.store.checks()) == checks == len({check.query_id for check in here.store.checks()})


def test_undo_of_a_pair_that_was_asked_again(place: Any):
    here = place(questions=20, again=1.0)
    for i in range(40):
        pair = here.shown("ann")
        here.desk.answer("ann", pair, "left", f"key-{i:05}", 1.0)
        if here.tickets.read("ann", pair).again:
            break
    count = len(here.store.given())
    assert here.desk.undo("ann", "undo-0001")["id"] == pair
    assert here.desk.undo("ann", "undo-0001")["id"] == pair and len(here.store.given()) == count
    assert here.desk.next("ann").pair["id"] == pair
    assert here.desk.undo("ann", "undo-0002")["id"] != pair and len(here.store.given()) == count - 1


def test_an_undo_that_is_sent_again_to_a_new_server_takes_nothing_more_back(place: Any):
    here = place(questions=20, again=1.0)
    for i in range(40):
        pair = here.shown("ann")
        here.desk.answer("ann", pair, "left", f"key-{i:05}", 1.0)
        if here.tickets.read("ann", pair).again:
            break
    while here.tickets.read("ann", pair := here.shown("ann")).again:  # a pair asked again, then a label
        here.desk.answer("ann", pair, "left", f"key-again-{pair}"[:80], 1.0)
    here.desk.answer("ann", pair, "left", "key-99999", 1.0)
    assert here.desk.undo("ann", "undo-0001")["id"] == pair
    assert place(questions=20, again=1.0).desk.undo("ann", "undo-0001")["id"] == pair


def test_a_failed_clip_comes_last_and_is_skipped_with_its_reason(place: Any):
    here = place(questions=3)
    here.clips.states["clip-0-1-3"] = FakeClip(False, "no OpenGL")
    for i in range(2):
        pair = here.desk.next("ann").pair
        assert not pair["left"]["failed"] and not pair["right"]["failed"]
        here.desk.answer("ann", pair["id"], "left", f"key-{i:05}", 1.0)
    pair = here.desk.next("ann").pair
    assert "no OpenGL" in (pair["left"]["failed"], pair["right"]["failed"])
    for _ in range(2):
        here.desk.broken("ann", pair["id"], "no OpenGL")
    assert [given.reason for given in here.store.given() if given.weight == 0] == ["no OpenGL"]
    assert len(rows(here)) == 3 and here.desk.next("ann").pair is None
    assert here.desk.progress("ann")["answered"] == 2


def test_rendering_and_failed_sides_are_said(place: Any):
    here = place(questions=1)
    here.clips.states["clip-0-1-3"] = FakeClip(ready=False)
    hand = here.desk.next("ann")
    assert hand.why == "rendering" and sorted([hand.pair["left"]["ready"], hand.pair["right"]["ready"]]) == [
        False,
        True,
    ]
    here.clips.states["clip-0-1-3"] = FakeClip(False, "the disk is full")
    hand = here.desk.next("ann")
    assert hand.why is None and "the disk is full" in (hand.pair["left"]["failed"], hand.pair["right"]["failed"])


def test_what_the_reward_model_thinks_is_told_after_the_answer_in_terms_of_what_was_shown(place: Any):
    here = place()
    pair = here.shown("ann")
    number = here.question_of("ann", pair)
    swapped = here.tickets.swapped("ann", Ticket(number))
    here.store.note({f"judged:{number}": 0.9, f"judged:{number}1": 0.1})
    model = "right" if swapped else "left"
    assert here.desk.answer("ann", pair, model, "key-00001", None) == {"model": model, "agrees": True}
    assert here.desk.answer("ann", pair, "equal", "key-00002", None) == {"model": model, "agrees": False}
    here.store.note({f"judged:{number}": 0.55})
    assert here.desk.answer("ann", pair, "equal", "key-00003", None) == {"model": "unsure", "agrees": True}
    assert here.desk.answer("ann", pair, "cant-tell", "key-00004", None) is None
    assert place(show_agreement=False).desk.answer("ann", pair, "left", "key-00005", None) is None


def test_why_there_is_none_and_the_trainer_is_gone(place: Any):
    here = place(questions=1, budget=1000)
    lock = locks.take(here.folder)
    try:
        here.store.note({"trainer": "waiting for answers", "decision": 170, "steps": 500, "waiting": "fallback"})
        progress = here.desk.progress("ann")
        assert (progress["trainer"], progress["decision"], progress["steps"]) == ("waiting for answers", 170, 500)
        assert progress["waiting"] == "fallback" and progress["budget"] == 1000
        pair = here.shown("ann")
        here.desk.answer("ann", pair, "left", "key-00001", None)
        assert here.desk.next("ann").why == "waiting for the trainer"
    finally:
        os.close(lock)
    assert here.desk.next("ann").why == "everything is answered"
    assert here.desk.progress("ann")["trainer"] == "gone"
    assert place(budget=1).desk.next("ann").why == "the budget is spent"


def test_questions_that_a_trainer_asks_meanwhile_are_seen(place: Any):
    here = place(questions=1)
    here.desk.answer("ann", here.shown("ann"), "left", "key-00001", None)
    assert here.desk.next("ann").pair is None
    with type(here.store)(here.folder / "labels.sqlite") as trainer:
        trainer.ask(200, 1, [question(50)], "uniform")
    here.desk._view.look(now=True)
    assert here.desk.next("ann").pair["left"]["clips"]["top"]["mp4"].startswith("/clips/clip-10")


def test_what_a_resumed_trainer_makes_again_is_not_offered_meanwhile(place: Any):
    """Its episodes are gone until it has come to that decision again; nobody should skip a pair for that."""
    here = place()
    ids = here.store.ask(200, 1, [question(i) for i in range(6, 8)], "uniform")
    trainer = locks.take(here.folder)
    here.store.note({"decision": 150})
    offered = {here.tickets.read("ann", each) for each in answered(here, "ann")}
    assert len(offered) == 6 and not {ticket.question for ticket in offered} & set(ids)
    assert here.desk.next("ann").why == "waiting for the trainer"
    here.store.note({"decision": 200})
    here.desk._view.look(now=True)
    assert len(answered(here, "ann")) == 2
    os.close(trainer)


def answered(here: Any, name: str) -> list[str]:
    """All pairs that there are for somebody, each answered."""
    found = []
    while (pair := here.desk.next(name).pair) is not None:
        here.desk.answer(name, pair["id"], "left", f"key-{len(found)}-{pair['id']}", 1.0)
        found.append(pair["id"])
    return found


def test_camera_names_are_quoted(place: Any):
    here = place()
    clips = here.desk.next("ann").pair["left"]["clips"]
    assert clips["front view"]["webm"].endswith("/front%20view.webm")
    json.dumps(here.desk.next("ann").pair)


def test_many_threads_share_the_questions_and_nobody_gets_what_another_has(place: Any):
    here = place(questions=60, again=0.1)
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            while (pair := here.desk.next(name).pair) is not None:
                here.desk.answer(name, pair["id"], "left", f"key-{pair['id']}"[:80], 1.0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"person {i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and set(Counter(given.query_id for given in here.store.given()).values()) == {1}
    assert len(here.store.given()) == 60
