"""A trainer on one machine and its people on another: two folders that become the same, whatever fails between them."""

from __future__ import annotations

import dataclasses
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ubp2
from tests.labelling.conftest import FakeClips, question
from tests.labelling.remote import SPEC, Annotator, address, answer, asked, call, episode, fill, given, serving
from tests.training.test_people import config, rows
from tests.waiting import until
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.labelling import courier, parcels
from ubp2.labelling.courier import Courier, check_address
from ubp2.labelling.options import TRAINER_VARIABLE
from ubp2.labelling.serve import Served, start
from ubp2.preference.exchange import Exchange
from ubp2.preference.store import LabelStore
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import Run
from ubp2.terminal.cli import main


@pytest.fixture(autouse=True)
def couriers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """They are fast, and none goes on asking after its test."""
    monkeypatch.setattr(courier, "PAUSE", 0.02)
    monkeypatch.setattr(courier, "LONGEST_PAUSE", 0.1)
    started: list[Courier] = []
    start = Courier.start

    def noted(self: Courier, *, patient: bool) -> None:
        start(self, patient=patient)
        started.append(self)

    monkeypatch.setattr(Courier, "start", noted)
    yield
    for each in started:
        each.stop()


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = serving(tmp_path)
    monkeypatch.setenv(TRAINER_VARIABLE, served.trainer_token or "")
    yield served
    served.stop()


@pytest.mark.slow
def test_a_run_taught_from_another_machine_is_the_run_of_the_oracle(tmp_path: Path, page: Served) -> None:
    out, double = tmp_path / "run", tmp_path / "double"
    person = Annotator(page, double, out)
    person.start()
    try:
        result = ubp2.train(config(**{"teacher.url": address(page)}), out=out, progress=False)
    finally:
        person.done.set()
        person.join()
    oracle = dataclasses.replace(config(), teacher=Config().teacher)
    ubp2.train(oracle, out=tmp_path / "oracle", progress=False)
    assert result.labels == 12 and rows(out) == rows(tmp_path / "oracle")

    assert rows(double) == rows(out), "the learning curve for the dashboard"
    with EpisodeArchive(double / "episodes.sqlite") as there, EpisodeArchive(out / "episodes.sqlite") as here:
        assert len(there) == len(here) > 0
        for mine, theirs in zip(here.iterate(), there.iterate(), strict=True):
            np.testing.assert_array_equal(mine.obs, theirs.obs)
            assert mine.seed == theirs.seed and not theirs.true_reward.any(), "the reward stays where it is"
    with LabelStore(double / "labels.sqlite") as there, LabelStore(out / "labels.sqlite") as here:
        mine, theirs = here.notes("judged:"), there.notes("judged:")
        assert sorted(mine.values()) == sorted(theirs.values()) and len(mine) == 8, "none of the first session"
        assert there.notes()["decision"] == 400


def test_what_the_scripted_teacher_says_reaches_the_page(tmp_path: Path, page: Served) -> None:
    own = config(**{"teacher.url": address(page), "teacher.wait": "fallback", "teacher.patience": 0.05})
    ubp2.train(own, out=tmp_path / "run", progress=False)
    with LabelStore(tmp_path / "double" / "labels.sqlite") as store:
        assert {given.annotator for given in store.given()} == {"oracle"} and store.waiting() == 0
    with LabelStore(tmp_path / "run" / "labels.sqlite") as store:
        assert len(store.given()) == 12, "and does not come back as a second answer"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Run]:
    """The run of a trainer that has asked, as its process would have left it a moment ago."""
    with Run.create(tmp_path / "run", Config(env="toy/reach")) as run:
        fill(run, time.time() + 3600)
        yield run


def test_answers_and_what_is_undone_arrive_once(tmp_path: Path, page: Served, local: Run) -> None:
    said: list[str] = []
    carrier = Courier(local, address(page), SPEC, said.append)
    carrier.start(patient=False)
    until(lambda: asked(page))
    for i, choice in enumerate(("left", "equal", "cant-tell", "right")):
        answer(page, choice, f"key-number-{i}")
    until(lambda: len(given(local.folder)) == 4)
    call(page, "/api/undo", {"annotator": "ann", "key": "undo-number-1"})
    until(lambda: len(given(local.folder)) == 3)
    carrier.stop()
    again = Courier(local, address(page), SPEC, said.append)  # the next process of the run: everything is there
    again.start(patient=False)
    again.stop()
    assert given(local.folder) == given(tmp_path / "double") and not said


