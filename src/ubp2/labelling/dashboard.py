"""What the dashboard shows: how learning goes, what the reward model thinks, and how far people agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ubp2.labelling import choices
from ubp2.labelling.agreement import summary
from ubp2.preference.store import Given, LabelStore
from ubp2.storage.runs import read_metrics

__all__ = ["Dashboard"]

POINTS = 400  # of a curve; a screen has no more
CLIPS = 6  # answered questions along which the learned reward is shown
SMOOTH = 10  # rows of training behind a point, where nothing has been evaluated yet


class Dashboard:
    """Reads the rows of a run again only when there are new ones."""

    def __init__(self, folder: Path, store: LabelStore) -> None:
        self._folder, self._store = folder, store
        self._stamp: tuple[int, int] | None = None
        self._rows: list[dict[str, Any]] = []

    def data(self) -> dict[str, Any]:
        """All of it, as JSON."""
        rows, given = self._read(), self._store.given()
        training = [row for row in rows if row.get("kind") == "train"]
        points = [_exploration(row) for row in training if any(name.startswith("lambda/") for name in row)]
        return {
            "curves": {"points": _thinned(_curve(rows, training))},
            "reward": {"clips": _clips(given, self._store.notes("reward:"))},
            "lambda": {"points": _thinned(points)},
            "agreement": {
                **summary(given, self._store.checks()),
                "model": _foreseen(given, self._store.notes("judged:")),
            },
        }

    def _read(self) -> list[dict[str, Any]]:
        try:
            status = (self._folder / "metrics.jsonl").stat()
        except OSError:
            return []
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp != self._stamp:
            self._rows, self._stamp = read_metrics(self._folder), stamp
        return self._rows


def _curve(rows: Sequence[Mapping[str, Any]], training: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Success, return and labels by decision: of the evaluations, or of the episodes while there are none."""
    points, labels = [], 0.0
    for row in rows:
        labels = row.get("labels/used", labels)
        if row.get("kind") == "eval":
            by = "planner" if "planner/return" in row else "policy"
            points.append(_point(row, labels, row.get(f"{by}/success_any"), row.get(f"{by}/return")))
    if points:
        return points
    for i, row in enumerate(training):
        recent = training[max(0, i + 1 - SMOOTH) : i + 1]
        success, value = (_mean(recent, f"episode/{name}") for name in ("success_any", "return"))
        points.append(_point(row, row.get("labels/used", 0.0), success, value))
    return points


def _point(row: Mapping[str, Any], labels: float, success: float | None, value: float | None) -> dict[str, Any]:
    return {"decision": row["decision"], "labels": int(labels), "success": success, "return": value}


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return sum(values) / len(values) if values else None


def _exploration(row: Mapping[str, Any]) -> dict[str, Any]:
    """The coefficients of the bonuses, and the bonuses; the reward's stand for all where one number is shown."""
    named = {name: row[name] for name in row if name.startswith(("lambda/", "bonus/"))}
    return {
        "decision": row["decision"],
        "lambda": named.get("lambda/reward"),
        "bonus": named.get("bonus/reward"),
        **named,
    }


def _clips(given: Sequence[Given], notes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The learned reward along the clips answered last, newest last, sides as they were shown to who answered."""
    found = []
    for answer in reversed(given):
        rewards = notes.get(f"reward:{answer.query_id}")
        if rewards is not None and len(found) < CLIPS:
            left, right = rewards["left"], rewards["right"]
            left, right = (right, left) if answer.swapped else (left, right)
            found.append(
                {"left": left, "right": right, "choice": choices.chosen(answer.label, answer.weight, answer.swapped)}
            )
    return found[::-1]


def _foreseen(given: Sequence[Given], notes: Mapping[str, Any]) -> dict[str, int]:
    """Of the answers that chose a side: to how many the reward model had an opinion, and how often it was the same."""
    pairs = [(answer.label, notes.get(f"judged:{answer.query_id}")) for answer in given if answer.weight > 0]
    sure = [(label, p) for label, p in pairs if label != 0.5 and p is not None and abs(p - 0.5) > choices.UNSURE]
    return {"agree": sum((label > 0.5) == (p > 0.5) for label, p in sure), "of": len(sure)}


def _thinned(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most so many, evenly, the newest always."""
    step = max(1, -(-len(points) // POINTS))
    return [*points[:-1:step], *points[-1:]]
