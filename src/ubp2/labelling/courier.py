"""The trainer's end of a page on another machine: a thread that carries questions there and answers back.

The trainer itself knows of nothing: it asks and looks for answers in the label store of its own run folder, as it does
with a page on its own machine. The courier keeps that folder and its double at the page (`labelling.reception`) the
same. While the network is down nothing is lost on either side, and the run goes on as `teacher.wait` says.
"""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import logging
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from ubp2.config.files import to_dict
from ubp2.errors import UserError
from ubp2.labelling import parcels
from ubp2.labelling.options import TRAINER_VARIABLE
from ubp2.labelling.tickets import run_secret
from ubp2.preference.exchange import Event, Exchange
from ubp2.preference.store import LabelStore
from ubp2.storage.archive import EpisodeArchive, digest
from ubp2.storage.runs import Run

__all__ = ["Courier", "check_address"]

PAUSE = 0.5  # seconds between two rounds
LONGEST_PAUSE = 20.0  # after errors
SECONDS = 60.0  # for one request
LAST_SECONDS = 10.0  # that the end of a run waits for the last of them
METRICS_BYTES = 2**20  # in one request
BEAT = 2.0  # seconds between two signs of life
_LOG = logging.getLogger(__name__)
ABOUT = ("judged", "reward")  # notes about one question each


class Unreachable(Exception):
    """Nobody answered, or somebody said to come again later."""