def test_a_page_that_goes_away_and_comes_back_loses_nothing(tmp_path: Path, page: Served, local: Run) -> None:
    said: list[str] = []
    carrier = Courier(local, address(page), SPEC, said.append)
    carrier.start(patient=False)
    until(lambda: asked(page))
    answer(page, "left", "key-number-0")
    page.stop()
    until(lambda: said)
    with LabelStore(local.labels) as store:
        store.ask(200, 1, [question(i) for i in range(6, 9)], "uniform")
    back = serving(tmp_path, page.port)
    try:
        until(lambda: len(said) > 1)
        assert "cannot be used now" in said[0] and said[1].endswith("is back")
        for i in range(1, 9):
            until(lambda: asked(back))
            answer(back, "right", f"key-number-{i}")
        until(lambda: len(given(local.folder)) == 9)
        carrier.stop()
        assert given(local.folder) == given(tmp_path / "double")
    finally:
        back.stop()


def test_what_was_asked_and_answered_while_the_page_was_away_reaches_it(
    tmp_path: Path, page: Served, local: Run
) -> None:
    """A scripted teacher stood in for people; nobody should be asked again what it has answered."""
    carrier = Courier(local, address(page), SPEC, print)
    carrier.start(patient=False)
    until(lambda: asked(page))
    page.stop()
    with LabelStore(local.labels) as store:
        for id in store.ask(200, 1, [question(i) for i in range(6, 9)], "uniform"):
            store.answer(id, 1.0, annotator="oracle")
    back = serving(tmp_path, page.port)
    try:
        until(lambda: len(given(tmp_path / "double")) == 3)
        carrier.stop()
        assert given(local.folder) == given(tmp_path / "double")
    finally:
        back.stop()


def test_no_proxy_stands_between_a_trainer_and_the_end_of_its_tunnel(
    page: Served, local: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name)
    Courier(local, address(page), SPEC, print).start(patient=False)


def test_an_annotator_may_have_any_name(page: Served, local: Run) -> None:
    carrier = Courier(local, address(page), SPEC, print)
    carrier.start(patient=False)
    until(lambda: asked(page))
    for name in ("trainer", "trainer/bob"):
        _, hand = call(page, "/api/next", {"annotator": name})
        said = {"annotator": name, "pair": hand["pair"]["id"], "choice": "left", "key": "key-number-0"}
        assert call(page, "/api/answer", said)[0] == 200
    until(lambda: len(given(local.folder)) == 2)
    carrier.stop()


@pytest.mark.parametrize("restored", ["run", "double"])
def test_a_backup_in_the_place_of_either_file_loses_no_later_answer(
    tmp_path: Path, page: Served, local: Run, restored: str
) -> None:
    """The trainer asks again what people have answered; the page gives the next answer the id of a lost one."""
    carrier = Courier(local, address(page), SPEC, print)
    carrier.start(patient=False)
    until(lambda: asked(page))
    if restored == "double":
        page.stop()
        backup = (tmp_path / "double" / "labels.sqlite").read_bytes()
        page = serving(tmp_path, page.port)
    answer(page, "left", "key-number-0")
    until(lambda: len(given(local.folder)) == 1)
    carrier.stop()
    if restored == "double":
        page.stop()
        (tmp_path / "double" / "labels.sqlite").write_bytes(backup)
        page = serving(tmp_path, page.port)
        answer(page, "equal", "key-number-1")
    else:
        local.labels.unlink()  # before anything was asked
    again = Courier(local, address(page), SPEC, print)
    again.start(patient=False)
    if restored == "run":
        time.sleep(0.3)
        fill(local, time.time() + 3600)
    try:
        until(lambda: given(local.folder) == given(tmp_path / "double"))
    finally:
        again.stop()
        page.stop()


def test_infinite_traits_of_a_teacher_travel(tmp_path: Path, page: Served) -> None:
    own = config(**{"teacher.url": address(page), "teacher.beta": float("inf")})
    with Run.create(tmp_path / "run", own) as run:
        Courier(run, address(page), SPEC, print).start(patient=False)
    assert Run.open(tmp_path / "double").config == own


def test_a_run_that_took_another_course_replaces_what_the_page_has(tmp_path: Path, page: Served, local: Run) -> None:
    carrier = Courier(local, address(page), SPEC, print)
    carrier.start(patient=False)
    until(lambda: asked(page))
    answer(page, "left", "key-number-0")
    until(lambda: len(given(local.folder)) == 1)
    carrier.stop()
    with EpisodeArchive(local.episodes) as archive, LabelStore(local.labels) as store:
        archive.truncate(3)
        for index in range(3, 12):
            archive.append(episode(index + 100)._replace(index=index))
        store.ask(100, 0, [question(i + 50) for i in range(6)], "uniform")
    again = Courier(local, address(page), SPEC, print)
    again.start(patient=False)
    again.stop()
    with EpisodeArchive(local.episodes) as here, EpisodeArchive(tmp_path / "double" / "episodes.sqlite") as there:
        assert [parcels.episode(each) for each in here.iterate()] == [parcels.episode(each) for each in there.iterate()]
    with Exchange(local.labels) as here, Exchange(tmp_path / "double" / "labels.sqlite") as there:
        assert here.questions() == there.questions()
    assert given(local.folder) == given(tmp_path / "double") == []


