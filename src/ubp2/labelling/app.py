"""The label server as a web application: routes, and what they answer. Who may call them is `security.Guard`'s matter.

What touches the disk runs in a thread, so that one slow commit does not hold up the clips of everybody else. An answer
is acknowledged after its commit, never before.
"""

from __future__ import annotations

import hashlib
import logging
import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from ubp2.errors import UserError
from ubp2.labelling import wire
from ubp2.labelling.dashboard import Dashboard
from ubp2.labelling.desk import Desk
from ubp2.labelling.rates import Rates
from ubp2.labelling.security import Refused

__all__ = ["HANDLERS", "Page", "static_files"]

_LOG = logging.getLogger(__name__)
STATIC = Path(__file__).parent / "static"
_CLIP = re.compile(r"[A-Za-z0-9_-]{1,80}")
KEPT = ("/api/answer", "/api/undo", "/api/broken")  # what the page keeps until it is told that it is stored
_TYPES = {"mp4": "video/mp4", "webm": "video/webm"}


@dataclass
class Page:
    """The page of one run. `build` gives the ASGI application, without its guard."""

    desk: Desk
    session: Mapping[str, Any]
    rates: Rates = field(default_factory=lambda: Rates(per_second=20, burst=60))  # of one annotator

    def __post_init__(self) -> None:
        self._files = static_files(STATIC)
        self._dashboard = Dashboard(self.desk.folder, self.desk.store)

    def build(self) -> Starlette:
        """All routes."""
        return Starlette(
            routes=[
                Route("/", self.index),
                Route("/static/{name}", self.static),
                Route("/clips/{clip}/{name}", self.clip),
                Route("/api/session", self.about),
                Route("/api/progress", self.progress),
                Route("/api/dashboard", self.dashboard),
                Route("/api/next", self.next, methods=["POST"]),
                Route("/api/answer", self.answer, methods=["POST"]),
                Route("/api/undo", self.undo, methods=["POST"]),
                Route("/api/broken", self.broken, methods=["POST"]),
                Route("/api/leave", self.leave, methods=["POST"]),
            ],
            exception_handlers=HANDLERS,
        )

    async def index(self, request: Request) -> Response:
        """The page itself."""
        return self._file(request, "index.html")

    async def static(self, request: Request) -> Response:
        """A file of the page."""
        return self._file(request, request.path_params["name"])

    def _file(self, request: Request, name: str) -> Response:
        """By name from what was read at the start: no path is ever made of what was asked for."""
        if name not in self._files:
            raise Refused(404, "there is no such file")
        content, kind, tag = self._files[name]
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    async def clip(self, request: Request) -> Response:
        """A clip, in parts where the browser asks for parts."""
        clip, name = request.path_params["clip"], request.path_params["name"]
        camera, _, kind = name.rpartition(".")
        if _CLIP.fullmatch(clip) and kind in _TYPES:
            path = await run_in_threadpool(self._clip_path, clip, camera, kind)
            if path is not None:
                headers = {"cache-control": "private, max-age=86400, immutable"}
                return FileResponse(path, media_type=_TYPES[kind], headers=headers)
        raise Refused(404, "there is no such clip, or not yet")

    def _clip_path(self, clip: str, camera: str, kind: Any) -> Path | None:
        clips = self.desk.clips
        path = clips.path(clip, camera, kind) if camera in clips.state(clip).cameras else None
        return path if path is not None and path.is_file() else None

    async def about(self, request: Request) -> Response:
        """What does not change while the page is open."""
        return _json(self.session)

    async def progress(self, request: Request) -> Response:
        """Where labelling and training stand; ?annotator= counts one's own answers."""
        own = request.query_params.get("annotator")
        name = wire.annotator({"annotator": own}) if own else None
        return _json(await run_in_threadpool(self.desk.progress, name))

    async def dashboard(self, request: Request) -> Response:
        """Curves, the learned reward, lambda, agreement."""
        self._require_run(request)
        return _json(await run_in_threadpool(self._dashboard.data))

    async def next(self, request: Request) -> Response:
        """The pair to judge, and the one behind it."""
        _, who = await self._person(request)
        hand = await run_in_threadpool(self.desk.next, who)
        return _json({**hand._asdict(), "progress": await self._progress(who)})

    async def answer(self, request: Request) -> Response:
        """Store an answer."""
        fields, who = await self._person(request)
        said = (wire.pair(fields), wire.choice(fields), wire.key(fields), wire.seconds(fields))
        agreement = await run_in_threadpool(self.desk.answer, who, *said)
        return _json({"stored": True, "agreement": agreement, "progress": await self._progress(who)})

    async def undo(self, request: Request) -> Response:
        """Take the newest answer back."""
        fields, who = await self._person(request)
        pair = await run_in_threadpool(self.desk.undo, who, wire.key(fields))
        return _json({"pair": pair, "progress": await self._progress(who)})

    async def broken(self, request: Request) -> Response:
        """Skip a pair that cannot be seen."""
        fields, who = await self._person(request)
        key = wire.key(fields) if "key" in fields else None
        await run_in_threadpool(self.desk.broken, who, wire.pair(fields), wire.reason(fields), key)
        return _json({"stored": True, "progress": await self._progress(who)})

    async def leave(self, request: Request) -> Response:
        """Take back what a page had that was closed."""
        _, who = await self._person(request)
        await run_in_threadpool(self.desk.leave, who)
        return _json({})

    def _require_run(self, request: Request) -> None:
        """Refuse a page that was opened for another run, whose place at this port we have taken."""
        if request.headers.get("ubp2-run", self.session["run"]) != self.session["run"]:
            raise Refused(421, "another run is served here; reload the page")

    async def _person(self, request: Request) -> tuple[dict[str, Any], str]:
        self._require_run(request)
        fields = await wire.body(request)
        who = wire.annotator(fields)
        if not self.rates.allow(who):
            raise Refused(429, "too many requests under this name; wait a moment")
        return fields, who

    async def _progress(self, who: str) -> dict[str, Any]:
        return await run_in_threadpool(self.desk.progress, who)


