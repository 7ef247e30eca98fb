"""Measure what docs/performance.md tells, and write its tables from the raw files.

    python benchmarks/performance.py measure --on gpu            # or cpu; every bench, one JSON file as each ends
    python benchmarks/memory.py                                  # a run of 1M decisions: its own script
    python benchmarks/performance.py render                      # the tables of the page; --check only compares

Raw files lie in benchmarks/results/performance/. In the page a table stands between <!-- table:FILE/TABLE --> and
<!-- end -->, the targets between <!-- table:targets --> and <!-- end -->.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from pages import filled, markdown

from ubp2.bench.report import shown

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "performance"
PAGE = HERE.parent / "docs" / "performance.md"
MISSING = "not measured yet"
LIMIT = 330.0  # seconds for all of a machine's benches, with their compilations

# By machine: the name of the raw file, and the command. What the targets need comes first.
BENCHES = {
    "gpu": {
        "gpu-plan-observation": "plan --preset paper --seeds 1 16 --space observation --profile",
        "gpu-plan-latent": "plan --preset paper --seeds 1 16 --space latent --profile",
        "gpu-train": "train --preset paper --env metaworld/door-close --seeds 16",
        "gpu-update-observation": "update --preset paper --seeds 1 16 --space observation --profile",
        "gpu-start": "start --preset paper --env metaworld/door-close",
        "gpu-update-latent": "update --preset paper --seeds 1 16 --space latent",
        "gpu-envs": "envs --workers 1 4 16",
        "gpu-growth": "plan --preset paper --grow",
        "gpu-pebble": "pebble --seeds 1 8",
    },
    "cpu": {
        "cpu-plan": "plan --preset cpu",
        "cpu-update": "update --preset cpu",
        "cpu-train-door-close": "train --preset cpu --env metaworld/door-close",
        "cpu-train-toy-reach": "train --preset demo --env toy/reach",
        "cpu-start": "start --preset cpu --env metaworld/door-close",
        "cpu-envs": "envs",
        "cpu-growth": "plan --preset cpu --grow",
        "cpu-pebble": "pebble",
    },
}


class Target(NamedTuple):
    """A number that we want, and where the measured one is found."""

    text: str
    at_most: bool
    number: float
    unit: str
    file: str
    table: str
    where: dict[str, Any]  # columns that choose the row
    column: str


def _targets() -> list[Target]:
    def plan(text: str, at_most: bool, number: float, space: str, seeds: int) -> Target:
        unit, column = ("ms", "ms") if at_most else ("plans/s", "plans_per_s")
        return Target(text, at_most, number, unit, f"gpu-plan-{space}", "plan", {"seeds": seeds}, column)

    def train(text: str, number: float, file: str, phase: str, seeds: int = 1) -> Target:
        column = f"{phase}_decisions_per_s"
        return Target(text, False, number, "decisions/s", file, "train", {"seeds": seeds}, column)

    def pebble(text: str, what: str) -> list[Target]:
        where = {"what": what, "seeds": 1}
        text = f"PEBBLE at Meta-World sizes: {text}, over a loop"
        return [
            Target(f"{name}, {text}", False, 5, "times", file, "pebble", where, "speed_up")
            for name, file in (("H200", "gpu-pebble"), ("2 CPU cores", "cpu-pebble"))
        ]

    update, door = "H200, update at paper sizes", "H200, Door Close end to end, paper preset, 16 seeds"
    start = "H200, Door Close, paper preset: first decision"
    return [
        plan("H200, plan at paper sizes, latent of 512, 1 seed", True, 2.0, "latent", 1),
        plan("H200, plan at paper sizes, latent of 512, 16 seeds", False, 1000, "latent", 16),
        plan("H200, plan at paper sizes, observation space, 1 seed", True, 1.3, "observation", 1),
        plan("H200, plan at paper sizes, observation space, 16 seeds", False, 2000, "observation", 16),
        Target(f"{update}, 1 seed", True, 3, "ms", "gpu-update-observation", "update", {"seeds": 1}, "ms"),
        Target(f"{update}, 16 seeds", True, 20, "ms", "gpu-update-observation", "update", {"seeds": 16}, "ms"),
        train(f"{door}, while planning", 600, "gpu-train", "planning", 16),
        train(f"{door}, after the budget", 2000, "gpu-train", "policy", 16),
        Target(f"{start}, cold", True, 60, "s", "gpu-start", "training", {"cache": "cold"}, "first_decision_s"),
        Target(f"{start}, warm", True, 15, "s", "gpu-start", "training", {"cache": "warm"}, "first_decision_s"),
        train("2 CPU cores, Door Close, cpu preset, while planning", 25, "cpu-train-door-close", "planning"),
        train("2 CPU cores, toy/reach, demo preset, while planning", 100, "cpu-train-toy-reach", "planning"),
        *pebble("fit of the reward", "fit"),
        *pebble("rewards of a replay", "relabel"),
        *pebble("a step of SAC", "sac"),
        Target("host memory after 1M decisions, 1 seed", True, 2000, "MB", "memory", "memory", {}, "resident_mb"),
    ]


def raw(results: Path, name: str) -> dict[str, Any] | None:
    """A raw file; None where nothing was measured."""
    path = results / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def targets(results: Path) -> str:
    """Every target beside the measured number."""
    lines = [["what", "target", "measured", "met", "raw file"]]
    for target in _targets():
        data = raw(results, target.file)
        rows = data["tables"].get(target.table, []) if data else []
        found = [row for row in rows if all(row[name] == value for name, value in target.where.items())]
        sign = "≤" if target.at_most else "≥"
        line = [target.text, f"{sign} {target.number:g} {target.unit}"]
        if not found:
            lines.append([*line, MISSING, "", f"`{target.file}.json`"])
            continue
        value = float(found[0][target.column])
        met = value <= target.number if target.at_most else value >= target.number
        lines.append([*line, f"{shown(value)} {target.unit}", "yes" if met else "**no**", f"`{target.file}.json`"])
    return markdown(lines)


def table(results: Path, name: str) -> str:
    """One table of a raw file, with the command and the machine under it."""
    file, _, which = name.partition("/")
    data = raw(results, file)
    if data is None or which not in data["tables"]:
        return MISSING
    rows = data["tables"][which]
    names = list(dict.fromkeys(column for row in rows for column in row))
    body = [[shown(row.get(column)) for column in names] for row in rows]
    source = data["source"] or {"commit": "unknown", "dirty": False}
    commit = source["commit"][:8] + (" with changes" if source["dirty"] else "")
    about = f"`{data['command']}` on {data['device']}, {data['cores']} cores, {data['date'][:10]}, commit {commit}"
    return f"{markdown([[column.replace('_', ' ') for column in names], *body])}\n\n{about}"


def render(page: str, results: Path) -> str:
    """The page with every table written anew."""
    return filled(page, lambda name: targets(results) if name == "targets" else table(results, name))


def measure(on: str, results: Path, only: list[str] | None, limit: float) -> int:
    """Run the benches of a machine one after the other; what does not fit into the time is left out and said."""
    results.mkdir(parents=True, exist_ok=True)
    began, failed = time.monotonic(), 0
    for name, line in BENCHES[on].items():
        left = limit - (time.monotonic() - began)
        if only and name not in only:
            continue
        if left < 10:
            print(f"{name}: left out, the {limit:.0f} s are over", flush=True)
            continue
        out = results / f"{name}.json"
        command = [sys.executable, "-m", "ubp2", "bench", *line.split(), "--out", str(out)]
        print(f"--- {name} ({limit - left:.0f} s): ubp2 bench {line}", flush=True)
        # Seconds of compilation are those of an empty cache; `start` has caches of its own.
        fresh = {} if line.startswith("start") else {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        try:
            failed += subprocess.run(command, timeout=left, env=os.environ | fresh).returncode != 0
        except subprocess.TimeoutExpired:
            print(f"{name}: stopped, the {limit:.0f} s are over", flush=True)
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)
    return int(failed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--on", choices=list(BENCHES), required=True)
    measuring.add_argument("--only", nargs="+", help="names of raw files")
    measuring.add_argument("--limit", type=float, default=LIMIT, help="seconds for all of them")
    rendering = commands.add_parser("render")
    rendering.add_argument("--check", action="store_true")
    for each in (measuring, rendering):
        each.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.command == "measure":
        return measure(args.on, args.results, args.only, args.limit)
    page = PAGE.read_text(encoding="utf-8")
    new = render(page, args.results)
    if not args.check:
        PAGE.write_text(new, encoding="utf-8")
    elif new != page:
        print(f"{PAGE} differs from the raw files: python benchmarks/performance.py render", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