def test_before_its_first_sign_of_life_a_resumed_run_sends_nothing(tmp_path: Path, page: Served) -> None:
    """It may be about to take back what it did after its checkpoint."""
    with Run.create(tmp_path / "run", Config(env="toy/reach")) as run:
        fill(run, beat=time.time() - 60)
        carrier = Courier(run, address(page), SPEC, print)
        carrier.start(patient=False)
        time.sleep(0.3)
        assert not asked(page)
        fill(run, beat=time.time() + 1)
        until(lambda: asked(page))
        carrier.stop()


def test_a_page_without_a_trainer_says_so(page: Served) -> None:
    with urllib.request.urlopen(page.url) as reply:
        assert "No trainer has connected yet" in reply.read().decode()
    assert call(page, "/api/next", {"annotator": "ann"}) == (503, "no trainer has connected yet; this is tried again")
    assert page.progress() == {"answered": 0, "asked": 0}


def test_only_the_trainer_gets_in(tmp_path: Path, page: Served, local: Run) -> None:
    token = page.trainer_token
    for path in ("hello", "episode", "questions", "notes", "metrics", "answers"):
        assert call(page, f"/api/trainer/{path}", {})[0] == 401
        status, sentence = call(page, f"/api/trainer/{path}", {}, "x" * 32)
        assert status == 401 and sentence.startswith("that is not the token")
    assert call(page, "/api/trainer/answers", {"given": [], "after": 0}, token)[0] == 409
    assert call(page, "/api/trainer/hello", b"{", token)[0] == 400
    assert call(page, "/api/trainer/hello", {}, token)[0] == 400
    Courier(local, address(page), SPEC, print).start(patient=False)
    for path, body in (("episode", b"PK\x03\x04junk"), ("questions", b""), ("notes", {"notes": 3, "about": []})):
        status, sentence = call(page, f"/api/trainer/{path}", body, token)
        assert status == 400 and sentence.startswith("the request cannot be read")
    plain = start(local.folder, port=0, clips=FakeClips(tmp_path))
    try:
        status, sentence = call(plain, "/api/trainer/hello", {}, token)
        assert status == 404 and "--remote" in sentence
    finally:
        plain.stop()


def test_a_page_is_for_one_run(tmp_path: Path, page: Served, local: Run) -> None:
    Courier(local, address(page), SPEC, print).start(patient=False)
    said = "belongs to another run; start one for this run with another folder"
    with Run.create(tmp_path / "other", Config(env="toy/reach")) as other, pytest.raises(UserError, match=said):
        Courier(other, address(page), SPEC, print).start(patient=False)


def test_a_run_may_have_a_strategy_that_only_its_trainer_has_registered(tmp_path: Path, page: Served) -> None:
    own = dataclasses.replace(Config().preferences, strategy="mine")  # type: ignore[arg-type]
    with Run.create(tmp_path / "run", Config(env="toy/reach", preferences=own)) as run:
        Courier(run, address(page), SPEC, print).start(patient=False)
    assert Run.open(tmp_path / "double").config.preferences.strategy == "mine"


def test_mistakes_are_told_in_a_sentence(
    tmp_path: Path, page: Served, local: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ("http://", "http://desk:x", "ftp://desk:1", "http://desk:1/page", "http://desk:1?token=1"):
        with pytest.raises(UserError, match="the address of a page, such as"):
            check_address(wrong)
    with pytest.raises(UserError, match="has a password in it"):
        check_address("http://me:secret@desk:8642")
    assert check_address("http://desk:8642/") == "http://desk:8642"
    with pytest.raises(UserError, match=r"cannot reach http://127.0.0.1:9: .*; start the page there with"):
        Courier(local, "http://127.0.0.1:9", SPEC, print).start(patient=False)
    monkeypatch.setenv(TRAINER_VARIABLE, "wrong")
    with pytest.raises(UserError, match="that is not the token"):
        Courier(local, address(page), SPEC, print).start(patient=False)
    monkeypatch.delenv(TRAINER_VARIABLE)
    with pytest.raises(UserError, match=f"set {TRAINER_VARIABLE} to what its server printed"):
        Courier(local, address(page), SPEC, print)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(UserError, match="holds something else; --remote needs a new folder"):
        start(tmp_path / "full", port=0, remote=True)


def test_the_command_takes_an_address_for_a_teacher(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for spelled in (["--teacher", "http://127.0.0.1:9"], ["--teacher=http://127.0.0.1:9"]):
        assert main(["train", "--env", "toy/reach", *spelled, "--out", str(tmp_path / "run")]) == 2
        assert TRAINER_VARIABLE in capsys.readouterr().err
