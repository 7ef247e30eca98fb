"""A small queue of studies, and a trainer that learns nothing, for the tests of `benchmarks/study.py`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from ubp2.config.schema import Config
from ubp2.storage.database import POPULATION
from ubp2.storage.runs import Metrics, Run

__all__ = ["QUEUE", "Trainer"]

QUEUE = """\
# kept
defaults: {preset: best, seeds: 2, decisions: 2000, evaluation: {every: 1000, episodes: 1}, status: open}
studies:
  - name: first
    question: Does it?
    changes: A page.
    envs: [door-close]
    variants: {best: {}}

  - name: second
    question: Does the other?
    changes: A page.
    envs: [door-close, metaworld/door-open]
    variants:
      best: {}
      mbp: {agent: mbp}
      later: {needs: a switch}
"""


class Trainer:
    """Stands in for `ubp2.train`: every run gets evaluations up to `reach` decisions, without learning."""

    def __init__(self, reach: int, success: float = 0.5) -> None:
        self.reach, self.success, self.calls = reach, success, []

    def train(self, configs: Mapping[str, Config], *, out: Path, minutes: float) -> None:
        self.calls.append("train")
        for folder, config in configs.items():
            with contextlib.closing(Run.create(out / folder, config)):
                pass
            self._evaluate(out / folder, 0)
        (out / POPULATION).write_text("{}", encoding="utf-8")

    def resume(self, out: Path, *, minutes: float) -> None:
        self.calls.append("resume")
        for config in sorted(out.glob("**/config.yaml")):
            rows = (config.parent / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            self._evaluate(config.parent, json.loads(rows[-1])["decision"] if rows else 0)

    def _evaluate(self, folder: Path, since: int) -> None:
        with Metrics(folder, tensorboard=False) as metrics:
            for decision in range(since + 1000, self.reach + 1, 1000):
                metrics.write("eval", decision, {"planner/success_any": self.success})
