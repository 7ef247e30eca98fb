"""The clips of a pair, as the page is told of them."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import quote

from ubp2.labelling.view import Question

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
        self._asked: set[int] = set()

    def prepare(self, questions: Collection[Question]) -> None:
        """Have the clips of the next questions made, so that the first to be handed one need not wait."""
        for question in islice(questions, AHEAD):
            if question.id not in self._asked:
                self._asked.add(question.id)
                for episode, start in (question.left, question.right):
                    self._clips.want(episode, start, question.length)

    def failed(self, question: Question) -> bool:
        """Whether one of the clips was tried and could not be made."""
        if question.id not in self._asked:
            return False
        ends = (question.left, question.right)
        return any(self._clips.state(self._clips.want(*end, question.length)).failed for end in ends)

    def pair(self, question: Question, swapped: bool) -> dict[str, Any]:
        """Both sides, as shown."""
        self._asked.add(question.id)
        left, right = (self._side(*end, question.length) for end in (question.left, question.right))
        if swapped:
            left, right = right, left
        return {"left": left, "right": right, "length": question.length}

    def _side(self, episode: int, start: int, length: int) -> dict[str, Any]:
        clip = self._clips.want(episode, start, length, soon=True)
        state = self._clips.state(clip)
        cameras = state.cameras if state.ready else ()
        urls = {name: {kind: f"/clips/{clip}/{quote(name, safe='')}.{kind}" for kind in KINDS} for name in cameras}
        return {
            "ready": state.ready,
            "failed": state.failed,
            "clips": urls,
            "frames": state.frames,
            "fps": state.fps,
        }
