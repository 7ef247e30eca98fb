"""Learning curves over seeds: train, and keep every evaluation as raw scores.

    python benchmarks/curves.py NAME --seeds 0 1 2 3 --jobs 4 -- --env metaworld/door-close --preset cpu --ceiling
    python benchmarks/curves.py NAME --seeds 0 1 2 3 4 5 6 7 --together -- --env metaworld/door-close --preset best
    python benchmarks/curves.py --table NAME [NAME ...] [--at 10000 20000]
    python benchmarks/curves.py --versus door-close:20000 window-close:25000 [--methods ubp2 mbp]
    python benchmarks/curves.py --versus door-close:20000 --methods metaworld/ubp2 horizon-3/ubp2[,OTHER/ubp2]
    python benchmarks/curves.py --stability NAME [NAME ...]

The first runs `ubp2 train` once a seed, side by side; the second all seeds in one program, as on a GPU. Both write
benchmarks/results/NAME.csv (a row for each seed and evaluation) and NAME.json (command, versions, machine). Run folders
go to runs/NAME/; what exists is resumed, so the same command continues what was cut off. The third prints the
interquartile mean over seeds of what is in such files, with a bootstrap interval of 95 %; with --at, as one table. The
fourth sets TASK-METHOD.csv of two methods side by side, and gives the mean of their difference over tasks; as the fifth
shows, a method may name its folder, or several with commas; the first that has the task is read. The sixth says whether
what was solved stayed solved.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from ubp2.evaluation.statistics import interval, iqm
from ubp2.storage.runs import Run, read_metrics

HERE = Path(__file__).parent
COLUMNS = ("planner/success_any", "policy/success_any", "reward/rank_correlation")


def train(folder: Path, seeds: Sequence[int], flags: list[str]) -> int:
    """One process, of one seed or of several from the first on; its messages go to a file beside the folder."""
    start = [*flags, "--seed", str(seeds[0]), "--seeds", str(len(seeds)), "--out", str(folder)]
    if (folder / "config.yaml").exists() or (folder / "population.json").exists():
        start = ["--resume", str(folder)]
    command = [sys.executable, "-m", "ubp2", "train", *start]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".log").open("a") as log:
        return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ).returncode


def scores(folder: Path, seed: int) -> list[dict]:
    """The evaluations of a run, each with labels, compilations, memory and non-finite numbers up to then."""
    rows: list[dict] = []
    so_far = {"labels": 0, "compiled": 0, "resident_megabytes": 0.0, "not_finite": 0}
    for row in read_metrics(folder) if folder.exists() else []:
        so_far["labels"] = int(row.get("labels/used", so_far["labels"]))
        so_far["compiled"] = int(row.get("time/compiled", so_far["compiled"]))
        so_far["resident_megabytes"] = round(row.get("time/resident_megabytes", so_far["resident_megabytes"]))
        if row["kind"] == "train":  # a rank correlation of constants may be undefined, a loss may not
            so_far["not_finite"] += sum(value is None for value in row.values()) + int(row["plan/broken"] > 0)
        if row["kind"] == "eval":
            rows.append({"seed": seed, **so_far, **{key: value for key, value in row.items() if key != "kind"}})
    return rows


def write(path: Path, rows: list[dict]) -> None:
    """Raw scores as CSV."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def collect(folders: dict[int, Path], out: Path, command: str) -> None:
    """Gather the evaluations of every run that has some, and what they ran on."""
    write(out.with_suffix(".csv"), [row for seed, folder in folders.items() for row in scores(folder, seed)])
    infos = [Run.open(folder).info() for folder in folders.values() if (folder / "config.yaml").exists()]
    about = {"command": command, "seeds": list(folders)}
    for name in ("versions", "device", "source"):
        about[name] = infos[0][name] if infos else None
    out.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n")


