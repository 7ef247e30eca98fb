"""A run without a trainer whose questions people can answer, and clips that need no renderer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.labelling.filmed import archive  # noqa: F401
from tests.labelling.page_fixtures import chromium, clips, person, server, stub  # noqa: F401
from tests.labelling.stored import made  # noqa: F401
from ubp2.config.schema import Config
from ubp2.labelling.desk import Desk, Rules
from ubp2.labelling.leases import Leases
from ubp2.labelling.tickets import Tickets
from ubp2.preference.store import LabelStore
from ubp2.storage.runs import Run
from ubp2.types import Query


class FakeClip:
    """What `ClipState` has."""

    def __init__(self, ready: bool = True, failed: str | None = None) -> None:
        self.ready, self.failed = ready, failed
        self.cameras, self.frames, self.fps, self.speed, self.note = ("front view", "top"), 4, 10.0, 1.0, None


class FakeClips:
    """Clips that are there at once; `states` says of some that they are not."""

    cameras = ("front view", "top")

    def __init__(self, folder: Path) -> None:
        self.folder, self.states = folder, {}
        self.file = folder / "clip.mp4"
        self.file.write_bytes(bytes(range(256)) * 8)
        self.wanted: list[tuple[int, int, int]] = []
        self.closed = False

    def want(self, episode: int, start: int, length: int, *, soon: bool = False) -> str:
        self.wanted.append((episode, start, length))
        return f"clip-{episode}-{start}-{length}"

    def state(self, clip: str) -> FakeClip:
        if not clip.startswith("clip-"):
            return FakeClip(False, "there is no clip with this id")
        return self.states.get(clip, FakeClip())

    def path(self, clip: str, camera: str, kind: str) -> Path | None:
        return self.file if clip.startswith("clip-") and camera in self.cameras else None

    def close(self) -> None:
        self.closed = True


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def question(number: int, length: int = 3) -> Query:
    """A pair: its left segment begins in an even episode, its right one in the next."""
    rng = np.random.default_rng(number)
    left_obs, right_obs = rng.normal(size=(2, length, 4)).astype(np.float32)
    left_action, right_action = rng.normal(size=(2, length, 2)).astype(np.float32)
    return Query(left_obs, left_action, right_obs, right_action, 2 * number, 1, 2 * number + 1, 2, 0.5)


def make_run(folder: Path, questions: int = 6, **settings: Any) -> list[int]:
    """A run folder with questions in it and nobody who trains; the ids of the questions."""
    with Run.create(folder, Config(env="toy/reach", **settings)), LabelStore(folder / "labels.sqlite") as store:
        return store.ask(100, 0, [question(i) for i in range(questions)], "uniform")


class Place:
    """A desk, and everything it stands on."""

    def __init__(self, folder: Path, rules: Rules, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        self.store = LabelStore(folder / "labels.sqlite")
        self.clips = FakeClips(folder)
        self.tickets = Tickets(b"s" * 32)
        self.desk = Desk(
            folder, self.store, self.clips, self.tickets, Leases(folder / "leases.json", 300.0, clock), rules
        )

    def shown(self, annotator: str) -> str:
        """The id of the pair that this annotator gets."""
        pair = self.desk.next(annotator).pair
        assert pair is not None
        return pair["id"]

    def question_of(self, annotator: str, pair: str) -> int:
        ticket = self.tickets.read(annotator, pair)
        assert ticket is not None
        return ticket.question


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def place(tmp_path: Path, clock: Clock) -> Iterator[Any]:
    """Make desks: place(overlap=2); a second one stands on the same folder, as after a restart."""
    desks: list[Place] = []

    def make(questions: int = 6, **rules: Any) -> Place:
        if not desks:
            make_run(tmp_path / "run", questions)
        rules = {"again": 0.0} | rules
        desks.append(Place(tmp_path / "run", Rules(**rules), clock))
        return desks[-1]

    yield make
    for each in desks:
        each.store.close()


def rows(place: Place) -> list[tuple]:
    """What is in the table of answers."""
    with sqlite3.connect(place.folder / "labels.sqlite") as raw:
        return raw.execute("SELECT query, annotator, label, weight, withdrawn FROM answers ORDER BY id").fetchall()
