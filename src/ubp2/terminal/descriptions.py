"""What `ubp2 info` tells: of an installation, of a run, of several seeds that trained together."""

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

__all__ = ["folder", "installation", "lines"]


def installation() -> dict[str, Any]:
    """Versions and folders, for a bug report."""
    from ubp2.envs.gl import choose_backend

    choose_backend()
    rendering = os.environ.get("MUJOCO_GL", "the default of this platform")
    return {"versions": versions(), "cache": cache_folder(), "rendering": rendering}


def folder(path: Path) -> dict[str, Any]:
    """What is in a run folder, or in the folder of several seeds."""
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
    """What is common, then each member."""
    members = {path.name: _run(path) for path in population.members(folder)}
    configs = [own.pop("config") for own in members.values()]
    told = next(iter([own.pop("notes", []) for own in members.values()]), [])
    common = {"run": folder, "seeds": len(members), "labels": sum(own["labels"] for own in members.values())}
    return {**common, "members": members, **({"notes": told} if told else {}), "config": configs[0]}


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
