"""The clips of a pair, as the page is told of them."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import quote

from ubp2.preference.records import Placed

__all__ = ["ClipSource", "Gallery"]

KINDS = ("mp4", "webm")
AHEAD = 8  # open questions whose clips are made before anybody asks for them


class ClipSource(Protocol):
    """What the label server needs of `ubp2.labelling.clips.Clips`."""

    def want(self, episode: int, start: int, length: int, *, soon: bool = False) -> str: ...
    def state(self, clip: str) -> Any: ...
    def path(self, clip: str, camera: str, kind: Literal["mp4", "webm"]) -> Path | None: ...
    def close(self) -> None: ...


class Gallery:
    """Asks for clips in time, and says of each where it is or why there is none."""

    def __init__(self, clips: ClipSource) -> None:
        self._clips = clips
        self._ids: dict[int, tuple[str, str]] = {}  # by question: to want a clip costs a look into the archive

    def prepare(self, questions: Collection[Placed]) -> None:
        """Have the clips of the next questions made, so that the first to be handed one need not wait."""
        for question in islice(questions, AHEAD):
            if question.id not in self._ids:
                self._want(question, soon=False)

    def failed(self, question: Placed) -> bool:
        """Whether one of the clips was tried and could not be made."""
        return any(self._clips.state(clip).failed for clip in self._ids.get(question.id, ()))

    def pair(self, question: Placed, swapped: bool) -> dict[str, Any]:
        """Both sides, as shown."""
        states = [self._clips.state(clip) for clip in self._ids.get(question.id, ())]
        if not states or not all(state.ready for state in states):
            self._want(question, soon=True)
        left, right = (self._side(clip) for clip in self._ids[question.id])
        if swapped:
            left, right = right, left
        return {"left": left, "right": right, "length": question.length}

    def _want(self, question: Placed, *, soon: bool) -> None:
        left, right = (self._clips.want(*end, question.length, soon=soon) for end in (question.left, question.right))
        self._ids[question.id] = (left, right)

    def _side(self, clip: str) -> dict[str, Any]:
        state = self._clips.state(clip)
        cameras = state.cameras if state.ready else ()
        urls = {name: {kind: f"/clips/{clip}/{quote(name, safe='')}.{kind}" for kind in KINDS} for name in cameras}
        return {
            "ready": state.ready,
            "failed": state.failed,
            "clips": urls,
            "frames": state.frames,
            "fps": state.fps,
            "speed": state.speed,
            "note": state.note,
        }
