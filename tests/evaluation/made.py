"""Runs and series that were never trained, for tests of what is made of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ubp2.config.files import from_dict, to_dict
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.evaluation.results import Results, Series
from ubp2.storage.runs import Metrics, Run


def run(
    folder: Path,
    *,
    env: str = "metaworld/door-close",
    seed: int = 0,
    success: Sequence[float] = (0.0, 0.5, 1.0, 1.0),
    planner: Sequence[float] | None = None,
    steps: int = 4000,
    budget: int = 40,
    **settings: Any,
) -> Path:
    """A run folder with an evaluation every 1000 decisions and 20 labels before each."""
    config = dataclasses.replace(preset("cpu", env), seed=seed, steps=steps)
    nested: dict[str, Any] = {"preferences": {"budget": budget}}
    for name, value in settings.items():
        section, _, field = name.rpartition("__")
        (nested.setdefault(section, {}) if section else nested)[field] = value
    config = resolve(from_dict(nested, config), 100)
    Run.create(folder, config, "a made-up device").close()
    with Metrics(folder, tensorboard=False) as metrics:
        for i, value in enumerate(success):
            used = min(20 * (i + 1), budget)
            metrics.write("labels", 1000 * (i + 1), {"labels/used": used})
            metrics.write("train", 1000 * (i + 1), {"bonus/reward": 1.0 / (i + 1), "lambda/reward": 1.0})
            row = {"policy/success_any": value, "policy/return": 100 * value}
            if planner is not None:
                row["planner/success_any"] = planner[i]
            metrics.write("eval", 1000 * (i + 1), row)
    assert to_dict(config)["env"] == env
    return folder


def series(
    method: str = "ubp2",
    seed: int = 0,
    score: Sequence[float] = (0.0, 0.5, 1.0),
    task: str = "metaworld/door-close",
    decision: Sequence[int] | None = None,
    **other: Any,
) -> Series:
    """A series with an evaluation every 1000 decisions and 10 labels before each."""
    decision = [1000 * (i + 1) for i in range(len(score))] if decision is None else decision
    labels = 10.0 * np.arange(1, len(score) + 1)
    known = {"labels": labels, "steps": decision[-1], "protocol": {"metric": "success"}, **other}
    return Series(task, method, seed, np.array(decision), np.array(score, float), **known)


def results(*series: Series) -> Results:
    """Results of just these."""
    wanted: dict[tuple[str, str], frozenset[int]] = {}
    for one in series:
        wanted[one.task, one.method] = wanted.get((one.task, one.method), frozenset()) | {one.seed}
    return Results(series, (), wanted)
