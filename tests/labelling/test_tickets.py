"""Tickets and leases: whose pair it is, and for how long."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import Mock

import pytest

from tests.labelling.conftest import Clock, rows
from ubp2.labelling.leases import Leases
from ubp2.labelling.security import Refused
from ubp2.labelling.tickets import Ticket, Tickets, run_secret


def test_a_lease_ends_and_the_late_answer_is_kept(place: Any, clock: Clock):
    here = place(questions=1)
    pair = here.shown("ann")
    assert here.desk.next("bob").pair is None
    clock.now += 301
    here.desk.answer("bob", here.shown("bob"), "left", "key-00001", None)
    assert here.desk.next("ann").pair is None
    here.desk.answer("ann", pair, "right", "key-00002", None)  # a person's work is never thrown away
    assert {given.annotator for given in here.store.given()} == {"ann", "bob"}


def test_leases_outlive_the_server(place: Any):
    here = place(questions=6)
    taken = here.question_of("ann", here.shown("ann"))
    again = place()
    assert again.question_of("bob", again.shown("bob")) != taken
    assert again.question_of("ann", again.shown("ann")) == taken
    (here.folder / "leases.json").write_text("{ damaged")
    assert place().desk.next("cleo").pair is not None


def test_leases_on_a_full_disk_do_not_stop_anybody(tmp_path: Any, caplog: pytest.LogCaptureFixture):
    leases = Leases(tmp_path / "away" / "leases.json")
    leases.hold("ann", [Ticket(1)])
    assert leases.of("ann") == (Ticket(1),) and "not kept across a restart" in caplog.text


def test_tickets_of_others_and_made_up_ones_are_refused(place: Any):
    here = place()
    pair = here.shown("ann")
    name, _, signature = pair.partition(".")
    for who, text in [
        ("bob", pair),
        ("ann", f"q99.{signature}"),
        ("ann", name),
        ("ann", ""),
        ("ann", "q.x"),
        ("ann", "é"),
    ]:
        with pytest.raises(Refused) as refused:
            here.desk.answer(who, text, "left", "key-00001", None)
        assert refused.value.status == 409
    missing = here.tickets.write("ann", Ticket(12345))
    with pytest.raises(Refused, match="does not know the pair"):
        here.desk.answer("ann", missing, "left", "key-00001", None)
    assert rows(here) == []


def test_the_secret_of_a_run_stays_and_is_private(tmp_path: Any):
    secret = run_secret(tmp_path / "label.key")
    assert secret == run_secret(tmp_path / "label.key") and len(secret) == 32
    assert (tmp_path / "label.key").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["label.key"]
    (tmp_path / "label.key").write_text("ab")  # cut off
    assert len(run_secret(tmp_path / "label.key")) == 32


def test_a_secret_on_a_drive_without_hard_links(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(1, "Operation not permitted")))  # as exFAT says
    secret = run_secret(tmp_path / "label.key")
    assert secret == run_secret(tmp_path / "label.key") and len(secret) == 32
    assert [path.name for path in tmp_path.iterdir()] == ["label.key"]


def test_tickets_differ_by_secret():
    assert Tickets(b"a").write("ann", Ticket(1)) != Tickets(b"b").write("ann", Ticket(1))
