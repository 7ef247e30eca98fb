"""The page before the server that `ubp2 label` starts: what is chosen on the screen is what lies in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.labelling import crowd, processes
from tests.labelling.browser import Person, until
from ubp2.preference.store import Given, LabelStore


class Served:
    """`ubp2 label` on a run of toy/reach with open questions and no trainer."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, processes.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        crowd.record(folder, episodes=4)
        with LabelStore(folder / "labels.sqlite") as store:
            ids = store.ask(100, 0, crowd.questions(folder, 24, 0), "uniform")
            store.note({f"judged:{id}": 0.9 for id in ids} | {"phase": "exploring", "decision": 100})
        self.start()

    def start(self) -> None:
        self.process = processes.server(self.folder, self.port, "--again", "0")

    def given(self) -> list[Given]:
        with LabelStore(self.folder / "labels.sqlite") as store:
            return store.given()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path / "run")
    yield found
    if found.process.running():
        found.process.kill()


@pytest.fixture
def sit_down(chromium: Any, served: Served) -> Iterator[Callable[[str], Person]]:
    people: list[Person] = []

    def come(name: str) -> Person:
        context = chromium.new_context(viewport={"width": 1280, "height": 800})
        people.append(Person(context.new_page(), served.url).come(name))
        return people[-1]

    yield come
    complaints = [text for one in people for text in one.complaints]
    for one in people:
        one.page.context.close()
    assert not complaints, complaints


def as_shown(given: Given) -> str:
    """What was chosen on the screen, from what is in the store."""
    if given.weight == 0:
        return "cant-tell"
    if given.label == 0.5:
        return "equal"
    return "left" if (given.label > 0.5) != given.swapped else "right"


def test_a_session_with_a_kill_in_the_middle(served: Served, sit_down: Callable[[str], Person]) -> None:
    ann = sit_down("Ann")
    choices = ["left", "right", "equal", "cant-tell", "right", "left"]
    for number, choice in enumerate(choices):
        ann.answer(choice, by="mouse" if number % 2 else "key")
    ann.wait_saved()
    assert [as_shown(given) for given in served.given()] == choices
    assert all(given.seconds and given.seconds > 0.3 for given in served.given())
    ann.wait_text("#last", "Your last answer: left.")
    ann.page.keyboard.press("u")
    ann.wait_text("#last", "choose again")
    again = ann.answer("equal")
    ann.wait_saved()
    assert [as_shown(given) for given in served.given()] == [*choices[:-1], "equal"]
    ann.see_pair()
    served.process.kill()
    kept = ann.answer("right")
    ann.wait_text("#save", "Offline, 1 kept here")
    served.start()
    ann.try_now()
    ann.wait_saved()
    until(lambda: len(served.given()) == 7, "it is stored")
    assert as_shown(served.given()[-1]) == "right"
    ann.page.reload()
    assert ann.see_pair() not in (again, kept)
    bo = sit_down("oracle")
    bo.wait_text("#waiting", "choose another name")
    bo.page.click("#waiting-act")
    bo.page.fill("#name", "Bo")
    bo.page.keyboard.press("Enter")
    bo.answer("left")
    bo.wait_saved()
    ann.answer("left")
    ann.wait_saved()
    questions = [given.query_id for given in served.given()]
    assert len(questions) == len(set(questions)) == 9
    ann.page.click("#tab-dashboard")
    ann.wait_text("#dash", "Ann")
    assert "Bo" in ann.text("#dash")
