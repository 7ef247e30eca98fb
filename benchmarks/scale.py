"""A cost model past the machines we have: what a sweep takes on 1, 8 and 64 GPUs, and what 10,000 environments need.

    python benchmarks/scale.py            # the tables of docs/scale.md, written into it; --check only compares

Everything is computed from raw files in benchmarks/results/ (scale/ and performance/), whose commands are in them. The
model is plain: device times and simulator times grow as a + b N with N seeds, the longer of the two is the decision,
and programs are placed on GPUs longest first.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pages import filled, markdown

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))

from ubp2.config.presets import PAPER_TASKS, preset  # noqa: E402
from ubp2.experiments.costs import RATES  # noqa: E402

PAGE = HERE.parent / "docs" / "scale.md"
METHODS = {"ubp2": True, "mbp": True, "rune": False, "mrn": False}  # whether it plans
SEEDS = 15
STEPS = 1_000_000
MODEL_FREE = RATES["gpu", "pebble"].policy  # ms
HORIZON = 7  # of the plans and the sub-sequences that were measured
CORES = 16  # beside each GPU


def rows(file: str, table: str) -> list[dict[str, Any]]:
    """A table of a raw file."""
    return json.loads((HERE / "results" / file).read_text(encoding="utf-8"))["tables"][table]


class Line(NamedTuple):
    """Milliseconds a + b N, fitted to measured times relative to their size."""

    a: float
    b: float

    def at(self, n: float) -> float:
        return self.a + self.b * n

    def times(self, factor: float) -> Line:
        return Line(factor * self.a, factor * self.b)

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> Line:
        n, ms = np.array(points).T
        a, b = np.linalg.lstsq(np.stack([1 / ms, n / ms], 1), np.ones(len(n)), rcond=None)[0]
        return cls(float(a), float(b))


class Model(NamedTuple):
    """What a decision of N seeds on one GPU with its cores is made of."""

    plan: Line
    update: Line
    simulator: float  # core-milliseconds of one decision of one environment, workers sharing cores
    device_mb: float  # a seed
    host_mb: float  # a worker

    def planning(self, seeds: int, cores: int = CORES) -> float:
        """Milliseconds a decision while planning: plan and update, unless the simulators take longer."""
        return max(self.plan.at(seeds) + self.update.at(seeds), self.simulated(seeds, cores))

    def policy(self, seeds: int, cores: int = CORES) -> float:
        """Milliseconds a decision after the budget."""
        return max(self.update.at(seeds), self.simulated(seeds, cores))

    def simulated(self, environments: int, cores: int = CORES) -> float:
        return self.simulator * max(environments / cores, 1.0)


def measured() -> Model:
    """The model of the raw files."""
    plans = [(row["seeds"], row["ms"]) for row in rows("scale/plan.json", "plan")]
    updates = [(row["seeds"], row["ms"]) for row in rows("scale/update.json", "update")]
    envs = [row for row in rows("scale/envs.json", "workers in lock-step") if row["env"] == "metaworld/door-close"]
    simulator = max(row["step_of_all_us"] / 1000 * CORES / row["workers"] for row in envs)
    (train,) = rows("scale/train.json", "train")
    device, host = train["device_mb"] / train["seeds"], train["workers_mb"] / train["seeds"]
    return Model(Line.through(plans), Line.through(updates), simulator, device, host)


def check(model: Model) -> str:
    """The model beside whole runs."""
    lines = [["seeds", "phase", "modelled, ms a decision", "measured, ms", "raw file"]]
    for file in ("performance/gpu-train.json", "scale/train.json"):
        for row in rows(file, "parts of a decision"):
            own = (model.planning if row["phase"] == "planning" else model.policy)(row["seeds"])
            lines.append([str(row["seeds"]), row["phase"], f"{own:.1f}", f"{row['mean_ms']:.1f}", f"`{file}`"])
    return markdown(lines)


def hours(model: Model, task: str, plans: bool, seeds: int) -> float:
    """One program: so many seeds of a method on a task, at the paper's sizes."""
    if not plans:
        return STEPS * (MODEL_FREE[0] + MODEL_FREE[1] * seeds) / 3.6e6
    config, of = preset("paper", task), PAPER_TASKS[task]
    asking = min(math.ceil(of.budget / of.per_session) * config.preferences.every, STEPS)
    longer = of.horizon / HORIZON
    own = model._replace(plan=model.plan.times(longer), update=model.update.times(longer))
    return (asking * own.planning(seeds) + (STEPS - asking) * own.policy(seeds)) / 3.6e6


def sweep(model: Model) -> str:
    """Ten tasks, four methods, 15 seeds, a million decisions each, on so many GPUs."""
    lines = [["GPUs", "seeds per program", "programs", "days", "GPU-days", "GPUs busy on average"]]
    for gpus in (1, 8, 64):
        options = []
        for together in (15, 5, 3, 1):
            jobs = sorted(
                (hours(model, task, plans, together) for task in PAPER_TASKS for plans in METHODS.values()),
                reverse=True,
            )
            jobs = [job for job in jobs for _ in range(SEEDS // together)]
            loads = [0.0] * gpus
            for job in jobs:
                loads[loads.index(min(loads))] += job
            options.append((max(loads) / 24, together, len(jobs), sum(jobs) / 24))
        days, together, programs, total = min(options)
        busy = total / days
        lines.append([str(gpus), str(together), str(programs), f"{days:.1f}", f"{total:.0f}", f"{busy:.0f}"])
    return markdown(lines)


def environments(model: Model) -> str:
    """10,000 environments, one a seed: what each resource comes to, planning."""
    lines = [
        ["GPUs", "environments per GPU", "decision, s", "decisions/s of all", "GPU memory", "worker memory per GPU"]
    ]
    for gpus in (1, 8, 64, 157):
        seeds = math.ceil(10_000 / gpus)
        ms = model.planning(seeds)
        gpu, host = seeds * model.device_mb / 1000, seeds * model.host_mb / 1000
        fits = "" if gpu < 140 else " (does not fit)"
        numbers = [f"{ms / 1000:.2f}", f"{10_000 / ms * 1000:.0f}", f"{gpu:.0f} GB{fits}", f"{host:.0f} GB"]
        lines.append([str(gpus), str(seeds), *numbers])
    return markdown(lines)


def parts(model: Model) -> str:
    """The numbers of the model."""
    return markdown(
        [
            ["what", "modelled", "measured at"],
            ["plan of N seeds", f"{model.plan.a:.2f} + {model.plan.b:.3f} N ms", "1, 4, 16, 64 (`scale/plan.json`)"],
            [
                "update of N seeds",
                f"{model.update.a:.2f} + {model.update.b:.3f} N ms",
                "1, 4, 16, 64 (`scale/update.json`)",
            ],
            [
                "decision of one Meta-World environment",
                f"{model.simulator:.2f} core-ms",
                "16, 64, 128 workers on 16 cores (`scale/envs.json`)",
            ],
            ["GPU memory of a seed", f"{model.device_mb:.0f} MB", "64 seeds (`scale/train.json`)"],
            ["host memory of a worker", f"{model.host_mb:.0f} MB", "64 workers (`scale/train.json`)"],
        ]
    )


TABLES = {"parts": parts, "check": check, "sweep": sweep, "environments": environments}


def render(page: str) -> str:
    """The page with every table written anew."""
    model = measured()
    return filled(page, lambda name: TABLES[name](model))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    new = render(page)
    if not args.check:
        PAGE.write_text(new, encoding="utf-8")
    return int(args.check and new != page)


if __name__ == "__main__":
    raise SystemExit(main())
