"""Clips of recorded episodes, made in the background when somebody is going to look at them.

An episode is a function of its seed and its actions, so no frame is kept while a run trains: the renderer process
simulates the episode again. What cannot be shown (no OpenGL library, an environment that is not known here, one that
comes out differently) is drawn from the recorded observations, and `ClipState.note` says why. Of a visual run these are
features, of which a drawing would tell nobody anything: there such a clip fails. Where the run has kept its frames
(`visual.keep_frames`), a clip is made of them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import threading
import time
from collections import deque
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ubp2.config.schema import Config
from ubp2.envs.visual import base_id, is_visual
from ubp2.envs.workers import Factory, write_order
from ubp2.errors import UserError
from ubp2.labelling.drawing import UNSCALED
from ubp2.labelling.recorded import Recorded
from ubp2.labelling.render_process import KINDS, Setup, not_written
from ubp2.labelling.renderer import Keeper, Lost
from ubp2.labelling.shelf import Shelf
from ubp2.types import Episode
from ubp2.vision import reels

__all__ = ["ClipState", "Clips"]

_LOG = logging.getLogger(__name__)
_FORMAT = 1  # of the clips; another number makes all of them anew
_AGAIN = 20.0  # seconds after which a clip that failed may be tried again
_SCALE = "scale.json"


class ClipState(NamedTuple):
    """What is known of a clip. Cameras, rate and speed are there once it is ready."""

    ready: bool
    failed: str | None  # a sentence; the clip may be wanted again later
    cameras: tuple[str, ...] = ()  # most telling first
    frames: int = 0
    fps: float = 0.0
    speed: float = 1.0  # 1 is real time; a clip too short to judge is slowed down
    note: str | None = None  # why this is a drawing


class _Wish(NamedTuple):
    """A clip to be made."""

    clip: str
    episode: Episode
    start: int
    length: int


class Clips:
    """The clips of one run, for any number of threads; one background process renders them.

    The process is killed and started again where it dies or takes longer than `seconds` for a clip. An id is random to
    whoever does not have the run folder, and the same again after a restart, so that clips are made once.
    """

    def __init__(
        self,
        archive_path: Path,
        config: Config,
        folder: Path,
        *,
        env: Factory | None = None,
        drawn: bool = False,
        seconds: float = 60.0,
        cameras: int = 2,
        size: int = 384,
        limit: int = 2**30,
    ) -> None:
        """`env`: the user's function where the run has its own environment; `drawn`: make drawings and nothing else
        (a run with an environment that this process does not have); `limit`: bytes to keep in `folder`."""
        self._recorded = Recorded(Path(archive_path), Path(folder) / _SCALE)
        self._order, why = b"", "the environment is not known here"
        if not drawn:
            try:
                self._order = write_order(base_id(config.env) if env is None else env, config.environment)
            except UserError as error:
                why = str(error)
        self._run, self._visual = Path(archive_path).parent, is_visual(config.env)
        setup = Setup(cameras, size, seconds, config.visual.camera if self._visual else None, self._visual)
        # A pickle of the same function has other bytes each time; a run has one environment of its own.
        what = "own" if env is not None and self._order else self._order.decode()
        self._recipe = json.dumps([_FORMAT, cameras, size, what])
        self._shelf = Shelf(Path(folder), limit)
        self._keeper = Keeper(self._order, why, setup)
        self._changed = threading.Condition()  # guards all that follows, and the shelf
        self._soon: deque[_Wish] = deque()
        self._later: deque[_Wish] = deque()
        self._pending: dict[str, int] = {}  # clip -> frames
        self._failed: dict[str, tuple[str, float]] = {}  # clip -> reason, when
        self._made: set[str] = set()  # by this object
        self._stopping = self._warned = False
        self._thread: threading.Thread | None = None

    @property
    def cameras(self) -> tuple[str, ...]:
        """The cameras of the clips to come; empty until the renderer has said so."""
        return self._keeper.cameras

    @property
    def renderer_pid(self) -> int | None:
        """The process that renders now, if one does."""
        return self._keeper.pid

    def want(self, episode: int, start: int, length: int, *, soon: bool = False) -> str:
        """Return the id of the clip that shows decisions [start, start + length), and have it made if it is not there.

        It has length + 1 frames: one before each decision and one after the last. `soon`: before those that may wait.
        """
        try:
            recorded = self._recorded.read(episode, start, length)
        except UserError as error:
            clip = self._shelf.name(f"missing {episode} {start} {length}".encode())
            with self._changed:
                self._failed[clip] = (str(error), time.monotonic())
            return clip
        content = hashlib.sha256(f"{self._recipe} {recorded.seed} {start} {length} ".encode())
        content.update(np.ascontiguousarray(recorded.action[: start + length]).tobytes())
        content.update(np.ascontiguousarray(recorded.obs[start : start + length + 1]).tobytes())
        clip = self._shelf.name(content.digest())
        with self._changed:
            stored = self._shelf.look(clip)
            if stored is not None and stored.facts["note"] and self._order and clip not in self._made:
                self._shelf.drop(clip)  # drawn because an earlier process could not render; this one may
                stored = None
            if stored is None and not self._stopping:
                self._enqueue(_Wish(clip, recorded, start, length), soon)
        return clip

    def state(self, clip: str) -> ClipState:
        """How far a clip is; an id that no `want` returned has failed."""
        with self._changed:
            if (stored := self._shelf.find(clip)) is not None:
                facts = stored.facts
                return ClipState(True, None, **{**facts, "cameras": tuple(facts["cameras"])})
            if clip in self._pending:
                return ClipState(False, None, frames=self._pending[clip])
            reason, _ = self._failed.get(clip, ("there is no clip with this id", 0.0))
            return ClipState(False, reason)

    def path(self, clip: str, camera: str, kind: Literal["mp4", "webm"] | str) -> Path | None:
        """The file of a clip; None where there is none. What a stranger asks for is compared, never made a path."""
        with self._changed:
            stored = self._shelf.find(clip)
            if stored is None or camera not in stored.facts["cameras"] or kind not in KINDS:
                return None
            number, kind = stored.facts["cameras"].index(camera), KINDS[KINDS.index(kind)]
            path = stored.folder / f"{number}.{kind}"
            if path.is_file():
                return path
            self._shelf.drop(clip)  # deleted under our hands: the next `want` makes it again
            return None

    def wait(self, clip: str, seconds: float) -> ClipState:
        """Return the state of a clip once it is ready or failed, or after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: clip not in self._pending, seconds)
            return self.state(clip)

    def close(self) -> None:
        """Stop rendering; what is finished stays on the disk. May be called again."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._keeper.stop()
        if self._thread is not None:
            self._thread.join()
        with self._changed:
            self._pending.clear()
            self._changed.notify_all()
        self._recorded.close()

    def __enter__(self) -> Clips:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enqueue(self, wish: _Wish, soon: bool) -> None:
        """Queue a clip, or move one that is queued to the front; one that failed just now stays so for a while."""
        clip = wish.clip
        if clip in self._pending:
            waiting = next((one for one in self._later if one.clip == clip), None)
            if soon and waiting is not None:
                self._later.remove(waiting)
                self._soon.append(waiting)
            return
        if clip in self._failed and time.monotonic() - self._failed[clip][1] < _AGAIN:
            return
        self._failed.pop(clip, None)
        self._pending[clip] = wish.length + 1
        (self._soon if soon else self._later).append(wish)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="clips", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        """The background thread: one clip after the other."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._soon or self._later)
                if self._stopping:
                    return
                wish = (self._soon or self._later).popleft()
            try:
                failed = self._make(wish)
            except Lost:
                return  # stopping
            except Exception as error:  # nothing may end this thread: every later clip would wait for ever
                _LOG.exception("clip of episode %d", wish.episode.index)
                failed = f"the clip could not be made ({type(error).__name__}); the terminal of the server says why"
            with self._changed:
                if failed is not None:
                    self._failed[wish.clip] = (failed, time.monotonic())
                self._pending.pop(wish.clip, None)
                self._changed.notify_all()

    def _make(self, wish: _Wish) -> str | None:
        """Make a clip and put it on the shelf; return why that was not possible."""
        part: Path | None = None
        try:
            scale = UNSCALED if self._visual else self._recorded.axes(wish.episode)
            kept = reels.find(self._run, wish.episode.index)
            part = self._shelf.begin()
            facts = self._keeper.make(wish.episode, wish.start, wish.length, scale, kept, part)
            if "error" in facts:
                _LOG.warning("clip of episode %d: %s", wish.episode.index, facts.get("detail", facts["error"]))
                return facts["error"]
            with self._changed:
                self._shelf.finish(part, wish.clip, facts)
                self._made.add(wish.clip)
            if facts["note"] and not self._warned:
                self._warned = True
                _LOG.warning("note: people see drawings of the observations, not pictures: %s", facts["note"])
        except OSError as error:
            _LOG.warning("clip of episode %d: %s", wish.episode.index, error)
            return not_written(error)
        except UserError as error:
            return str(error)
        finally:
            if part is not None:
                shutil.rmtree(part, ignore_errors=True)
        return None
