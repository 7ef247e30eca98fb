"""What clips need of the recorded episodes: the episodes themselves, and axes on which all of them can be drawn."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ubp2.errors import UserError
from ubp2.labelling.drawing import Scale, measure
from ubp2.storage.archive import EpisodeArchive
from ubp2.types import Episode

__all__ = ["Recorded"]

_LOG = logging.getLogger(__name__)
_MEASURED, _ENOUGH = 16, 8  # episodes that give a drawing its axes, and the fewest that fix them for good


class Recorded:
    """The episode archive at `path`, opened when it is first read: a run has none before its first episode is over."""

    def __init__(self, path: Path, scale_path: Path) -> None:
        self._path, self._scale_path = path, scale_path
        self._scale: Scale | None = None
        self._open: EpisodeArchive | None = None
        self._lock = threading.Lock()

    def read(self, index: int, start: int, length: int) -> Episode:
        """Return an episode that has the decisions [start, start + length)."""
        archive = self._opened()
        with _unnamed():
            count, episode = len(archive), None
            if 0 <= index < count:
                with contextlib.suppress(IndexError):  # a trainer that was resumed took it back in between
                    episode = archive.read(index)
        if episode is None:
            raise UserError(f"there is no such clip: episode {index} is not among the {count} that are recorded")
        if not (start >= 0 and length >= 1 and start + length <= len(episode.action)):
            raise UserError(
                f"there is no such clip: episode {index} has {len(episode.action)} decisions, "
                f"asked for [{start}, {start + length})"
            )
        return episode

    def axes(self, episode: Episode) -> Scale:
        """The axes of drawings, the same for all clips of a run from the first few episodes on."""
        if self._scale is None and self._scale_path.is_file():
            with contextlib.suppress(OSError, ValueError, TypeError):  # damaged: made again
                self._scale = Scale(*json.loads(self._scale_path.read_text(encoding="utf-8")))
        if self._scale is not None and self._scale.obs_dim == episode.obs.shape[1]:
            return self._scale
        archive = self._opened()
        numbers = np.unique(np.linspace(0, len(archive) - 1, _MEASURED).astype(int))
        with _unnamed():
            scale = measure([archive.read(int(number)).obs for number in numbers])
        if len(numbers) >= _ENOUGH:
            self._scale = scale
            self._scale_path.write_text(json.dumps(scale), encoding="utf-8")
        return scale

    def close(self) -> None:
        with self._lock:
            if self._open is not None:
                self._open.close()

    def _opened(self) -> EpisodeArchive:
        with self._lock:
            if self._open is None:
                if not self._path.is_file():  # opening it would make an empty one
                    raise UserError("there is no such clip: the record of the episodes does not exist (yet)")
                with _unnamed():
                    self._open = EpisodeArchive(self._path)
            return self._open


@contextlib.contextmanager
def _unnamed() -> Iterator[None]:
    """Errors of the archive name its file: whoever runs the server is told which, annotators are not."""
    try:
        yield
    except UserError as error:
        _LOG.error("%s", error)
        raise UserError("the recorded episodes cannot be read; the terminal of the server says why") from error
