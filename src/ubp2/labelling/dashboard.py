"""What the dashboard shows: how learning goes, what the reward model thinks, and how far people agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ubp2.labelling.agreement import summary
from ubp2.labelling.desk import Desk
from ubp2.runs import read_metrics

__all__ = ["Dashboard"]

POINTS = 400  # of a curve; a screen has no more
EXAMPLES = 4  # pairs along which the learned reward is shown


class Dashboard:
    """Reads the files of a run again only when they have changed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._stamp: tuple[int, int] | None = None
        self._rows: list[dict[str, Any]] = []

    def data(self) -> dict[str, Any]:
        """All of it, as JSON."""
        rows, store = self._read(self._desk.folder), self._desk.store
        evaluations = [row for row in rows if row.get("kind") == "eval"]
        training = [row for row in rows if row.get("kind") == "train"]
        labels = [row for row in rows if row.get("kind") == "labels"]
        return {
            "curves": {
                "evaluation": _series(evaluations, _names(evaluations, "policy/", "planner/")),
                "training": _series(training, _names(training, "episode/")),
            },
            "reward": {
                "quality": _series(evaluations, _names(evaluations, "reward/")),
                "foreseen": _series(labels, _names(labels, "labels/")),
                "along": self._along(store.notes("reward:")),
            },
            "lambda": _series(training, _names(training, "lambda")),
            "agreement": summary(store.given(), store.checks()) | {"at_work": self._desk.people()},
        }

    def _along(self, notes: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The learned reward along the clips of the newest questions that are closed; open ones would be given away."""
        rewards = {int(name.partition(":")[2]): value for name, value in notes.items()}
        shown = self._desk.shown_after(sorted(rewards, reverse=True)[: 4 * EXAMPLES])
        return [{**pair, "rewards": rewards[pair["question"]]} for pair in shown[:EXAMPLES]]

    def _read(self, folder: Path) -> list[dict[str, Any]]:
        try:
            status = (folder / "metrics.jsonl").stat()
        except OSError:
            return []
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp != self._stamp:
            self._rows, self._stamp = read_metrics(folder), stamp
        return self._rows


def _names(rows: Sequence[Mapping[str, Any]], *beginnings: str) -> list[str]:
    """Metrics of these rows by the beginning of their name or of its last part: lambda/reward, plan/lambda_reward."""
    found = {name for row in rows for name in row}
    return sorted(n for n in found if n.startswith(beginnings) or n.rpartition("/")[2].startswith(beginnings))


def _series(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns: the decision, and each metric, None where a row lacks it; evenly thinned where there are many."""
    step = max(1, -(-len(rows) // POINTS))
    kept = [*rows[:-1:step], *rows[-1:]]  # the newest always
    return {"decision": [row["decision"] for row in kept]} | {n: [row.get(n) for row in kept] for n in names}
