"""A page for a trainer on another machine: what it sends becomes a run folder here, served like that of any run.

The trainer keeps its own run folder; this one is a double with the episodes (without the true reward), the questions,
the metrics, and the answers of people, which the trainer fetches. Every request may be sent again: it changes nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ubp2.config.files import from_dict
from ubp2.errors import UserError
from ubp2.labelling import parcels, wire
from ubp2.labelling.app import HANDLERS
from ubp2.labelling.desk import Desk
from ubp2.labelling.security import TRAINER, Refused
from ubp2.preference.exchange import Event, Exchange
from ubp2.preference.store import LabelStore
from ubp2.storage.archive import EpisodeArchive, digest
from ubp2.storage.runs import Run

__all__ = ["Opened", "Reception"]

SILENCE = 15.0  # seconds without a word from the trainer, after which it counts as gone
MOST = 1000  # answers in one reply
RUN = "remote"  # name of the note that says whose double this folder is
# How the keys of answers begin that a scripted teacher gave at the trainer: no name of a person begins with a space.
FROM_TRAINER = " trainer/"

Opened = tuple[Desk, Any, Callable[[], None]]
"""A desk, its ASGI application, and what closes both."""

_NOBODY = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<meta http-equiv="refresh" content="3"><title>Labelling</title><p>No trainer has connected yet. '
    "This page goes on by itself when one does.</p></html>"
)


class Reception:
    """An ASGI application: the routes of the trainer, and the page of its run once it has said which that is."""

    def __init__(self, folder: Path, page: str, open_page: Callable[[Callable[[], bool]], Opened]) -> None:
        self.folder, self._page, self._open_page = folder, page, open_page
        self.desk: Desk | None = None
        self._app: Any = None
        self._heard = float("-inf")
        self._lock = threading.RLock()  # one request of the trainer at a time
        self._stack = contextlib.ExitStack()
        names = ("hello", "episode", "questions", "notes", "metrics", "answers")
        routes = [Route(f"{TRAINER}{name}", self._route(getattr(self, f"_{name}")), methods=["POST"]) for name in names]
        self._routes = Starlette(routes=routes, exception_handlers=HANDLERS)
        if (folder / "config.yaml").exists():
            self._open()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Whoever comes."""
        if scope["path"].startswith(TRAINER):
            await self._routes(scope, receive, send)
        elif self._app is not None:
            await self._app(scope, receive, send)
        elif scope["path"] == "/":
            await HTMLResponse(_NOBODY, headers={"cache-control": "no-store"})(scope, receive, send)
        else:
            raise Refused(503, "no trainer has connected yet; this is tried again")

    @property
    def alive(self) -> bool:
        """Whether the trainer was heard of late."""
        return time.monotonic() - self._heard < SILENCE

    def progress(self) -> dict[str, Any]:
        """Where labelling stands."""
        return {"answered": 0, "asked": 0} if self.desk is None else self.desk.progress()

    def close(self) -> None:
        """Close the page and all files."""
        with self._lock:
            self._stack.close()

    def _route(self, work: Callable[[bytes], dict[str, Any]]) -> Callable[[Request], Any]:
        def locked(body: bytes) -> dict[str, Any]:
            with self._lock:
                if work != self._hello and self._app is None:
                    raise Refused(409, "this page does not know the run yet; say hello first")
                return work(body)

        async def handle(request: Request) -> Response:
            body = await request.body()
            try:
                reply = await run_in_threadpool(locked, body)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
                raise Refused(400, f"the request cannot be read: {type(error).__name__}: {error}") from None
            self._heard = time.monotonic()
            return JSONResponse(reply, headers={"cache-control": "no-store"})

        return handle

    def _open(self) -> None:
        """Serve the run in the folder."""
        run = Run.open(self.folder)
        self._store = self._stack.enter_context(LabelStore(run.labels))
        self._archive = self._stack.enter_context(EpisodeArchive(run.episodes))
        self._exchange = self._stack.enter_context(Exchange(run.labels))
        self.desk, app, close = self._open_page(lambda: self.alive)
        self._stack.callback(close)
        self._app = app

    def _hello(self, body: bytes) -> dict[str, Any]:
        """Whose page this is, and what it has of that run."""
        fields = wire.parsed(body)
        run, custom = str(fields["run"]), ("environment",) if fields["custom"] else ()
        if self._app is None:
            try:
                config = from_dict(yaml.safe_load(str(fields["config"])), own_names=True)
            except (UserError, yaml.YAMLError) as error:
                raise Refused(400, f"the trainer is of another version: {error}") from None
            Run.create(self.folder, config, custom=custom).close()
            with LabelStore(self.folder / "labels.sqlite") as store:
                store.note({RUN: run, "environment": fields["environment"]})
            self._open()
        known = self._store.notes(RUN).get(RUN)
        if known is None and not self._exchange.questions() and not len(self._archive):
            self._store.note({RUN: run, "environment": fields["environment"]})  # a kill came while it was made
            known = run
        if known != run:
            what = "another run" if known else "a run of its own machine"
            raise Refused(409, f"this page belongs to {what}; start one for this run with another folder")
        return {
            "page": self._page,
            "episodes": [own.hex() for own in self._archive.digests()],
            "questions": {str(session): prints for session, prints in self._exchange.questions().items()},
        }

    def _episode(self, body: bytes) -> dict[str, Any]:
        """One more episode, or another in the place of one that the trainer has made again."""
        episode = parcels.read_episode(body)
        have = self._archive.digests()
        if episode.index < len(have):
            if have[episode.index] == digest(episode):
                return {}
            self._archive.truncate(episode.index)
        self._archive.append(episode)
        return {}

    def _questions(self, body: bytes) -> dict[str, Any]:
        decision, session, strategy, queries = parcels.read_questions(body)
        self._store.ask(decision, session, queries, strategy)
        return {}

    def _notes(self, body: bytes) -> dict[str, Any]:
        """Notes of the trainer, and those about questions, named by session and position."""
        fields = wire.parsed(body)
        notes = {str(name): value for name, value in fields["notes"].items()}
        ids: dict[int, list[int]] = {}
        for session, position, name, value in fields["about"]:
            if session not in ids:
                ids[session] = [asked.id for asked in self._store.session(session)]
            if position < len(ids[session]):
                notes[f"{name}:{ids[session][position]}"] = value
        self._store.note(notes)
        return {}

    def _metrics(self, body: bytes) -> dict[str, Any]:
        """Lines of the metrics from a byte on; the size that the file has here says whether they fitted."""
        fields = wire.parsed(body)
        path, begin = self.folder / "metrics.jsonl", int(fields["from"])
        size = path.stat().st_size if path.exists() else 0
        if begin in (0, size):
            with path.open("wb" if begin == 0 else "ab") as stream:
                stream.write(str(fields["text"]).encode())
        return {"size": path.stat().st_size if path.exists() else 0}

    def _answers(self, body: bytes) -> dict[str, Any]:
        """Take what a scripted teacher said at the trainer, and give what people said here."""
        fields = wire.parsed(body)
        self._exchange.take_in([Event.of(each) for each in fields["given"]], FROM_TRAINER)
        return {"answers": self._exchange.events(int(fields["after"]), MOST, without=FROM_TRAINER)}
