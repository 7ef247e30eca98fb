"""The label server's API with nothing behind it, for tests of the page: `python -m tests.labelling.stub FOLDER PORT`.

It stores acts as lines in FOLDER/acts.jsonl, on the disk before it answers, so that it may be killed at any time.
FOLDER/mood.json tells it how to behave, read anew at each request:
    pairs: how many questions there are; taken: numbers of those that are somebody else's from now on; budget; why:
    said when there are none left; delay: seconds before an answer is stored; lose: store answers and send no reply;
    full: 503 on every act; run: which is served; astray: nothing of the API is there; failed, broken, slow: numbers
    of questions whose clip failed to render, does not play, or is not drawn for the first two times it is asked
    for; lost: no clip is there; cameras; agreement; speed and note of the clips; instruction; dashboard.
POST /forget begins anew, for the next test.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

import ubp2
from tests.labelling.pictures import CAMERAS, FPS, FRAMES

__all__ = ["Stub"]

STATIC = Path(ubp2.__file__).parent / "labelling" / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MOOD: dict[str, Any] = {
    "pairs": 40, "taken": [], "budget": 40, "why": "waiting for the trainer", "delay": 0.0, "lose": False,
    "full": False, "run": "stub", "astray": False, "failed": [], "lost": False, "broken": [], "slow": [],
    "cameras": list(CAMERAS), "agreement": True, "speed": 1.0, "note": None,
    "instruction": "Push the disc into the yellow frame, by the shortest way.", "dashboard": {},
}  # fmt: skip


class Stub:
    """Questions 0, 1, ... that one annotator each answers; the side is swapped where the number and name say so."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.acts = folder, folder / "acts.jsonl"
        self.begin()

    def begin(self) -> None:
        """Know what is in the folder and nothing else."""
        self.done = [json.loads(line) for line in self.acts.read_text().splitlines()] if self.acts.exists() else []
        self.held: dict[int, str] = {}
        self.asked: dict[int, int] = {}

    @property
    def mood(self) -> dict[str, Any]:
        path = self.folder / "mood.json"
        return MOOD | (json.loads(path.read_text()) if path.exists() else {})

    @property
    def current(self) -> list[dict[str, Any]]:
        """Answers and skips that were not taken back, oldest first."""
        found: list[dict[str, Any]] = []
        for act in self.done:
            if act["act"] == "undo":
                found = [a for a in found if a["key"] != act["of"]]
            else:
                found.append(act)
        return found

    def write(self, act: dict[str, Any]) -> dict[str, Any]:
        """Store an act once, whatever is sent how often."""
        for known in self.done:
            if known["key"] == act["key"]:
                return known
        with self.acts.open("a") as file:
            file.write(json.dumps(act) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.done.append(act)
        return act

    def hand(self, annotator: str) -> list[dict[str, Any]]:
        answered = {act["question"] for act in self.current}
        gone = answered | set(self.mood["taken"])
        mine = [n for n, who in self.held.items() if who == annotator and n not in gone]
        free = [n for n in range(self.mood["pairs"]) if n not in gone and n not in self.held]
        for number in free[: max(0, 2 - len(mine))]:
            self.held[number] = annotator
            mine.append(number)
        return [self.pair(number, annotator) for number in mine[:2]]

    def pair(self, number: int, annotator: str) -> dict[str, Any]:
        mood = self.mood
        self.asked[number] = self.asked.get(number, 0) + 1
        drawn = number not in mood["slow"] or self.asked[number] > 2
        sides = [self.side(number, part, drawn, mood) for part in (0, 1)]
        if swapped(number, annotator):
            sides.reverse()
        return {"id": f"{number}-{swapped(number, annotator):d}x", "left": sides[0], "right": sides[1], "length": 30}

    def side(self, number: int, part: int, drawn: bool, mood: dict[str, Any]) -> dict[str, Any]:
        clip = f"broken-{number}" if number in mood["broken"] and part else str((2 * number + part) % 6)
        urls = {c: {kind: f"/clips/{clip}/{c}.{kind}" for kind in ("mp4", "webm")} for c in mood["cameras"]}
        failed = "no space left on the disk" if number in mood["failed"] and part else None
        found = {"ready": drawn and not failed, "failed": failed, "clips": urls if drawn else {}}
        return {**found, "frames": FRAMES, "fps": FPS, "speed": mood["speed"], "note": mood["note"]}

    def progress(self, annotator: str | None = None) -> dict[str, Any]:
        answers = [act for act in self.current if act["act"] == "answer"]
        return {
            "answered": len(answers), "asked": min(self.mood["pairs"], self.mood["budget"]),
            "budget": self.mood["budget"], "mine": sum(act["annotator"] == annotator for act in answers),
            "phase": "exploring", "decision": 1250, "steps": 5000, "waiting": "answers",
            "trainer": "waiting for answers",
        }  # fmt: skip


def swapped(number: int, annotator: str) -> bool:
    return bool(hashlib.sha256(f"{number}/{annotator}".encode()).digest()[0] % 2)


def app(stub: Stub) -> Starlette:
    """The routes of the API."""

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def static(request: Request) -> Response:
        path = STATIC / request.path_params["name"]
        return FileResponse(path) if path in STATIC.iterdir() else Response(status_code=404)

    async def session(request: Request) -> Response:
        mood = stub.mood
        return JSONResponse({
            "env": "toy/disc", "title": "Push the disc", "run": mood["run"], "instruction": mood["instruction"],
            "show_agreement": mood["agreement"],
        })  # fmt: skip

    async def next_pair(request: Request) -> Response:
        name = (await request.json())["annotator"]
        pair, ahead = [*stub.hand(name), None, None][:2]
        why = None if pair else stub.mood["why"]
        return JSONResponse({"pair": pair, "ahead": ahead, "why": why, "progress": stub.progress(name)})

    async def answer(request: Request) -> Response:
        sent, mood = await request.json(), stub.mood
        number = int(sent["pair"].split("-")[0])
        await asyncio.sleep(mood["delay"])
        if mood["full"]:
            return JSONResponse({"error": "the disk is full"}, 503)
        if any(act["question"] == number and act["key"] != sent["key"] for act in stub.current):
            return JSONResponse({"error": "this pair is answered already"}, 409)
        stub.write({"act": "answer", "question": number, "swapped": swapped(number, sent["annotator"]), **sent})
        if mood["lose"]:
            os.kill(os.getpid(), 9)
        model = "left" if number % 2 else "right"
        agreement = {"model": model, "agrees": model == sent["choice"]} if mood["agreement"] else None
        return JSONResponse({"stored": True, "agreement": agreement, "progress": stub.progress(sent["annotator"])})

    async def broken(request: Request) -> Response:
        sent = await request.json()
        stub.write({"act": "broken", "question": int(sent["pair"].split("-")[0]), **sent})
        return JSONResponse({"stored": True, "progress": stub.progress(sent["annotator"])})

    async def leave(request: Request) -> Response:
        name = (await request.json())["annotator"]
        stub.held = {n: who for n, who in stub.held.items() if who != name}
        return JSONResponse({})

    async def undo(request: Request) -> Response:
        sent = await request.json()
        known = next((act for act in stub.done if act["key"] == sent["key"]), None)
        own = [act for act in stub.current if act["annotator"] == sent["annotator"] and act["act"] == "answer"]
        if known is None and own:
            known = stub.write({"act": "undo", "of": own[-1]["key"], "question": own[-1]["question"], **sent})
        if known:
            stub.held = {n: who for n, who in stub.held.items() if n != known["question"]}
            stub.held = {known["question"]: sent["annotator"], **stub.held}
        pair = stub.pair(known["question"], sent["annotator"]) if known else None
        return JSONResponse({"pair": pair, "progress": stub.progress(sent["annotator"])})

    async def clip(request: Request) -> Response:
        path = stub.folder / "clips" / "{id}-{camera}.{kind}".format(**request.path_params)
        if request.path_params["id"].startswith("broken"):
            return Response(b"no video at all", media_type="video/webm")
        return FileResponse(path) if path.exists() and not stub.mood["lost"] else Response(status_code=404)

    async def forget(request: Request) -> Response:
        for name in ("acts.jsonl", "mood.json"):
            (stub.folder / name).unlink(missing_ok=True)
        stub.begin()
        return JSONResponse({})

    async def progress(request: Request) -> Response:
        return JSONResponse(stub.progress())

    async def dashboard(request: Request) -> Response:
        return JSONResponse(stub.mood["dashboard"])

    async def headers(request: Request, go_on: Any) -> Response:
        mood = stub.mood
        if mood["astray"] and request.url.path.startswith("/api/"):
            return Response("<h1>404 Not Found</h1>", 404, media_type="text/html")
        if request.headers.get("ubp2-run", mood["run"]) != mood["run"]:
            return JSONResponse({"error": "another run is served here; reload the page"}, 421)
        response = await go_on(request)
        response.headers.update({"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"})
        return response

    return Starlette(
        routes=[
            Route("/", page),
            Route("/static/{name}", static),
            Route("/api/session", session),
            Route("/api/progress", progress),
            Route("/api/dashboard", dashboard),
            Route("/api/next", next_pair, methods=["POST"]),
            Route("/api/answer", answer, methods=["POST"]),
            Route("/api/broken", broken, methods=["POST"]),
            Route("/api/undo", undo, methods=["POST"]),
            Route("/api/leave", leave, methods=["POST"]),
            Route("/forget", forget, methods=["POST"]),
            Route("/clips/{id}/{camera}.{kind}", clip),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=headers)],
    )


if __name__ == "__main__":
    uvicorn.run(app(Stub(Path(sys.argv[1]))), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
