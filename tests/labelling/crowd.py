"""A crowd of simulated annotators and a label server in a process of its own: for the tests of faults and of load.

Everybody does what the page does: an answer is kept and sent again with the same key until the server says that it is
stored. What was said to be stored is written down, and compared at the end with what is in the file.
"""

from __future__ import annotations

import http.client
import json
import random
import sqlite3
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ubp2.config.schema import Config, PreferenceConfig
from ubp2.envs.registry import make
from ubp2.preference.store import LabelStore
from ubp2.storage import locks
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import Run
from ubp2.types import Episode, Query

LENGTH = 10  # decisions of a segment
CHOICES = ("left", "right", "equal", "cant-tell")


class Stored(NamedTuple):
    """An answer that the server has acknowledged."""

    annotator: str
    pair: str
    key: str
    choice: str


def record(folder: Path, episodes: int = 12) -> None:
    """A run of toy/reach with episodes at random, and nothing learned."""
    config = Config(env="toy/reach", preferences=PreferenceConfig(segment_length=LENGTH, budget=1_000_000))
    env, random_ = make(config.env, config.environment), np.random.default_rng(0)
    with Run.create(folder, config) as run:
        archive = EpisodeArchive(run.episodes)
        for index in range(episodes):
            obs, actions, rewards, success = [env.reset(index)], [], [], []
            for _ in range(env.spec.episode_decisions):
                actions.append(random_.uniform(-1, 1, env.spec.action_dim).astype(np.float32))
                outcome = env.step(actions[-1])
                obs.append(outcome.obs)
                rewards.append(outcome.true_reward)
                success.append(outcome.success)
            archive.append(
                Episode(index, index, np.stack(obs), np.stack(actions), np.array(rewards), np.array(success), False)
            )
        archive.close()
        LabelStore(run.labels).close()
    env.close()


def segments(folder: Path) -> list[tuple[Episode, int]]:
    """Two of each recorded episode: few, so that their clips can all be made before anything is measured."""
    archive = EpisodeArchive(folder / "episodes.sqlite")
    episodes = list(archive.iterate())
    archive.close()
    return [(episode, start) for episode in episodes for start in (0, len(episode.action) - LENGTH)]


def questions(folder: Path, count: int, seed: int) -> list[Query]:
    """Pairs of these segments."""
    rng, known, found = np.random.default_rng(seed), segments(folder), []
    for _ in range(count):
        (a, i), (b, j) = (known[rng.integers(len(known))] for _ in range(2))
        left, right = slice(i, i + LENGTH), slice(j, j + LENGTH)
        found.append(
            Query(
                a.obs[left], a.action[left], b.obs[right], b.action[right], a.index, i, b.index, j, float(rng.random())
            )
        )
    return found


def train(folder: Path, per_session: int = 20, waiting: int = 60) -> None:
    """What a trainer does to the store, for ever: ask, tell, and read what was answered."""
    lock, session, cursor = locks.take(folder), 0, 0
    with LabelStore(folder / "labels.sqlite") as store:
        while store.session(session):
            session += 1
        while lock:
            if store.waiting() < waiting:
                ids = store.ask(100 * (session + 1), session, questions(folder, per_session, session), "uniform")
                store.note(
                    {f"judged:{id}": 0.8 for id in ids} | {"trainer": "running", "decision": 100 * (session + 1)}
                )
                session += 1
            cursor = max([cursor, *(answer.id for answer in store.answers(after=cursor))])
            time.sleep(0.25)


def different(one: Path, other: Path) -> list[str]:
    """Standing answers that one of two label files has and the other has not, by question and not by id."""
    found = []
    for folder in (one, other):
        with sqlite3.connect(folder / "labels.sqlite") as raw:
            rows = raw.execute(
                "SELECT q.session, q.position, hex(q.fingerprint), s.annotator, s.label, s.weight, s.swapped "
                "FROM standing s JOIN queries q ON q.id = s.query"
            )
            found.append(set(rows.fetchall()))
    return [f"in one of the folders only: {row}" for row in found[0] ^ found[1]]


