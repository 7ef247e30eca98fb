"""A person at a browser teaches a run that trains, from `ubp2 train --teacher human` to the end.

The person has the true reward in mind: the ticket of the pair on the screen is read with the secret of the run, and the
question's two segments are judged from the archive, as the oracle judges them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.labelling.browser import Person
from ubp2.labelling.tickets import Tickets, run_secret
from ubp2.preference.store import LabelStore
from ubp2.storage.archive import EpisodeArchive

SMALL = shlex.split(
    "--env toy/reach --steps 400 --training.warmup 100 --training.warmup-updates 2 --training.batch-size 8 "
    "--model.width 16 --model.depth 1 --planner.samples 8 --planner.elites 4 --planner.policy-samples 2 "
    "--planner.iterations 1 --planner.horizon 2 --preferences.every 100 --preferences.per-session 4 "
    "--preferences.budget 12 --preferences.candidates 8 --evaluation.every 0 --evaluation.episodes 1"
)


class Training:
    """`ubp2 train` in a process of its own; `url` is where its page is."""

    def __init__(self, out: Path, *flags: str, env: Mapping[str, str] | None = None) -> None:
        self.out = out
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ubp2", "train", *flags, "--out", str(out)],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)

    @property
    def url(self) -> str:
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"compare clips at: (http://\S+)/", "".join(self.said))
            if found:
                return found[1]
            time.sleep(0.1)
        raise AssertionError("".join(self.said))

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Judge:
    """What is better in truth, of the pair on the screen."""

    def __init__(self, run: Path, name: str) -> None:
        self.name, self.tickets = name, Tickets(run_secret(run / "label.key"))
        self.store, self.archive = LabelStore(run / "labels.sqlite"), EpisodeArchive(run / "episodes.sqlite")

    def choice(self, pair: str) -> str:
        ticket = self.tickets.read(self.name, pair)
        assert ticket is not None
        question = self.store.question(ticket.question)
        assert question is not None
        query, length = question.query, len(question.query.left_obs)
        left = self.archive.rewards(query.left_episode, query.left_start, length).sum(dtype=np.float64)
        right = self.archive.rewards(query.right_episode, query.right_start, length).sum(dtype=np.float64)
        if left == right:
            return "equal"
        return "left" if (left > right) != self.tickets.swapped(self.name, ticket) else "right"


@pytest.fixture
def training(tmp_path: Path) -> Iterator[list[Training]]:
    made: list[Training] = []
    yield made
    for one in made:
        one.stop()


def teach(chromium: Any, one: Training, seconds: float) -> None:
    """Answer every pair that comes until the training ends."""
    page = Person(chromium.new_page(), one.url).come("Ann")
    judge, end = Judge(one.out, "Ann"), time.monotonic() + seconds
    while one.process.poll() is None and time.monotonic() < end:
        pair = page.page.evaluate("document.querySelector('#answers[data-open]')?.dataset.open ?? null")
        if pair is None:
            page.page.wait_for_timeout(50)
            continue
        page.answer(judge.choice(pair))
    page.page.close()
    one.process.wait(60)
    assert not page.complaints, page.complaints


def metrics(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


@pytest.mark.slow
def test_a_run_that_is_taught_through_the_page_is_that_of_the_oracle(
    chromium: Any, training: list[Training], tmp_path: Path
) -> None:
    flags = ["--teacher", "human", "--teacher.port", "0", "--teacher.no-browser"]
    training.append(Training(tmp_path / "person", *SMALL, *flags))
    teach(chromium, training[0], 240)
    assert training[0].process.returncode == 0, "".join(training[0].said)
    oracle = [sys.executable, "-m", "ubp2", "train", *SMALL, "--quiet", "--out", str(tmp_path / "oracle")]
    subprocess.run(oracle, check=True, timeout=240)
    assert metrics(tmp_path / "person") == metrics(tmp_path / "oracle")
    with LabelStore(tmp_path / "person" / "labels.sqlite") as store:
        given = store.given()
        assert len(given) == 12 and {each.annotator for each in given} == {"Ann"}
        assert {each.swapped for each in given} == {True, False} and all(each.seconds for each in given)


@pytest.mark.slow
def test_toy_reach_is_learned_from_a_person(chromium: Any, training: list[Training], tmp_path: Path) -> None:
    """The demo, 300 comparisons, every one of them through the page.

    Compiled as users have it: with the flags of tests XLA rounds otherwise, which makes another run of the same seed
    (docs/results.md).
    """
    flags = ["--preset", "demo", "--teacher", "human", "--teacher.port", "0", "--teacher.no-browser"]
    usual = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    training.append(Training(tmp_path / "person", *flags, env=usual))
    teach(chromium, training[0], 1500)
    assert training[0].process.returncode == 0, "".join(training[0].said)
    last = [row for row in metrics(tmp_path / "person") if row["kind"] == "eval"][-1]
    assert last["planner/success_any"] >= 0.9
