"""How exact is a run that is repeated, and one that is stopped and goes on, on the device at hand?

    python benchmarks/exactness.py [--agents ubp2 pebble] [--seeds 1 4] [--preset cpu] [--steps 600]

For each agent and number of seeds: the same run twice, and once more stopped in the middle and resumed. Prints how many
arrays of the last checkpoint have other bits, the largest difference with its array, and whether the rows of
evaluation are the same. On a CPU everything is 0 (`tests/training/test_exactness.py`); on a GPU this says what holds.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ubp2
from ubp2.agents.registry import AGENTS
from ubp2.config.files import overridden
from ubp2.config.schema import Config
from ubp2.storage import population
from ubp2.storage.runs import read_metrics
from ubp2.training import checkpoint
from ubp2.training.ongoing import Ongoing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=list(AGENTS), choices=list(AGENTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--env", default="toy/reach")
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    print(f"device: {jax.devices()[0].device_kind}; {args.env}, preset {args.preset}, {args.steps} decisions\n")
    print("| agent | seeds | what | arrays that differ | largest difference | array | evaluations |\n|" + "---|" * 7)
    exact = True
    for agent in args.agents:
        for seeds in args.seeds:
            with tempfile.TemporaryDirectory() as folder:
                exact &= measure(config(agent, args), seeds, Path(folder))
    return 0 if exact else 1


def config(agent: str, args: argparse.Namespace) -> Config:
    """A short run with a few sessions, an evaluation, and gradient steps on both sides of the middle."""
    quarter = args.steps // 4
    return overridden(
        ubp2.preset(args.preset, env=args.env),
        {
            "agent": agent,
            "steps": args.steps,
            "ceiling": agent == "sac",
            "training.warmup": quarter,
            "training.warmup_updates": 20,
            "preferences.every": max(quarter // 2, 1),
            "preferences.per_session": 4,
            "preferences.budget": 16,
            "evaluation.every": args.steps,
            "evaluation.episodes": 2,
            "checkpoint.every": 10 * args.steps,
        },
    )


def measure(own: Config, seeds: int, folder: Path) -> bool:
    """Print the two comparisons; whether both found nothing."""
    for name in ("one", "other"):
        ubp2.train(own, seeds=seeds, out=folder / name, progress=False)
    stopped(own, seeds, folder / "resumed")
    ubp2.resume(folder / "resumed", progress=False)
    compared = {"repeated": "other", "stopped and resumed": "resumed"}
    rows = {what: difference(folder / "one", folder / name) for what, name in compared.items()}
    for what, (count, total, largest, array, same) in rows.items():
        told = "the same" if same else "differ"
        print(f"| {own.agent} | {seeds} | {what} | {count} of {total} | {largest:.3g} | {array} | {told} |", flush=True)
    return all(count == 0 and same for count, _, _, _, same in rows.values())


def stopped(own: Config, seeds: int, folder: Path) -> None:
    """The run up to its middle, in the middle of an episode."""
    real, left = Ongoing.add, own.steps // 2 + 3

    def add(self: Ongoing, *arguments: Any) -> None:
        nonlocal left
        real(self, *arguments)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    Ongoing.add = add  # type: ignore[method-assign]
    try:
        ubp2.train(own, seeds=seeds, out=folder, progress=False)
    finally:
        Ongoing.add = real  # type: ignore[method-assign]


def difference(one: Path, other: Path) -> tuple[int, int, float, str, bool]:
    """Arrays that differ, of how many; the largest difference and where; whether the evaluations are the same."""
    count, total, largest, where, same = 0, 0, 0.0, "", True
    for a, b in zip(population.members(one), population.members(other), strict=True):
        left, right = (checkpoint.load_latest(folder / "checkpoints") for folder in (a, b))
        assert left is not None and right is not None and left.arrays.keys() == right.arrays.keys()
        for name, array in left.arrays.items():
            total += 1
            if array.tobytes() == right.arrays[name].tobytes():
                continue
            count += 1
            largest, where = max((largest, where), (apart(array, right.arrays[name]), name))
        same &= evaluations(a) == evaluations(b)
    return count, total, largest, where, same


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference; infinite where an episode in progress has another length."""
    if one.shape != other.shape:
        return float("inf")
    return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max(initial=0.0))


def evaluations(folder: Path) -> list[dict[str, Any]]:
    return [row for row in read_metrics(folder) if row["kind"] == "eval"]


if __name__ == "__main__":
    sys.exit(main())
