"""A packed set of studies in a folder: train it, go on with it, and write its raw scores.

DIR/plan.json   which runs belong to which study
DIR/runs/       run folders, which hold all that a later call needs to go on
DIR/results/    NAME.csv and NAME.json of each study
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import curves

from studies.packing import Plan
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.storage.population import is_population
from ubp2.storage.runs import Run, read_metrics, write_json

__all__ = ["LARGEST", "SPARE", "Trainer", "going_on", "source_digest", "standing", "train", "write_results"]

LARGEST = 16 * 2**20  # bytes of one file that comes back from a machine
SPARE = 0.5  # minutes for raw scores after the training
SOURCE = Path(__file__).parents[2] / "src" / "ubp2"


class Trainer(Protocol):
    """`ubp2.train` and `ubp2.resume`, which tests replace."""

    def train(self, configs: Mapping[str, Config], *, out: Path, minutes: float) -> Any:
        """Train every configuration in the folder below `out` that its key names."""
        ...

    def resume(self, out: Path, *, minutes: float) -> Any:
        """Go on with all of them."""
        ...


def going_on(out: Path) -> dict[str, Any] | None:
    """The plan that an earlier call began in this folder."""
    path = out / "plan.json"
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); give another --out") from None


def _begin(plan: Plan, out: Path, estimated: float) -> dict[str, Any]:
    """Write the plan: from now on the same command goes on with it."""
    if (out / "runs").exists():
        raise UserError(f"{out / 'runs'} exists and {out / 'plan.json'} does not; give another --out")
    members = [
        {
            "study": member.study,
            "env": member.cell.env,
            "method": member.cell.method,
            "seed": member.seed,
            "preset": member.cell.preset,
            "settings": dict(member.cell.settings),
            "folder": member.folder,
        }
        for member in plan.members
    ]
    about = {
        study.name: {"question": study.question, "changes": study.changes, "decisions": study.decisions}
        for study in plan.studies
    }
    begun = {"studies": about, "runs": len(plan.configs), "estimated": round(estimated, 1), "members": members}
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "plan.json", begun)
    return begun


def train(
    plan: Plan, out: Path, results: Path, minutes: float, trainer: Trainer, command: str, estimated: float
) -> list[Path]:
    """Begin, or go on; raw scores are written whatever happens, and the paths of their files returned."""
    begun = going_on(out)
    fresh, start = begun is None, time.monotonic()
    begun = begun or _begin(plan, out, estimated)
    try:
        if not is_population(out / "runs"):  # also after a kill while its folders were made
            trainer.train(plan.configs, out=out / "runs", minutes=minutes)
        elif not _finished(begun, out):
            fresh = False
            trainer.resume(out / "runs", minutes=minutes)
        if fresh and _finished(begun, out):  # what was stopped in between tells no rate
            seconds = round(time.monotonic() - start, 1)
            begun["timing"] = {"seconds": seconds, "estimated": begun["estimated"], "members": begun["runs"]}
            write_json(out / "plan.json", begun)
    finally:
        written = write_results(begun, out, results, command)
    return written


def standing(out: Path) -> str:
    """How many runs of each study are done, and how to go on."""
    begun = going_on(out) or {"studies": {}, "members": []}
    lines = []
    for name, about in begun["studies"].items():
        reached = [_evaluated(out, member) for member in begun["members"] if member["study"] == name]
        done = sum(each >= about["decisions"] for each in reached)
        lines.append(f"{name}: {done} of {len(reached)} runs evaluated at {about['decisions']:,} decisions")
    if not _finished(begun, out):
        lines.append("the same command goes on")
    return "\n".join(lines)


def write_results(begun: Mapping[str, Any], out: Path, results: Path, command: str) -> list[Path]:
    """One CSV and one JSON a study; each must be small enough to come back from a machine."""
    written = []
    for name, about in begun["studies"].items():
        rows: list[dict] = []
        runs, infos = [], []
        for member in begun["members"]:
            folder = out / "runs" / member["folder"]
            if member["study"] != name or not (folder / "config.yaml").exists():
                continue
            infos.append(Run.open(folder).info())
            own = {key: member[key] for key in ("env", "method")}
            scores = curves.scores(folder, member["seed"])
            rows += [{**own, **row} for row in scores]
            reached = {"decisions": _trained(out, member), "evaluated": _evaluated(out, member)}
            runs.append({**member, **reached, **{key: infos[-1][key] for key in ("started", "source")}})
        shared = {key: infos[0][key] if infos else None for key in ("versions", "device", "source")}
        tells = {
            "study": name,
            **about,
            "command": command,
            "timing": begun.get("timing"),
            **shared,
            "digest": source_digest(),
        }
        curves.write(results / f"{name}.csv", rows)
        write_json(results / f"{name}.json", {**tells, "runs": runs})
        for path in (results / f"{name}.csv", results / f"{name}.json"):
            if path.stat().st_size > LARGEST:
                size = path.stat().st_size / 2**20
                raise UserError(f"{path} has {size:.0f} MiB, more than {LARGEST >> 20}; split the study in the queue")
            written.append(path)
    return written


def source_digest(source: Path = SOURCE) -> str:
    """A digest of the package's source: `collect` finds the commit by it where git could not tell."""
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        digest.update(path.relative_to(source).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _finished(begun: Mapping[str, Any], out: Path) -> bool:
    asked = {name: about["decisions"] for name, about in begun["studies"].items()}
    return all(_evaluated(out, member) >= asked[member["study"]] for member in begun["members"])


def _trained(out: Path, member: Mapping[str, Any]) -> int:
    """The last decision of a run that its metrics have."""
    return max((int(row["decision"]) for row in _metrics(out, member)), default=0)


def _evaluated(out: Path, member: Mapping[str, Any]) -> int:
    """The decision of a run's last evaluation."""
    return max((int(row["decision"]) for row in _metrics(out, member) if row["kind"] == "eval"), default=0)


def _metrics(out: Path, member: Mapping[str, Any]) -> list[dict[str, Any]]:
    folder = out / "runs" / member["folder"]
    return read_metrics(folder) if (folder / "config.yaml").exists() else []
