"""A page for a trainer elsewhere, and both ends of what goes on between them."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from tests.labelling.conftest import FakeClips, question
from ubp2.labelling.serve import Served, start
from ubp2.labelling.tickets import Tickets, run_secret
from ubp2.preference.store import LabelStore
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import Run
from ubp2.types import Episode

SPEC = {"obs_dim": 4, "action_dim": 2}


def serving(tmp_path: Path, port: int = 0) -> Served:
    (tmp_path / "clips").mkdir(exist_ok=True)
    return start(tmp_path / "double", port=port, clips=FakeClips(tmp_path / "clips"), again=0.0, remote=True)


def address(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}"


def call(served: Served, path: str, content: Any, token: str | None = None) -> tuple[int, Any]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(address(served) + path, data, headers)) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


class Annotator(threading.Thread):
    """Answers at the page, from the true reward that the trainer alone has."""

    def __init__(self, served: Served, double: Path, run: Path) -> None:
        super().__init__(daemon=True)
        self.served, self.double, self.run_folder = served, double, run
        self.done = threading.Event()
        self.acknowledged = 0

    def run(self) -> None:
        while not self.done.wait(0.05):
            try:
                status, hand = call(self.served, "/api/next", {"annotator": "ann"})
                if status == 200 and hand["pair"]:
                    self.answer(hand["pair"]["id"])
            except OSError:
                pass  # the server is away for a while

    def answer(self, pair: str) -> None:
        tickets = Tickets(run_secret(self.double / "label.key"))
        ticket = tickets.read("ann", pair)
        assert ticket is not None
        with (
            LabelStore(self.double / "labels.sqlite") as store,
            EpisodeArchive(self.run_folder / "episodes.sqlite") as archive,
        ):
            asked = store.question(ticket.question)
            assert asked is not None
            query, length = asked.query, len(asked.query.left_obs)
            left = archive.rewards(query.left_episode, query.left_start, length).sum()
            right = archive.rewards(query.right_episode, query.right_start, length).sum()
        better = "equal" if left == right else "left" if (left > right) != tickets.swapped("ann", ticket) else "right"
        said = {"annotator": "ann", "pair": pair, "choice": better, "key": f"key-{pair}"[:80], "seconds": 1.0}
        self.acknowledged += call(self.served, "/api/answer", said)[0] == 200


def episode(index: int) -> Episode:
    rng = np.random.default_rng(index)
    obs, action = rng.normal(size=(6, 4)).astype(np.float32), rng.normal(size=(5, 2)).astype(np.float32)
    return Episode(index, index, obs, action, rng.normal(size=5), np.zeros(5, np.bool_), terminated=False)


def fill(run: Run, beat: float) -> None:
    with EpisodeArchive(run.episodes) as archive, LabelStore(run.labels) as store:
        for index in range(len(archive), 12):
            archive.append(episode(index))
        store.ask(100, 0, [question(i) for i in range(6)], "uniform")
        store.note({"beat": beat, "trainer": "running"})


def given(folder: Path) -> list[tuple[int, str, float, float]]:
    path = folder / "labels.sqlite"
    if not path.exists():
        return []
    with LabelStore(path) as store:
        return sorted((each.query_id, each.annotator, each.label, each.weight) for each in store.given())


def answer(page: Served, choice: str, key: str) -> str:
    _, hand = call(page, "/api/next", {"annotator": "ann"})
    pair = hand["pair"]["id"]
    status, _ = call(page, "/api/answer", {"annotator": "ann", "pair": pair, "choice": choice, "key": key})
    assert status == 200
    return pair


def asked(page: Served) -> bool:
    status, found = call(page, "/api/next", {"annotator": "ann"})
    return status == 200 and found["pair"] is not None
