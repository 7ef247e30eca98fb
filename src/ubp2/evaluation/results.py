"""What an evaluation of runs works on: one series of scores for each seed of each method on each task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Series"]


@dataclass(frozen=True, eq=False)
class Series:
    """The evaluations of one seed of one method on one task."""

    task: str  # environment id
    method: str
    seed: int
    decision: np.ndarray  # [T] increasing
    score: np.ndarray  # [T] what `metric` says
    labels: np.ndarray  # [T] labels used up to then
    metric: str = "success"  # success in [0, 1], or return
    steps: int = 0  # decisions that the run was to have
    protocol: Mapping[str, Any] = field(default_factory=dict)  # settings that runs in one figure must share
    folder: Path | None = None  # None: imported
