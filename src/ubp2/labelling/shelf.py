"""The folder of finished clips: one folder a clip, which appears whole or not at all, under a name nobody can guess."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from ubp2.labelling.tickets import run_secret
from ubp2.storage.database import disk_errors

__all__ = ["Shelf", "Stored"]

_SECRET, _FACTS, _PART = "clips.key", "clip.json", ".part-"
_KEYS = {"cameras", "frames", "fps", "speed", "note"}
_IN_USE = 600.0  # seconds in which a clip that was asked for is not thrown away
_ABANDONED = 3600.0  # seconds after which a folder that nobody finished is a dead process's


class Stored(NamedTuple):
    """A finished clip."""

    folder: Path
    facts: dict[str, Any]  # cameras, frames, fps, speed, note
    size: int  # bytes


class Shelf:
    """Clips in `folder`, at most about `limit` bytes of them: those not asked for longest make room.

    Not safe for threads by itself. Several processes may share the folder; each has an index of its own.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self._limit = folder, limit
        with disk_errors(folder, None):
            folder.mkdir(parents=True, exist_ok=True)
            self._secret = run_secret(folder / _SECRET)
            found = sorted(folder.iterdir(), key=_changed)
        self._used: dict[str, float] = {}  # when a clip was last asked for, least recent first
        self._stored: dict[str, Stored] = {}
        for path in found:
            if path.name.startswith(_PART) and time.time() - _changed(path) > _ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
            elif path.is_dir() and not path.name.startswith("."):
                self._take_in(path.name)

    def name(self, content: bytes) -> str:
        """The name of a clip with this content: the same again after a restart, and nothing without the secret."""
        return hmac.new(self._secret, content, hashlib.sha256).hexdigest()[:32]

    def find(self, clip: str) -> Stored | None:
        """Return a clip that is here. `clip` may be anything that a stranger sends: it is only compared."""
        stored = self._stored.get(clip)
        if stored is not None:
            self._used.pop(clip, None)
            self._used[clip] = time.monotonic()
        return stored

    def look(self, clip: str) -> Stored | None:
        """`find`, and look on the disk too, where another process may have put it. Only for names made by `name`."""
        if clip not in self._stored:
            self._take_in(clip)
        return self.find(clip)

    def begin(self) -> Path:
        """A new folder to make a clip in."""
        self.folder.mkdir(parents=True, exist_ok=True)  # somebody may have emptied the run folder of its clips
        return Path(tempfile.mkdtemp(prefix=_PART, dir=self.folder))

    def finish(self, part: Path, clip: str, facts: dict[str, Any]) -> None:
        """Put what was made in `part` on the shelf as `clip`."""
        (part / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
        try:
            part.replace(self.folder / clip)
        except OSError:  # another process was faster, or somebody has deleted half of an earlier one
            self._take_in(clip)
            if clip not in self._stored:
                shutil.rmtree(self.folder / clip, ignore_errors=True)
                part.replace(self.folder / clip)
            shutil.rmtree(part, ignore_errors=True)
        self._take_in(clip)
        self.find(clip)
        self._make_room()

    def drop(self, clip: str) -> None:
        """Forget a clip whose files are gone or damaged."""
        self._used.pop(clip, None)
        stored = self._stored.pop(clip, None)
        if stored is not None:
            shutil.rmtree(stored.folder, ignore_errors=True)

    def _take_in(self, clip: str) -> None:
        folder = self.folder / clip
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # half-deleted or damaged: made again
            facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
            sizes = [path.stat().st_size for path in folder.iterdir()]
            if facts.keys() == _KEYS and len(sizes) > 1 and all(sizes):
                self._stored[clip] = Stored(folder, facts, sum(sizes))
                self._used[clip] = -_IN_USE

    def _make_room(self) -> None:
        total = sum(stored.size for stored in self._stored.values())
        for clip, used in list(self._used.items()):
            if total <= self._limit or time.monotonic() - used < _IN_USE:
                return
            total -= self._stored[clip].size
            self.drop(clip)


def _changed(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0
