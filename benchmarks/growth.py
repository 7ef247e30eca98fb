"""Does a run grow? Memory of a run of 50,000 decisions on toy/reach, with everything in it that a run has.

    python benchmarks/growth.py [--decisions 50000] [--out growth.json]

Plans, updates, sessions of questions, evaluations and checkpoints go on to the end; models are small, because memory
that leaks does so by the call. Prints the resident memory of the training process at each tenth of the run, and fails
if the last is more than 5 % above that after a fifth (10,000 of 50,000 decisions). What was freed is handed back to the
system before each measurement: compilation leaves hundreds of megabytes of free heap, in which a leak would hide.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import ubp2
from ubp2.config.files import overridden
from ubp2.config.schema import Config
from ubp2.storage.runs import read_metrics
from ubp2.system import resident_megabytes
from ubp2.training import loop

MOST = 1.05  # of the memory after a fifth of the run


def config(decisions: int) -> Config:
    """Sessions all along: the budget lasts to the end."""
    sessions = decisions // 500
    return overridden(
        ubp2.preset("cpu", env="toy/reach"),
        {
            "steps": decisions,
            "environment.in_process": True,
            "model.width": 32,
            "model.depth": 1,
            "planner.samples": 16,
            "planner.elites": 4,
            "planner.policy_samples": 4,
            "planner.iterations": 1,
            "planner.horizon": 2,
            "training.batch_size": 16,
            "training.warmup": 500,
            "training.warmup_updates": 50,
            "preferences.every": 500,
            "preferences.per_session": 2,
            "preferences.budget": 2 * sessions,
            "preferences.candidates": 16,
            "evaluation.every": max(decisions // 20, 1),
            "evaluation.episodes": 2,
            "checkpoint.every": max(decisions // 50, 1),
        },
    )


def trimmed() -> float:
    """Resident memory without what the process has freed and its C library keeps."""
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    return resident_megabytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=50_000)
    parser.add_argument("--out", type=Path, help="also write the rows as JSON")
    args = parser.parse_args()
    loop.resident_megabytes = trimmed
    with tempfile.TemporaryDirectory() as folder:
        result = ubp2.train(config(args.decisions), out=Path(folder) / "run")
        rows = [row for row in read_metrics(result.folder) if "time/resident_megabytes" in row]
    tenths = [min(rows, key=lambda row: abs(row["decision"] - args.decisions * i // 10)) for i in range(1, 11)]
    table = [{"decisions": r["decision"], "resident_mb": round(r["time/resident_megabytes"], 1)} for r in tenths]
    for row in table:
        print(f"{row['decisions']:>8} decisions  {row['resident_mb']:8.1f} MB")
    growth = tenths[-1]["time/resident_megabytes"] / tenths[1]["time/resident_megabytes"]
    print(f"growth from {table[1]['decisions']} to {table[-1]['decisions']} decisions: {100 * (growth - 1):+.2f} %")
    if args.out:
        args.out.write_text(json.dumps({"rows": table, "growth": growth}, indent=2) + "\n")
    return 0 if growth <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
