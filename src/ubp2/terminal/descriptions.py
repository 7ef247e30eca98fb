"""Answers of `ubp2 info`: about an installation, a run, or several runs that trained together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ubp2.config.checking import notes
from ubp2.config.files import to_dict
from ubp2.storage import population
from ubp2.storage.runs import Run, read_metrics
from ubp2.system import cache_folder, versions

__all__ = ["evaluation_lines", "folder", "installation", "lines"]


def installation() -> dict[str, Any]:
    """Versions and folders, for a bug report."""
    from ubp2.envs.gl import choose_backend

    choose_backend()
    rendering = os.environ.get("MUJOCO_GL", "the default of this platform")
    return {"versions": versions(), "cache": cache_folder(), "rendering": rendering}


def folder(path: Path) -> dict[str, Any]:
    """Describe a run folder, or the folder of several runs."""
    return _population(path) if population.is_population(path) else _run(path)


def _run(run: Path) -> dict[str, Any]:
    config, rows = Run.open(run).config, read_metrics(run)
    used = [int(row["labels/used"]) for row in rows if "labels/used" in row]
    evaluations = [row for row in rows if row.get("kind") == "eval"]
    return {
        "run": run,
        "decisions": max((row["decision"] for row in rows), default=0),
        "of": config.steps,
        "labels": max(used, default=0),
        "evaluation": evaluations[-1] if evaluations else {},
        **({"notes": told} if (told := notes(config)) else {}),
        "config": to_dict(config),
    }


def _population(folder: Path) -> dict[str, Any]:
    """Describe the common part, then each member by its path below the folder, with settings of its own."""
    members = {str(path.relative_to(folder)): _run(path) for path in population.members(folder)}
    of_each = [own.pop("notes", []) for own in members.values()]
    settings = {name: _flat(own.pop("config")) for name, own in members.items()}
    first = next(iter(settings.values()))
    shared = {key: value for key, value in first.items() if all(own.get(key) == value for own in settings.values())}
    for name, own in settings.items():
        differing = {key: value for key, value in own.items() if key not in shared and key != "seed"}
        if differing:
            members[name]["differs"] = differing
    envs = {own["env"] for own in settings.values()}
    seeds_alone = not any("differs" in own for own in members.values())
    count = {"seeds": len(members)} if seeds_alone else {"runs": len(members), "tasks": len(envs)}
    common = {"run": folder, **count, "labels": sum(own["labels"] for own in members.values())}
    told = list(dict.fromkeys(note for own in of_each for note in own))
    notes = {"notes": told} if told else {}
    return {**common, "members": members, **notes, "config": _nested(first if seeds_alone else shared)}


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted name."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found.update(_flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return found


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name as tables."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        *sections, last = name.split(".")
        table = found
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = value
    return found


def lines(data: Mapping[str, Any], indent: str = "") -> list[str]:
    """Nested data as indented 'name: value' lines."""
    found = []
    for key, value in data.items():
        if isinstance(value, Mapping):
            found += [f"{indent}{key}:", *lines(value, indent + "  ")]
        elif isinstance(value, list):
            found.append(f"{indent}{key}: {', '.join(map(str, value))}")
        else:
            found.append(f"{indent}{key}: {value:.6g}" if isinstance(value, float) else f"{indent}{key}: {value}")
    return found


def evaluation_lines(scores: Mapping[str, float]) -> list[str]:
    """Scores as indented lines."""
    width = max(map(len, scores), default=0)
    return [f"  {name:{width}}  {value:.3g}" for name, value in scores.items()]