def check_address(url: str) -> str:
    """The address of a page without its last slash; a sentence for what is none, and where its token is missing."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        sound = False
        parts = urlsplit("")
    if not sound or parts.path.strip("/") or parts.query or parts.fragment:
        raise UserError(
            f"--teacher takes the name of a teacher or the address of a page, such as http://desk:8642, got '{url}'; "
            f"the token goes into {TRAINER_VARIABLE}"
        )
    if parts.username is not None or parts.password is not None:
        raise UserError(f"--teacher {parts.scheme}://... has a password in it; put the token into {TRAINER_VARIABLE}")
    if not os.environ.get(TRAINER_VARIABLE):
        raise UserError(f"{url} wants to know who trains: set {TRAINER_VARIABLE} to what its server printed")
    return url.rstrip("/")


class Courier:
    """Carries between the folder of a run and the page at `url`; `start` and `stop`."""

    def __init__(self, run: Run, url: str, environment: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self._run, self._url, self._say = run, check_address(url), say
        self._environment = dict(environment)
        self._token = os.environ[TRAINER_VARIABLE]
        self._open = _opener(self._url)
        self._stop = threading.Event()
        self._began = time.time()
        self._page: str | None = None  # its name, once it has said hello
        self._episodes: list[str] = []  # what the page has
        self._compared = False  # with what is here
        self._questions: dict[int, tuple[str, ...]] = {}
        self._own: dict[int, tuple[str, ...]] = {}  # questions here
        self._told: set[str] = set()  # notes about questions that the page has
        self._metrics = 0  # bytes
        self._given = self._taken = 0  # ids of the last answers carried there and here
        self._beaten = float("-inf")
        self._thread = threading.Thread(target=self._work, name="label-courier", daemon=True)

    def start(self, *, patient: bool) -> None:
        """Begin; unless `patient`, a page that cannot be reached is a mistake to be told at once."""
        try:
            self._greet()
        except Unreachable as error:
            if not patient:
                raise UserError(
                    f"cannot reach {self._url}: {error}; start the page there with: ubp2 label FOLDER --remote"
                ) from None
            self._say(f"the page at {self._url} cannot be reached ({error}); this is tried again")
        self._thread.start()

    def stop(self) -> None:
        """Carry what there is, once, and end."""
        self._stop.set()
        self._thread.join(LAST_SECONDS)

    def _work(self) -> None:
        run, pause, silent = self._run, PAUSE, False
        with LabelStore(run.labels) as store, EpisodeArchive(run.episodes) as archive, Exchange(run.labels) as exchange:
            while True:
                last = self._stop.is_set()
                try:
                    if self._page is None:
                        self._greet()
                    self._round(store, archive, exchange)
                    if silent:
                        self._say(f"the page at {self._url} is back")
                    pause, silent = PAUSE, False
                except Exception as error:  # nothing may end this thread: the run would wait for people for ever
                    if not silent and not isinstance(error, (Unreachable, UserError)):
                        _LOG.exception("the page at %s", self._url)
                    self._page = None
                    if not silent:
                        self._say(f"the page at {self._url} cannot be used now ({error}); this is tried again")
                    pause, silent = min(2 * pause, LONGEST_PAUSE), True
                if last:
                    return
                self._stop.wait(pause)

    def _greet(self) -> None:
        """Learn what the page has of this run."""
        secret = run_secret(self._run.folder / "label.key", self._run.folder)
        reply = self._post(
            "hello",
            {
                "run": hashlib.sha256(b"trainer" + secret).hexdigest()[:24],
                "config": yaml.safe_dump(to_dict(self._run.config)),  # JSON has no infinity, and a teacher may
                "environment": self._environment,
                "custom": bool(self._run.info().get("custom_environment")),
            },
        )
        self._page = str(reply["page"])
        self._episodes = list(reply["episodes"])
        self._questions = {int(session): tuple(prints) for session, prints in reply["questions"].items()}
        self._told, self._metrics, self._given, self._taken, self._compared = set(), 0, 0, 0, False

    def _round(self, store: LabelStore, archive: EpisodeArchive, exchange: Exchange) -> None:
        """Everything that is new, there and back."""
        self._answers(exchange)
        notes = store.notes(plain=True)
        if notes.get("beat", 0.0) < self._began and not self._stop.is_set():
            return  # a run that resumes may still take back what it did after its checkpoint
        self._send_episodes(archive)
        self._send_questions(store, exchange)
        self._send_notes(store, notes)
        self._send_metrics()

    def _answers(self, exchange: Exchange) -> None:
        source = f"{self._page}/"
        while True:
            given = exchange.events(self._given, 1000, without=source)
            reply = self._post("answers", {"given": given, "after": self._taken})
            answers = [Event.of(each) for each in reply["answers"]]
            exchange.take_in(answers, source)
            self._given = given[-1].id if given else self._given
            self._taken = answers[-1].id if answers else self._taken
            if not given and not answers:
                return

    def _send_episodes(self, archive: EpisodeArchive) -> None:
        """Those the page lacks, or has otherwise."""
        self._compare(archive)
        for index in range(len(self._episodes), len(archive)):
            episode = archive.read(index)
            self._post("episode", parcels.episode(episode))
            self._episodes.append(digest(parcels.blank(episode)).hex())

    def _compare(self, archive: EpisodeArchive) -> None:
        """Once after each greeting: keep of what the page has those that are still the same here."""
        if self._compared:
            return
        same = itertools.takewhile(
            lambda pair: digest(parcels.blank(archive.read(pair[0]))).hex() == pair[1],
            enumerate(self._episodes[: len(archive)]),
        )
        self._episodes = [own for _, own in same]
        self._compared = True

    def _send_questions(self, store: LabelStore, exchange: Exchange) -> None:
        own = exchange.questions()
        if own != self._own:
            self._own, self._taken = own, 0  # a question may be new here and answered there: a backup was put in place
        for session, prints in own.items():
            if self._questions.get(session) == prints:
                continue
            asked = store.session(session)
            if asked:
                first = asked[0]
                queries = [each.query for each in asked]
                self._post("questions", parcels.questions(first.decision, session, first.strategy, queries))
                # What came after a question that is new there was given up with it, and is sent again where it stands.
                earlier = {number: known for number, known in self._questions.items() if number < session}
                self._questions = {**earlier, session: prints}
                self._given = 0  # answers that were given before their question was known there
                self._beaten = float("-inf")  # what is known of them goes with them

    def _send_notes(self, store: LabelStore, notes: Mapping[str, Any]) -> None:
        """Every `BEAT` seconds: a sign of life, and what the reward model thinks of the questions."""
        now = time.monotonic()
        if now - self._beaten < BEAT and not self._stop.is_set():
            return
        fresh, about = {}, []
        for what in ABOUT:
            fresh |= {name: value for name, value in store.notes(f"{what}:").items() if name not in self._told}
        for name, value in fresh.items():
            what, _, id = name.partition(":")
            question = store.placed(int(id))
            if question is not None:
                about.append([question.session, question.position, what, value])
        self._post("notes", {"notes": notes, "about": about})
        self._told.update(fresh)
        self._beaten = now

    def _send_metrics(self) -> None:
        """The lines since the last time; all of them where the page has others."""
        path = self._run.folder / "metrics.jsonl"
        while True:
            try:
                with path.open("rb") as stream:
                    stream.seek(self._metrics)
                    text = stream.read(METRICS_BYTES)
            except FileNotFoundError:
                return
            text = text[: text.rfind(b"\n") + 1]
            if not text:
                return
            size = int(self._post("metrics", {"from": self._metrics, "text": text.decode()})["size"])
            self._metrics = size if size == self._metrics + len(text) else 0
            if not self._metrics:
                return  # from the beginning, in the next round

    def _post(self, what: str, content: Any) -> dict[str, Any]:
        raw = isinstance(content, bytes)
        request = urllib.request.Request(
            f"{self._url}/api/trainer/{what}",
            data=content if raw else json.dumps(content).encode(),
            headers={
                "authorization": f"Bearer {self._token}",
                "content-type": "application/octet-stream" if raw else "application/json",
            },
        )
        try:
            with self._open(request, timeout=SECONDS) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            sentence = _sentence(error)
            if error.code in (429, 500, 502, 503, 504):
                raise Unreachable(sentence) from None
            raise UserError(f"{self._url} refused: {sentence}") from None
        except urllib.error.URLError as error:
            raise Unreachable(str(error.reason)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(str(error) or type(error).__name__) from None


def _opener(url: str) -> Callable[..., Any]:
    """What opens the page: past any proxy where it is on this machine, as a tunnel's end is; no proxy leads there."""
    from ubp2.labelling.security import is_loopback  # with parts of a web server: only where there is a page elsewhere

    local = is_loopback(urlsplit(url).hostname or "")
    return urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if local else [])).open


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
