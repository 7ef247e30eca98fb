"""Results of a laboratory: a table for each number of labels, JSON with every repeat, CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ubp2.bench.report import table
from ubp2.lab.measures import Reliability
from ubp2.lab.options import Reward
from ubp2.lab.settings import Settings
from ubp2.system import devices, provenance

__all__ = ["Results", "Trial", "as_csv", "as_data", "as_text", "chosen", "mean", "pooled", "write"]

_SHORT = {  # as the table calls them
    "rank_correlation": "rank",
    "top_accuracy": "top",
    "pair_accuracy": "pairs",
    "calibration_error": "ece",
    "log_loss": "loss",
    "spread": "spread",
    "off_spread": "off",
    "spread_ratio": "ratio",
    "jrd": "jrd",
    "off_jrd": "jrd_off",
    "jrd_ratio": "jrd_ratio",
    "action_share": "action",
    "level": "level",
    "saturated": "saturated",
    "train_accuracy": "train",
    "seconds": "s",
}

_LEGEND = """\
rank: correlation with the true reward; top: the same order among good states; pairs: held-out pairs answered rightly
ece, loss: errors of P(first preferred); 0 is best of both, and a loss of 0.693 knows nothing
spread, jrd: how far members differ in states that were visited (deviation, and the planner's bonus); off: elsewhere
ratio: off over visited, of both; well above 1 where members know what they have not seen
action: how much the reward is about the action; level: its mean; saturated: share beyond 0.95; train: own labels
docs/reward-learning.md has each in full"""


class Trial(NamedTuple):
    """One fit."""

    setting: str
    labels: int
    repeat: int
    measures: dict[str, float]
    reliability: Reliability


class Results(NamedTuple):
    """All fits of a study, and what it was made from."""

    what: Reward
    settings: Settings
    trials: list[Trial]
    training_episodes: int
    held_out_episodes: int


def chosen(results: Results, setting: str, labels: int) -> list[Trial]:
    """The repeats of one setting at one number of labels."""
    return [trial for trial in results.trials if (trial.setting, trial.labels) == (setting, labels)]


def mean(trials: Sequence[Trial], name: str) -> tuple[float, float]:
    """Mean of a measure over repeats, and its standard deviation between them (0 for a single one)."""
    values = [trial.measures[name] for trial in trials]
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def pooled(trials: Sequence[Trial]) -> Reliability:
    """The bins of all repeats together."""
    count = np.sum([trial.reliability.count for trial in trials], axis=0)
    sums = (
        np.sum([trial.reliability.count * getattr(trial.reliability, name) for trial in trials], axis=0)
        for name in ("predicted", "observed")
    )
    return Reliability(count, *(total / np.maximum(count, 1) for total in sums))


def as_text(results: Results) -> str:
    """A table a number of labels, settings under each other; every number a mean over repeats."""
    what, parts = results.what, []
    for labels in what.labels:
        rows = [
            {"setting": name} | {short: mean(chosen(results, name, labels), long)[0] for long, short in _SHORT.items()}
            for name in results.settings
        ]
        parts.append(f"{labels} labels\n{table(rows)}")
    parts.append(
        f"{results.training_episodes} episodes to label, {results.held_out_episodes} held out; {what.updates} gradient "
        f"steps; means over {what.repeats} repeats"
    )
    return "\n\n".join([*parts, _LEGEND])


def as_data(results: Results) -> dict[str, Any]:
    """One JSON object with all that is needed to do the same again. Asks jax for its devices."""
    names = list(results.trials[0].measures)
    summary = [
        {"setting": setting, "labels": labels}
        | {name: dict(zip(("mean", "std"), map(_plain, mean(trials, name)), strict=True)) for name in names}
        | {"reliability": {key: value.tolist() for key, value in pooled(trials)._asdict().items()}}
        for setting in results.settings
        for labels in results.what.labels
        for trials in [chosen(results, setting, labels)]
    ]
    options = dataclasses.asdict(results.what) | {
        "data": [str(path) for path in results.what.data],
        "settings": None if results.what.settings is None else str(results.what.settings),
        "out": None if results.what.out is None else str(results.what.out),
    }
    return {
        "lab": "reward",
        "options": options,
        "device": devices()[0].partition(" ")[2],
        **provenance(),
        "episodes": {"training": results.training_episodes, "held_out": results.held_out_episodes},
        "settings": {name: dict(overrides) for name, overrides in results.settings.items()},
        "summary": summary,
        "repeats": [_row(trial) for trial in results.trials],
    }


def as_csv(results: Results) -> str:
    """Every repeat as a line."""
    rows = [_row(trial) for trial in results.trials]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def write(results: Results, data: dict[str, Any], folder: Path) -> None:
    """Write results.json, results.csv and the two figures."""
    from ubp2.lab.plots import plot_labels, plot_reliability

    (folder / "results.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    (folder / "results.csv").write_text(as_csv(results), encoding="utf-8")
    plot_reliability(results, folder / "reliability.png")
    plot_labels(results, folder / "labels.png")


def _row(trial: Trial) -> dict[str, Any]:
    numbers = {name: _plain(value) for name, value in trial.measures.items()}
    return {"setting": trial.setting, "labels": trial.labels, "repeat": trial.repeat, **numbers}


def _plain(value: float) -> float | None:
    """None for what is not finite, which JSON does not have."""
    return value if math.isfinite(value) else None