def read(path: Path) -> list[dict[str, str]]:
    """The rows of raw scores; a missing file is told with what there is."""
    if not path.exists():
        there = ", ".join(sorted(other.stem for other in path.parent.glob("*.csv"))) or "nothing"
        sys.exit(f"there is no {path}; in {path.parent} there is: {there}")
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def table(path: Path) -> str:
    """Interquartile means over seeds as Markdown, a row an evaluation."""
    rows = read(path)
    columns = [name for name in COLUMNS if rows and name in rows[0]]
    lines = [f"| {path.stem}: decisions (labels), seeds | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for decision in sorted({int(row["decision"]) for row in rows}):
        own = [row for row in rows if int(row["decision"]) == decision]
        cells = [_cell(np.array([float(row[name]) for row in own if row[name]])) for name in columns]
        labels = max(int(row["labels"]) for row in own)
        lines.append(f"| {decision:,} ({labels}), {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def side_by_side(paths: Sequence[Path], decisions: Sequence[int]) -> str:
    """Success of planner and policy, where there are both, at these decisions as Markdown, a row a file."""
    curves = {path.stem: read(path) for path in paths}
    who = [name for name in ("planner", "policy") if any(_success(name) in rows[0] for rows in curves.values() if rows)]
    columns = [f"{controller}, {at:,}" for at in decisions for controller in who]
    lines = [f"| | seeds | {' | '.join(columns)} |", "|---" * (2 + len(columns)) + "|"]
    for name, rows in curves.items():
        cells = [_cell(_successes(rows, controller, at)) for at in decisions for controller in who]
        lines.append(f"| {name} | {len({row['seed'] for row in rows})} | {' | '.join(cells)} |")
    return "\n".join(lines)


def raw(results: Path, task: str, method: str) -> Path:
    """The scores of a method, "ubp2", "metaworld/ubp2" or "newer/ubp2,older/ubp2", on a task."""
    places = [results / where for where in method.split(",")]
    paths = [place.with_name(f"{task}-{place.name}.csv") for place in places]
    return next((path for path in paths if path.exists()), paths[0])


def versus(results: Path, tasks: Sequence[str], methods: Sequence[str], controller: str) -> str:
    """Success of two methods at one decision of each task, 'TASK:DECISION', and what the first is ahead."""
    lines = [f"| task | decisions | {' | '.join(methods)} | difference |", "|---" * (3 + len(methods)) + "|"]
    groups: list[np.ndarray] = []
    for name in tasks:
        task, _, at = name.partition(":")
        paths = [raw(results, task, method) for method in methods]
        own = [_successes(read(path), controller, int(at)) for path in paths]
        if not all(scores.size for scores in own):
            sys.exit(f"{task}: not every one of {', '.join(methods)} has a {controller} evaluated at {at} decisions")
        groups += own
        lines.append(f"| {task} | {int(at):,} | {' | '.join(map(_cell, own))} | {_signed(own)} |")
    lines.append(f"| mean over tasks | | | | {_signed(groups)} |")
    return "\n".join(lines)


def stability(paths: Sequence[Path]) -> str:
    """Mean success from the first evaluation of a seed at 0.9 or more to its last, over the seeds that got there."""
    lines = ["| | planner: seeds that solved it, success since | policy: the same |", "|---|---|---|"]
    for path in paths:
        rows, cells = read(path), []
        for who in ("planner", "policy"):
            if rows and _success(who) not in rows[0]:
                cells.append("")
                continue
            seeds = {row["seed"]: [] for row in rows}
            for row in sorted(rows, key=lambda row: int(row["decision"])):
                seeds[row["seed"]].append(float(row[_success(who)]))
            since = [np.mean(own[np.argmax(np.array(own) >= 0.9) :]) for own in seeds.values() if max(own) >= 0.9]
            cells.append(f"{len(since)} of {len(seeds)}" + (f", {np.mean(since):.2f}" if since else ""))
        lines.append(f"| {path.stem} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _success(controller: str) -> str:
    return f"{controller}/success_any"


def _successes(rows: Sequence[dict[str, str]], controller: str, decision: int) -> np.ndarray:
    """One score a seed that has one: agents without a model have no planner."""
    found = [row.get(_success(controller)) for row in rows if int(row["decision"]) == decision]
    return np.array([float(score) for score in found if score])


def _signed(groups: Sequence[np.ndarray]) -> str:
    """Mean over tasks of the difference of interquartile means; groups of two methods take turns, task by task."""

    def ahead(groups: Sequence[np.ndarray]) -> float:
        return float(
            np.mean([iqm(first) - iqm(second) for first, second in zip(groups[::2], groups[1::2], strict=True)])
        )

    return f"{ahead(groups):+.2f}{_bracket(interval(groups, ahead), '+.2f')}"


def _cell(scores: np.ndarray) -> str:
    if not scores.size:
        return ""
    return f"{iqm(scores):.2f}{_bracket(interval([scores], lambda groups: iqm(groups[0])), '.2f')}"


def _bracket(bounds: tuple[float, float], form: str) -> str:
    """The interval behind a number; of single seeds there is none."""
    low, high = bounds
    return "" if np.isnan(low) else f" [{low:{form}}, {high:{form}}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--table", nargs="+", help="names of curves whose interquartile means to print")
    parser.add_argument("--at", type=int, nargs="+", help="decisions whose evaluations to show side by side")
    parser.add_argument("--versus", nargs="+", metavar="TASK:DECISION", help="compare two methods on these tasks")
    parser.add_argument("--methods", nargs=2, default=["ubp2", "mbp"], help="the two that --versus compares")
    parser.add_argument(
        "--controller", choices=["planner", "policy"], default="planner", help="whose success it compares"
    )
    parser.add_argument("--stability", nargs="+", metavar="NAME", help="whether what was solved stayed solved")
    parser.add_argument("--together", action="store_true", help="all seeds in one program")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the run folders go")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    own, flags = sys.argv[1:], []
    if "--" in own:  # what follows is for ubp2 train
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    args = parser.parse_args(own)
    if args.table:
        paths = [args.results / f"{name}.csv" for name in args.table]
        print(side_by_side(paths, args.at) if args.at else "\n\n".join(map(table, paths)))
        return 0
    if args.versus:
        print(versus(args.results, args.versus, args.methods, args.controller))
        return 0
    if args.stability:
        print(stability([args.results / f"{name}.csv" for name in args.stability]))
        return 0
    if args.name is None:
        parser.error("name the curves: python benchmarks/curves.py NAME -- FLAGS")
    folder, seeds = args.runs / args.name, args.seeds
    folders = {seed: folder / f"s{seed}" for seed in seeds}
    if args.together and len(seeds) > 1:  # one seed is a run folder itself, and trains as below
        if seeds != list(range(seeds[0], seeds[0] + len(seeds))):
            parser.error(f"--together trains consecutive seeds, got {seeds}")
        codes = [train(folder, seeds, flags)]
    else:
        with ThreadPoolExecutor(args.jobs) as pool:
            codes = list(pool.map(lambda seed: train(folders[seed], [seed], flags), seeds))
    how = " --together" if args.together else ""
    command = f"python benchmarks/curves.py {args.name} --seeds {' '.join(map(str, seeds))}{how} -- {' '.join(flags)}"
    collect(folders, args.results / args.name, command)
    print(f"{args.results / args.name}.csv; exit codes: {codes}")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