@dataclass
class Crowd:
    """So many annotators at once, each a thread with a connection of its own."""

    port: int
    size: int
    think: float = 0.0  # mean seconds between seeing a pair and answering it
    patient: bool = False  # a server that is away, or comes back, is no error
    watch: bool = False  # load the clips, too
    repeat: float = 0.0  # share of the answers that are sent twice, as by a double click
    undo: float = 0.0  # share of the answers that are taken back
    stored: list[Stored] = field(default_factory=list)
    undone: int = 0
    errors: list[str] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    refusals: Counter[int] = field(default_factory=Counter)
    away: int = 0  # requests that found no server, or lost it

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._person, args=(f"person {i}",), daemon=True) for i in range(self.size)
        ]

    def start(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Let everybody finish the answer that is being sent."""
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()

    def _person(self, name: str) -> None:
        chance, line = random.Random(name), Line(self, name)
        try:
            self._stop.wait(chance.uniform(0, self.think))  # nobody comes at the same moment
            while not self._stop.is_set():
                hand = line.call("next", {})
                pair = hand and hand["pair"]
                if not pair:
                    self._stop.wait(0.2)
                    continue
                if self.watch:
                    line.watch(pair)
                if self.think and self._stop.wait(chance.expovariate(1 / self.think)):
                    return
                self._answer(line, name, pair["id"], chance)
        except Exception as error:
            with self._lock:
                self.errors.append(f"{name}: {type(error).__name__}: {error}")

    def _answer(self, line: Line, name: str, pair: str, chance: random.Random) -> None:
        act = Stored(name, pair, uuid.UUID(int=chance.getrandbits(128)).hex, chance.choice(CHOICES))
        body = {"pair": pair, "choice": act.choice, "key": act.key, "seconds": 1.0}
        reply = line.call("answer", body, until_stored=True)
        if reply is not None:
            with self._lock:
                self.stored.append(act)
        if chance.random() < self.repeat:
            line.call("answer", body, until_stored=True)
        if chance.random() < self.undo:
            line.call("undo", {"key": uuid.UUID(int=chance.getrandbits(128)).hex}, until_stored=True)
            with self._lock:
                self.undone += 1

    def note(self, what: str, seconds: float) -> None:
        with self._lock:
            self.seconds.setdefault(what, []).append(seconds)

    def lost(self) -> None:
        with self._lock:
            self.away += 1

    def stopping(self) -> bool:
        return self._stop.is_set()


class Line:
    """One annotator's connection, made again when it breaks."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        self._crowd, self._name = crowd, name
        self._connection: http.client.HTTPConnection | None = None

    def call(self, what: str, body: dict[str, Any], *, until_stored: bool = False) -> dict[str, Any] | None:
        """The reply; None where the server is away and need not be waited for. An answer is sent until it is stored."""
        content = json.dumps({"annotator": self._name, **body}).encode()
        while True:
            status, reply = self._request("POST", f"/api/{what}", content, what)
            if status == 200:
                return json.loads(reply)
            if status == 0 or status in (429, 503):
                if not self._crowd.patient:
                    raise AssertionError(f"{what}: {status or 'no connection'} {reply[:200]!r}")
                if not until_stored and self._crowd.stopping():
                    return None
                time.sleep(0.05)
                continue
            raise AssertionError(f"{what}: {status} {reply[:200]!r}")

    def watch(self, pair: dict[str, Any]) -> None:
        """Load one clip of each side, where they are made."""
        for side in ("left", "right"):
            for files in list(pair[side]["clips"].values())[:1]:
                status, _ = self._request("GET", files["mp4"], None, "clip")
                assert status == 200, f"clip: {status}"

    def _request(self, method: str, path: str, content: bytes | None, what: str) -> tuple[int, bytes]:
        """Status and body; 0: the server is away."""
        begun = time.perf_counter()
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._crowd.port, timeout=60)
            self._connection.request(method, path, content, {"Content-Type": "application/json"} if content else {})
            response = self._connection.getresponse()
            reply = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection = None
            self._crowd.lost()
            return 0, str(error).encode()
        self._crowd.note(what, time.perf_counter() - begun)
        if response.status != 200:
            self._crowd.refusals[response.status] += 1
        return response.status, reply


_SAID = "SELECT key FROM answers WHERE NOT withdrawn UNION ALL SELECT key FROM checks"


def lost_or_doubled(folder: Path, stored: list[Stored]) -> list[str]:
    """What is wrong with the file, given what was acknowledged: nothing, if all is well.

    Everybody has sent each answer until it was acknowledged, so the file has these answers and no others.
    """
    with sqlite3.connect(folder / "labels.sqlite") as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        kept = Counter(key for (key,) in raw.execute("SELECT key FROM answers UNION ALL SELECT key FROM checks"))
        # of answers that were said once more, to questions that became current again, the key has a number behind it
        said = {str(key).partition("~")[0] for key, *_ in raw.execute(_SAID)}
        doubled = raw.execute(
            "SELECT query, annotator, count(*) FROM standing GROUP BY query, annotator HAVING count(*) > 1"
        ).fetchall()
        labels = dict(raw.execute("SELECT key, label || ' ' || weight || ' ' || swapped FROM answers")) | dict(
            raw.execute("SELECT key, label || ' ' || weight || ' ' || swapped FROM checks")
        )
    wrong = [f"two standing answers: {row}" for row in doubled]
    acts = {_key(act): act for act in stored}
    wrong += [f"nobody gave the answer with the key {key}" for key in said - acts.keys()]
    for key, act in acts.items():
        if kept[key] != 1:
            wrong.append(f"{act} is there {kept[key]} times")
        elif not _means(labels[key], act.choice):
            wrong.append(f"{act} was stored as {labels[key]}")
    return wrong


def _key(act: Stored) -> str:
    """Under which the server keeps it."""
    name = act.pair.partition(".")[0]
    return f"{act.annotator}/{'again' if name[0] == 'a' else 'first'}/{name[1:]}/{act.key}"


def shared(folder: Path) -> int:
    """Questions that more than one person has answered; with leases and without overlap there are none."""
    with sqlite3.connect(folder / "labels.sqlite") as raw:
        counts = raw.execute("SELECT count(DISTINCT annotator) FROM standing GROUP BY query").fetchall()
    return sum(count > 1 for (count,) in counts)


def _means(row: str, choice: str) -> bool:
    label, weight, swapped = map(float, row.split())
    if choice == "cant-tell":
        return weight == 0
    if choice == "equal":
        return (label, weight) == (0.5, 1.0)
    return weight == 1 and label == float((choice == "left") != bool(swapped))
