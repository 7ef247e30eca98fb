"""Folders of groups: how far their runs have come, which are whole, why a group was given up."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ubp2.errors import UserError
from ubp2.experiments.cells import Group
from ubp2.experiments.programs import Program
from ubp2.storage import locks, population
from ubp2.storage.recognising import is_run

__all__ = [
    "check_whole",
    "cut_off",
    "decision",
    "failed",
    "failure",
    "filming",
    "last_row",
    "last_words",
    "log_of",
    "resumable",
    "whole",
    "written",
]

_TAILS = (2**16, 2**20)  # bytes of metrics that are read from the end; the rows of 5,000 decisions take about 2**16
_WORDS = 8  # lines of a log that tell why a run failed


def decision(group: Group) -> int:
    """How far a group has come: the last decision in the metrics of its first seed."""
    member = group.folder if group.seeds == 1 else group.folder / f"s{group.first}"
    return int(last_row(member).get("decision", 0))


def last_row(member: Path, kind: str | None = None) -> dict[str, Any]:
    """The last row in the metrics of a run, or the last of a kind, whoever writes to them now; empty: there is none."""
    for size in _TAILS:
        try:
            with (member / "metrics.jsonl").open("rb") as stream:
                start = stream.seek(max(stream.seek(0, os.SEEK_END) - size, 0))
                lines = stream.read().splitlines(keepends=True)[start > 0 :]
            for line in reversed(lines):
                row = json.loads(line) if line.endswith(b"\n") and (kind or "").encode() in line else {}
                if row and kind in (None, row.get("kind")):
                    return row
        except (OSError, ValueError):
            return {}
    return {}


def failure(group: Group) -> str:
    """Why the last attempt at a group was given up; empty where none was."""
    try:
        return failed(group).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cut_off(group: Group) -> bool:
    """Whether the making of its clip was interrupted."""
    return filming(group).exists()


def resumable(group: Group) -> bool:
    """Whether any seed in the folder has a checkpoint; `ubp2 train --resume` knows whether all can go on from one.

    What people have answered is stored at once, and a run without a checkpoint takes it up again.
    """
    folder = group.folder
    if group.cell.config.teacher.name == "human" and is_run(folder):
        return True
    return any(True for place in ("", "s*/") for _ in folder.glob(f"{place}checkpoints/*/manifest.json"))


def whole(group: Group) -> bool:
    """Whether every seed of a group has a run folder, which may have no checkpoint yet."""
    try:
        return all(is_run(member) for member in population.members(group.folder))
    except UserError:
        return False


def check_whole(group: Group) -> None:
    """Refuse to go on with a group that lacks a seed, or what says which seeds it has: only a person can mend that."""
    folder, seeds = group.folder, list(range(group.first, group.first + group.seeds))
    members = [folder / f"s{seed}" for seed in seeds] if group.seeds > 1 else [folder]
    try:
        found = population.members(folder)
    except UserError:
        found = []
    gone = [str(member) for member in members if not is_run(member)]
    if gone:
        what = f"{', '.join(gone)} is no whole run folder while others here have checkpoints; put a backup in its place"
    elif found != members:
        what = f'{folder / "population.json"} is gone or damaged; write {{"seeds": {seeds}}} into it'
    else:
        return
    raise UserError(f"{what}, or move {folder} away, and all of its seeds are trained anew. Nothing was removed")


def written(folder: Path) -> bool:
    """Whether a process writes to a run in the folder."""
    return any(locks.held(path.parent) for path in (folder / locks.LOCK, *folder.glob(f"s*/{locks.LOCK}")))


def _log(group: Group) -> Path:
    return group.folder.with_name(f"{group.folder.name}.log")


def log_of(program: Program) -> Path:
    """The log of a process: beside its group, or beside the file of its program."""
    return _log(program.groups[0]) if len(program.groups) == 1 else program.file.with_suffix(".log")


def filming(group: Group) -> Path:
    return group.folder.with_name(f"{group.folder.name}.filming")


def failed(group: Group) -> Path:
    return group.folder.with_name(f"{group.folder.name}.failed")


def last_words(path: Path) -> str:
    try:
        lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except OSError as error:
        return f"its log cannot be read: {error}"
    return f"the end of {path}:\n" + "\n".join(f"    {line}" for line in lines[-_WORDS:])