def static_files(folder: Path) -> dict[str, tuple[bytes, str, str]]:
    """Content, type and tag of every file of the page; there are few, and they are small."""
    files = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_file() and not path.name.startswith("."):
            content = path.read_bytes()
            kind = "text/javascript" if path.suffix == ".js" else mimetypes.guess_type(path.name)[0]
            files[path.name] = (content, kind or "application/octet-stream", f'"{_tag(content)}"')
    return files


def _tag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


def _json(content: Any, status: int = 200) -> Response:
    headers = {"cache-control": "no-store"} | ({"retry-after": "2"} if status in (429, 503) else {})
    return JSONResponse(content, status, headers)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _json({"error": error.sentence}, error.status)


def _cannot_save(request: Request, error: Exception) -> Response:
    """The disk under the store: its owner is told all, the annotator what concerns her."""
    _LOG.error("%s", error)
    _, named, why = str(error).partition(";")[0].rpartition(": ")
    why = why if named else "its terminal shows why"  # else the sentence begins with the file
    if request.url.path in KEPT:
        return _json({"error": f"the server cannot save now ({why}); your answer is kept here and sent again"}, 503)
    return _json({"error": f"the server cannot use its files now ({why}); this is tried again"}, 503)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": str(error.detail)}, error.status_code)


def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody is there to read it


def _unexpected(request: Request, error: Exception) -> Response:
    return _json({"error": "the server made a mistake, which its terminal shows; try again"}, 500)


HANDLERS: Mapping[Any, Any] = {
    Refused: _refused,
    UserError: _cannot_save,
    HTTPException: _http_error,
    ClientDisconnect: _gone,
    Exception: _unexpected,
}
