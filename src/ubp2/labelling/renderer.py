"""The renderer process, seen from the parent: started, asked, and killed where it hangs."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from ubp2.envs.worker import obituary, shorten, start
from ubp2.envs.worker_process import read_block, write_block
from ubp2.labelling.drawing import Scale
from ubp2.labelling.render_process import Setup
from ubp2.types import Episode

__all__ = ["Keeper", "Lost", "Renderer"]

_LOG = logging.getLogger(__name__)
_TRIES = 2  # with the environment, before a clip is drawn
_LOST_CLIPS = 2  # in a row, before the environment is left alone
_REST = 600.0  # seconds after which it is tried again: the machine may only have been busy


class Lost(Exception):
    """The renderer died or gave no answer; the text says how."""


class Renderer:
    """One process that holds one environment. After `Lost` only `close` may be called."""

    def __init__(self, order: bytes, setup: Setup) -> None:
        """`order`: what `workers.write_order` gave; empty: no environment, so that every clip is a drawing."""
        self._seconds, self._features = setup.seconds, setup.features
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process, self._log = start("ubp2.labelling.render_process", [theirs.fileno()])
        self._opening = [json.dumps(setup._asdict()).encode(), order]

    @property
    def pid(self) -> int:
        return self._process.pid

    def greet(self) -> tuple[str, ...]:
        """Wait until the environment stands; return the cameras that clips will have."""
        return tuple(self._ask(self._opening)["cameras"])

    def make(
        self, episode: Episode, start: int, length: int, scale: Scale, kept: Path | None, folder: Path
    ) -> dict[str, Any]:
        """Have the clip written into `folder`; return its facts, or ``{"error": sentence}``. kept: file of frames."""
        action, obs = episode.action[: start + length], episode.obs[start : start + length + 1]
        if self._features:
            obs = episode.true_reward[: start + length, None]
        job = {
            "seed": int(episode.seed),
            "start": start,
            "length": length,
            "action": action.shape,
            "obs": obs.shape,
            "scale": scale,
            "kept": None if kept is None else str(kept.resolve()),
            "folder": str(folder.resolve()),
        }
        return self._ask([json.dumps(job).encode(), *(np.asarray(a, "<f4").tobytes() for a in (action, obs))])

    def _ask(self, blocks: list[bytes]) -> dict[str, Any]:
        self._socket.settimeout(self._seconds)
        try:
            shorten(self._log)
            for block in blocks:
                write_block(self._socket, block)
            return json.loads(read_block(self._socket))
        except TimeoutError:
            raise Lost(f"the renderer (process {self.pid}) gave no answer in {self._seconds:g} s") from None
        except (EOFError, OSError):  # OSError too: `close` may come from another thread in the middle
            raise Lost(obituary("the renderer", self._process, self._log)) from None

    def kill(self) -> None:
        """End the process and its children at once; whoever waits for an answer gets `Lost`."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self._process.wait()
        self._socket.close()
        self._log.close()


class Keeper:
    """Keeps a renderer alive: starts it for the first clip, and again after it died or was killed because it hung.

    A clip that the renderer does not survive twice is drawn by a process without the environment. `make` is for one
    thread; `stop`, from any, ends what that thread waits for.
    """

    def __init__(self, order: bytes, why: str, setup: Setup) -> None:
        """`why` there is nothing but drawings, where `order` is empty."""
        self._order, self._why, self._setup = order, why, setup
        self._lock = threading.Lock()
        self._renderer: Renderer | None = None
        self._holds: bytes | None = None  # the order of the process that runs
        self._lost = 0  # clips in a row that had to be drawn because the renderer was lost
        self._lost_at = 0.0
        self._stopped = False
        self.cameras: tuple[str, ...] = ()

    @property
    def pid(self) -> int | None:
        renderer = self._renderer
        return None if renderer is None else renderer.pid

    def make(
        self, episode: Episode, start: int, length: int, scale: Scale, kept: Path | None, folder: Path
    ) -> dict[str, Any]:
        """As `Renderer.make`, from a process that may be a new one. `Lost` only after `stop`."""
        job = (episode, start, length, scale, kept, folder)
        why = self._why
        resting = self._lost >= _LOST_CLIPS and time.monotonic() - self._lost_at < _REST
        if self._order and not resting:
            for _ in range(_TRIES):
                try:
                    facts = self._attempt(self._order, job)
                except Lost as lost:
                    why = str(lost).partition("; ")[0]
                else:
                    self._lost = 0
                    return facts
            self._lost, self._lost_at = self._lost + 1, time.monotonic()
            self._why = f"{why}, more than once"
        try:
            facts = self._attempt(b"", job)
        except Lost as lost:
            if self._stopped:
                raise
            return {"error": f"the clip could not be drawn: {str(lost).partition('; ')[0]}"}
        if "error" in facts:
            return {"error": why} if self._setup.features else facts
        return {**facts, "note": facts["note"] and why}

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._renderer is not None:
                self._renderer.kill()

    def _attempt(self, order: bytes, job: tuple[Any, ...]) -> dict[str, Any]:
        try:
            if self._renderer is None or self._holds != order:
                self._start(order)
            assert self._renderer is not None
            return self._renderer.make(*job)
        except Lost as lost:
            self._end()
            if self._stopped:
                raise
            _LOG.warning("%s", lost)
            for left in job[-1].iterdir():
                left.unlink()
            raise

    def _start(self, order: bytes) -> None:
        self._end()
        with self._lock:
            if self._stopped:
                raise Lost("the renderer was told to stop")
            try:
                self._renderer, self._holds = Renderer(order, self._setup), order
            except OSError as error:
                raise Lost(f"the renderer could not be started: {error}") from error
        cameras = self._renderer.greet()
        if order == self._order:
            self.cameras = cameras

    def _end(self) -> None:
        with self._lock:
            renderer, self._renderer = self._renderer, None
        if renderer is not None:
            renderer.close()
