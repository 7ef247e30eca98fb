"""What a run leaves behind when it stops because of a value that is not a finite number: RUN/diverged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ubp2.storage.database import disk_errors
from ubp2.storage.runs import Run, write_json

__all__ = ["number", "write"]


def write(run: Run, decision: int, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Path:
    """Write ``diverged/<decision>.npz`` and, beside it, the facts and the range of each array as JSON; the path."""
    folder = run.folder / "diverged"
    path = folder / f"{decision:09d}.npz"
    with disk_errors(path, run.folder):
        folder.mkdir(exist_ok=True)
        np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
        ranges = {name: _range(np.asarray(array)) for name, array in arrays.items()}
        content = {"decision": decision, "seed": run.config.seed, **facts, "arrays": ranges}
        write_json(path.with_suffix(".json"), content)
    return path


def _range(array: np.ndarray) -> dict[str, Any]:
    """Shape, extremes of the finite values, and how many are not finite."""
    finite = array[np.isfinite(array)]
    extremes = {"least": float(finite.min()), "most": float(finite.max())} if finite.size else {}
    return {"shape": list(array.shape), **extremes, "not_finite": int(array.size - finite.size)}


def number(value: float) -> float | str:
    """A number for JSON, which has no NaN: that becomes a word."""
    return float(value) if math.isfinite(value) else str(float(value))
