"""Results of studies, from where they were trained into `benchmarks/results/studies/`, and how far each study is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import curves

from studies.queue import Study, load, mark
from studies.training import source_digest
from ubp2 import system
from ubp2.errors import UserError
from ubp2.storage.runs import write_json

__all__ = ["RESULTS", "abouts", "collect", "standing"]

RESULTS = Path(__file__).parents[1] / "results" / "studies"
Row = dict[str, str]
RunKey = tuple[str, str, int]  # environment, method, seed


def collect(folder: Path, results: Path, queue: Path) -> list[str]:
    """Merge what `folder` has into `results` and mark the queue; returns a sentence a study."""
    source = folder / "results" if (folder / "results").is_dir() else folder
    found = [(path, about) for path in sorted(source.glob("*.json")) if (about := _about(path)) is not None]
    if not found:
        raise UserError(f"{source} has no results of a study (NAME.json with NAME.csv); name the --out of study.py")
    studies = {study.name: study for study in load(queue)}
    return [_collected(path, about, results, queue, studies.get(about["study"])) for path, about in found]


def abouts(results: Path) -> list[dict[str, Any]]:
    """The JSON of every study that was collected."""
    return [about for path in sorted(results.glob("*.json")) if (about := _about(path)) is not None]


def standing(study: Study, runs: list[Mapping[str, Any]]) -> tuple[str, dict[str, int]]:
    """Status of a study by its runs; runs under settings that the queue no longer has do not count."""
    decisions = {_key(run): run["evaluated"] for run in runs if _asked_so(study, run)}
    reached = [decisions.get((cell.env, cell.method, seed), 0) for cell, seed in study.runs()]
    done = sum(each >= study.decisions for each in reached)
    status = "done" if reached and done == len(reached) else "partial"
    return status, {"runs": len(reached), "finished": done, "least decisions": min(reached, default=0)}


def _collected(path: Path, about: dict[str, Any], results: Path, queue: Path, study: Study | None) -> str:
    name = about["study"]
    _name_commit(about)
    rows = curves.read(path.with_suffix(".csv"))
    target = results / f"{name}.json"
    results.mkdir(parents=True, exist_ok=True)
    kept = ""
    if target.exists():
        old, old_rows = _about(target), curves.read(target.with_suffix(".csv"))
        if old is None:
            raise UserError(f"{target} is not the result of a study; move it away, then collect again")
        merged, merged_rows = _merged(old, old_rows, about, rows)
        if any(row not in merged_rows for row in old_rows):
            kept = f"; the scores that were there are now {_set_aside(target).name}"
        about, rows = merged, merged_rows
    curves.write(target.with_suffix(".csv"), rows)
    write_json(target, about)
    if study is None:
        return f"{name}: collected, and the queue has no such study{kept}"
    status, counts = standing(study, about["runs"])
    date = max((run["started"] for run in about["runs"]), default="")[:10]
    commits = {(run["source"] or {}).get("commit", "unknown")[:10] for run in about["runs"]}
    record = {"results": f"results/studies/{name}.csv", "date": date, "commit": ", ".join(sorted(commits)), **counts}
    mark(queue, name, status, record)
    told = f"{counts['finished']} of {counts['runs']} runs evaluated at {study.decisions:,} decisions"
    return f"{name}: {status}, {told}, the least {counts['least decisions']:,}{kept}"


def _merged(
    old: Mapping[str, Any], old_rows: list[Row], new: Mapping[str, Any], rows: list[Row]
) -> tuple[dict[str, Any], list[Row]]:
    """Keeps of each run the one that was evaluated later, of two alike the newer; all its rows are of that one."""
    runs, winners = {_key(run): run for run in old["runs"]}, dict.fromkeys(map(_key, old["runs"]), "old")
    for run in new["runs"]:
        before = runs.get(_key(run))
        if before is None or run["evaluated"] >= before["evaluated"]:
            runs[_key(run)], winners[_key(run)] = run, "new"
    ordered = [row for row in old_rows if winners.get(_row_key(row)) != "new"]
    ordered += [row for row in rows if winners.get(_row_key(row)) == "new"]
    names = list(dict.fromkeys(name for row in (*old_rows, *rows) for name in row))
    filled = [{name: row.get(name, "") for name in names} for row in ordered]
    filled.sort(key=lambda row: (*_row_key(row), int(row["decision"])))
    return {**new, "runs": [runs[key] for key in sorted(runs)]}, filled


def _set_aside(target: Path) -> Path:
    """Rename the CSV and the JSON of an earlier result; nothing that was measured is overwritten."""
    number = 1
    while (aside := target.with_name(f"{target.stem}-earlier-{number}.csv")).exists():
        number += 1
    target.with_suffix(".csv").rename(aside)
    target.rename(aside.with_suffix(".json"))
    return aside


def _name_commit(about: dict[str, Any]) -> None:
    """A machine without git cannot tell the commit: if the source here is the same, it is the one of this checkout."""
    if about.get("digest") != source_digest():
        return
    here = system.source()
    about["source"] = about["source"] or here
    for run in about["runs"]:
        run["source"] = run["source"] or here


def _about(path: Path) -> dict[str, Any] | None:
    """A JSON of a study; None: it is something else."""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return about if isinstance(about, dict) and {"study", "runs"} <= set(about) else None


def _key(run: Mapping[str, Any]) -> RunKey:
    return run["env"], run["method"], int(run["seed"])


def _row_key(row: Mapping[str, str]) -> RunKey:
    return row["env"], row["method"], int(row["seed"])


def _asked_so(study: Study, run: Mapping[str, Any]) -> bool:
    cells = {(cell.env, cell.method): cell for cell in study.cells}
    cell = cells.get((run["env"], run["method"]))
    return cell is not None and (dict(cell.settings), cell.preset) == (run["settings"], run["preset"])
