"""Learning curves over seeds: run `ubp2 train` once a seed, side by side, and keep every evaluation as raw scores.

    python benchmarks/curves.py NAME --seeds 0 1 2 3 --jobs 4 -- --env metaworld/door-close --preset cpu --ceiling

writes benchmarks/results/NAME.csv (a row for each seed and evaluation) and NAME.json (command, versions, machine).
Run folders go to runs/NAME/; a seed whose folder exists is resumed, so the same command continues what was cut off.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ubp2.runs import Run, read_metrics

HERE = Path(__file__).parent


def train(folder: Path, seed: int, flags: list[str]) -> int:
    """One run as a process of its own; its messages go to a file beside the run folder."""
    start = [*flags, "--seed", str(seed), "--out", str(folder)]
    if (folder / "config.yaml").exists():
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    own, flags = sys.argv[1:], []
    if "--" in own:  # what follows is for ubp2 train
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    args = parser.parse_args(own)
    folders = {seed: Path("runs") / args.name / f"s{seed}" for seed in args.seeds}
    with ThreadPoolExecutor(args.jobs) as pool:
        codes = list(pool.map(lambda item: train(item[1], item[0], flags), folders.items()))
    command = f"python benchmarks/curves.py {args.name} --seeds {' '.join(map(str, args.seeds))} -- {' '.join(flags)}"
    collect(folders, args.results / args.name, command)
    print(f"{args.results / args.name}.csv; exit codes by seed: {dict(zip(folders, codes, strict=True))}")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
