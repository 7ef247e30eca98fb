"""The frames of an episode as a file, ``RUN/frames/000012.npz``, for people who are asked about it.

An episode of a simulator is simulated again when somebody is going to look at it. Where that is not possible, as with
a camera, a run with `visual.keep_frames` writes down what it saw. Nothing here may import jax: renderers read it.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np

from ubp2.errors import UserError
from ubp2.storage.database import disk_errors

__all__ = ["FOLDER", "find", "read", "write"]

FOLDER = "frames"


def write(run: Path, number: int, frames: np.ndarray, fps: float) -> None:
    """Keep the frames [T+1, P, P, 3] of an episode of a run; the file is whole or absent."""
    path = _path(run, number)
    with disk_errors(path, run):
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".tmp")
        with partial.open("wb") as stream:
            np.savez_compressed(stream, frames=frames, fps=np.float64(fps))
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)


def find(run: Path, number: int) -> Path | None:
    """The file of an episode, if the run has kept it."""
    path = _path(run, number)
    return path if path.is_file() else None


def read(path: Path, start: int, length: int) -> tuple[np.ndarray, float]:
    """The frames before each of the decisions [start, start + length) and after the last, and their rate."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            return kept["frames"][start : start + length + 1], float(kept["fps"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"the kept frames {path.name} cannot be read: {error}") from error


def _path(run: Path, number: int) -> Path:
    return run / FOLDER / f"{number:06d}.npz"
