"""A stand-in for ubp2.api: commands are parsed and answered without training."""

from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any, NamedTuple

from ubp2.config.schema import Config
from ubp2.errors import UserError


class Result(NamedTuple):
    """What `ubp2.api` answers to train and resume."""

    folder: Path
    decisions: int
    labels: int
    finished: bool
    evaluation: dict[str, float]
    error: UserError | None = None


class Results(NamedTuple):
    """What it answers for several seeds."""

    folder: Path
    runs: list[Result]
    decisions: int
    labels: int
    finished: bool
    evaluation: dict[str, float]


class Api(types.ModuleType):
    """Stands for `ubp2.api`: remembers the calls, prints where it should not, and answers at once."""

    def __init__(self, finished: bool = True) -> None:
        super().__init__("ubp2.api")
        self.calls: list[tuple[str, Any, dict[str, Any]]] = []
        self.finished = finished
        self.error: UserError | None = None  # of the first of several tasks

    def train(self, config: Config | list[Config], **options: Any) -> Result | Results:
        self.calls.append(("train", config, options))
        if isinstance(config, list):
            runs = [
                self._answer(own)._replace(folder=Path("runs/a") / own.env.replace("/", "-") / own.agent / "s0")
                for own in config
            ]
            if self.error is not None:
                runs[0] = runs[0]._replace(finished=False, error=self.error)
            finished = all(run.finished for run in runs)
            return Results(Path("runs/a"), runs, config[0].steps, 40 * len(runs), finished, runs[0].evaluation)
        if options["seeds"] == 1:
            return self._answer(config)
        runs = [self._answer(config)._replace(folder=Path(f"runs/a/s{i}")) for i in range(options["seeds"])]
        return Results(Path("runs/a"), runs, config.steps, 40 * len(runs), self.finished, runs[0].evaluation)

    def resume(self, run: Path, **options: Any) -> Result:
        self.calls.append(("resume", run, options))
        return self._answer(options["config"])

    def evaluate_members(self, run: Path, **options: Any) -> dict[str, dict[str, float]]:
        self.calls.append(("evaluate", run, options))
        return {"run": {"success_any": 0.5, "return": float("nan")}}

    def mean_scores(self, rows: list[dict[str, float]]) -> dict[str, float]:
        return rows[0]

    def _answer(self, config: Config) -> Result:
        os.write(1, b"a C library says hello\n")
        return Result(Path("runs/a"), config.steps, 40, self.finished, {"policy/success_any": 0.9})
