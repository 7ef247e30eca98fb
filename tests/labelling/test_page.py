"""The page in a real browser: answers by key and mouse, and nothing that happens on the way loses or doubles one."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.labelling.browser import Person, Server, until

People = Callable[..., Person]


def test_ten_pairs_by_keyboard_and_mouse(person: People, server: Server) -> None:
    ann = person().come("Ann")
    given = []
    for number in range(10):
        choice = ("left", "right", "equal", "left", "cant-tell")[number % 5]
        given.append((ann.answer(choice, by="mouse" if number % 2 else "key"), choice))
    ann.wait_saved()
    ann.wait_text("#mine", "10 by you")
    assert [(act["pair"], act["choice"]) for act in server.answers] == given
    assert len({act["key"] for act in server.answers}) == len({act["question"] for act in server.answers}) == 10
    assert all(0.3 < act["seconds"] < 30 and act["annotator"] == "Ann" for act in server.answers)
    assert "10 of 40 answered" in ann.text("#budget-text")
    assert ann.text("#phase") == "Exploring, decision 1,250 of 5,000"
    assert ann.text("#trainer") == "Waiting for answers"


def test_the_model_is_shown_only_after_the_answer_and_can_be_switched_off(person: People, server: Server) -> None:
    ann = person().come()
    ann.see_pair()
    assert "model" not in ann.text("#last")
    ann.answer("right")
    ann.wait_text("#last", "Your last answer: right. ✓ The model agrees.")
    ann.answer("right")
    ann.wait_text("#last", "✗ The model would have said left.")
    ann.page.uncheck("#agreement")
    ann.answer("right")
    ann.wait_text("#mine", "3 by you")
    assert ann.text("#last") == "Your last answer: right."
    ann.page.reload()
    ann.see_pair()
    assert not ann.page.is_checked("#agreement")
    server.behave(agreement=False)
    ann.page.reload()
    ann.see_pair()
    assert not ann.page.is_visible("#agreement-switch")


def test_a_double_click_and_a_held_key_are_one_answer(person: People, server: Server) -> None:
    ann = person().come()
    first = ann.see_pair()
    ann.page.dblclick('.answer[data-choice="left"]')
    second = ann.see_pair()
    assert second != first
    for _ in range(6):  # a key held down: presses without a release between them
        ann.page.keyboard.down("j")
    ann.page.keyboard.up("j")
    ann.page.keyboard.press(" ")  # after a click the space bar pauses, it does not click again
    ann.wait_text("#mine", "2 by you")
    ann.see_pair()
    assert [act["choice"] for act in server.answers] == ["left", "right"]
    assert not any(video["paused"] is False for video in ann.videos())


def test_undo_brings_the_pair_back(person: People, server: Server) -> None:
    ann = person().come()
    ann.see_pair()
    ann.page.keyboard.press("u")
    ann.page.wait_for_selector("#toast:has-text('no answer of yours')")
    first = ann.answer("left")
    second = ann.answer("left", by="mouse")
    third = ann.see_pair()
    ann.page.click("#undo")
    ann.wait_text("#last", "taken back: choose again")
    assert ann.see_pair() == second
    ann.page.keyboard.press("u")
    until(lambda: ann.see_pair() == first, "the first pair is back")
    assert ann.answer("right") == first
    assert ann.answer("equal") == second
    assert ann.see_pair() == third
    ann.wait_saved()
    assert [act["choice"] for act in server.answers] == ["left", "left", "right", "equal"]
    assert sum(act["act"] == "undo" for act in server.acts) == 2


def test_reload_and_back_are_harmless(person: People, server: Server) -> None:
    ann = person().come()
    ann.answer("left")
    pair = ann.see_pair()
    ann.wait_saved()
    ann.page.reload()
    assert not ann.page.is_visible("#name-dialog")
    assert ann.see_pair() == pair
    assert ann.text("#who-name") == "Ann"
    ann.page.click("#tab-dashboard")
    ann.page.wait_for_selector("#view-dashboard", state="visible")
    ann.page.keyboard.press("f")  # nothing is answered that is not seen
    ann.page.go_back()
    ann.page.wait_for_selector("#view-label", state="visible")
    ann.page.goto("about:blank")
    ann.page.go_back()
    assert ann.see_pair() == pair
    assert len(server.answers) == 1


def test_two_annotators_get_different_pairs(person: People, server: Server) -> None:
    ann, bo = person().come("Ann"), person().come("Bo")
    for choice in ("left", "equal", "right"):
        ann.answer(choice)
        bo.answer(choice, by="mouse")
    ann.wait_saved()
    bo.wait_saved()
    ann.wait_text("#mine", "3 by you")
    bo.wait_text("#mine", "3 by you")
    assert len({act["question"] for act in server.answers}) == 6
    bo.page.click("#who")
    bo.page.fill("#name", "Cy")
    bo.page.click("#name-form .primary")
    bo.wait_text("#mine", "0 by you")
    bo.answer("left")
    bo.wait_saved()
    assert server.answers[-1]["annotator"] == "Cy"


def test_a_pair_that_went_to_somebody_else_while_it_was_only_ahead_is_exchanged(person: People, server: Server) -> None:
    bo = person().come("Bo")
    bo.see_pair()
    server.behave(taken=[1])  # somebody who had nothing to do has it, and Bo's page cannot know
    bo.answer("left")
    bo.wait_saved()
    until(lambda: bo.see_pair().startswith("2-"), "a pair that is Bo's own", shown=bo.see_pair)
    with bo.page.expect_response("**/api/next"):  # says that the pair in front is Bo's
        bo.answer("right")
    bo.wait_saved()
    assert [(act["question"], act["choice"]) for act in server.answers] == [(0, "left"), (2, "right")]
    server.behave(taken=[1, 3, 4])
    with bo.page.expect_response("**/api/next"):
        bo.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    bo.page.wait_for_timeout(300)
    assert bo.see_pair().startswith("3-"), "what the server called ours stays while it is looked at"


def test_two_tabs_of_one_person(person: People, server: Server) -> None:
    ann = person().come()
    pair = ann.see_pair()
    twin = person(beside=ann).come(None)
    assert twin.see_pair() == pair
    ann.page.bring_to_front()
    ann.answer("left")
    twin.wait_text("#last", "answered in another tab")
    twin.page.bring_to_front()
    until(lambda: twin.see_pair() != pair, "the other tab goes on")
    ann.wait_saved()
    assert [act["pair"] for act in server.answers] == [pair]


def test_an_undo_waits_for_the_answer_that_another_tab_has_not_sent(person: People, server: Server) -> None:
    ann = person().come()
    ann.answer("left")
    ann.wait_saved()
    second = ann.see_pair()
    twin = person(beside=ann).come(None)
    twin.see_pair()
    ann.page.route("**/api/answer", lambda route: route.abort())
    ann.page.bring_to_front()
    ann.answer("right")
    ann.wait_text("#save", "Offline, 1 kept here")
    twin.page.bring_to_front()
    twin.wait_text("#last", "answered in another tab")
    twin.page.keyboard.press("u")
    twin.wait_text("#last", "choose again")
    assert twin.see_pair() == second
    assert [act["act"] for act in server.acts] == ["answer", "answer", "undo"]
    assert server.acts[2]["of"] == server.acts[1]["key"]


def test_an_answer_that_the_server_no_longer_wants_is_said_to_be_so(person: People, server: Server) -> None:
    ann = person().come()
    pair = ann.see_pair()
    other = {"annotator": "Bo", "pair": pair, "choice": "left", "key": "k" * 32, "seconds": 1}
    assert ann.page.request.post(f"{server.url}/api/answer", data=other).ok
    ann.answer("right")
    ann.page.wait_for_selector("#toast:has-text('Not counted: This pair is answered already.')")
    ann.wait_saved()
    ann.answer("equal")
    ann.wait_saved()
    assert [act["choice"] for act in server.answers] == ["left", "equal"]


def test_a_server_killed_before_it_stored_gets_the_answer_when_it_is_back(person: People, server: Server) -> None:
    server.behave(delay=30)
    ann = person().come()
    first = ann.answer("left")
    ann.wait_text("#save", "Saving…")
    server.kill()
    ann.wait_text("#save", "Offline, 1 kept here")
    second = ann.answer("right")  # the pair that was loaded ahead
    ann.wait_text("#save", "Offline, 2 kept here")
    ann.wait_text("#waiting", "2 answers are kept in this browser")
    server.behave()
    server.start()
    ann.try_now()
    ann.wait_saved()
    assert [(act["pair"], act["choice"]) for act in server.answers] == [(first, "left"), (second, "right")]
    assert ann.answer("equal") not in (first, second)


def test_a_server_killed_after_it_stored_does_not_get_it_twice(person: People, server: Server) -> None:
    server.behave(lose=True)
    ann = person().come()
    pair = ann.answer("left")
    server.wait_for_death()
    ann.wait_text("#save", "Offline, 1 kept here")
    server.behave()
    server.start()
    ann.wait_saved()
    ann.answer("equal")
    ann.wait_saved()
    assert [act["choice"] for act in server.answers] == ["left", "equal"]
    assert server.answers[0]["pair"] == pair


def test_another_run_in_the_place_of_ours_gets_none_of_our_answers(person: People, server: Server) -> None:
    ann = person().come()
    ann.see_pair()
    server.behave(astray=True)  # what stands there now knows nothing of us
    pair = ann.answer("left")
    ann.wait_text("#save", "Offline, 1 kept here")
    server.behave(run="another")
    ann.try_now()
    ann.wait_text("#waiting", "Another run is served here Reload the page to label it. Your answer is kept")
    assert ann.text("#save-text") == "Another run, 1 kept here"
    ann.page.click("#waiting-act")
    assert ann.answer("right") == pair, "the other run has pairs of its own"
    ann.wait_saved()
    server.behave()
    ann.page.reload()
    ann.page.wait_for_selector("#toast:has-text('answered already')")
    assert [act["choice"] for act in server.answers] == ["right"]


def test_a_full_disk_and_a_reload_lose_nothing(person: People, server: Server) -> None:
    server.behave(full=True)
    ann = person().come()
    pair = ann.answer("left")
    ann.wait_text("#save", "Offline, 1 kept here")
    assert ann.page.get_attribute("#save", "title") == "The disk is full."
    ann.page.reload()
    ann.wait_text("#save", "1 kept here")
    assert server.answers == []
    server.behave()
    ann.wait_saved()
    until(lambda: len(server.answers) == 1, "it is stored")
    assert server.answers[0]["pair"] == pair
    assert ann.see_pair() != pair


def test_a_network_that_drops_keeps_the_answer(person: People, server: Server) -> None:
    ann = person().come()
    ann.see_pair()
    ann.page.context.set_offline(True)
    ann.answer("left")
    ann.wait_text("#save", "Offline, 1 kept here")
    ann.page.keyboard.press("u")  # taken back in the same order as given
    ann.wait_text("#save", "Offline, 2 kept here")
    ann.page.context.set_offline(False)
    ann.wait_saved()
    assert [act["act"] for act in server.acts] == ["answer", "undo"]
    ann.wait_text("#last", "choose again")
    ann.answer("right")
    ann.wait_saved()
    assert server.answers[-1]["choice"] == "right"


def test_a_camera_chosen_while_a_pair_loads_leaves_its_time_and_its_guard_right(person: People, server: Server) -> None:
    server.behave(pairs=1)
    ann = person().come()
    ann.page.route(re.compile("/clips/[23]/corner"), lambda route: None)  # those of the second pair never come
    ann.see_pair()
    ann.page.wait_for_timeout(3000)
    ann.answer("left")
    server.behave(pairs=2)
    ann.wait_text("#waiting", "Loading the clips")
    ann.page.select_option("#camera", "topview")
    ann.answer("right")  # once it takes answers, as every new pair after a moment
    ann.wait_saved()
    first, second = (act["seconds"] for act in server.answers)
    assert second < first, "the time of a pair begins when it is shown"
