"""Where the numbers of a report come from: commands, versions, machines and protocol, as the run folders tell them."""

from __future__ import annotations

import json
import math
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ubp2.config.presets import PAPER_TASKS
from ubp2.evaluation.grids import GAP, Cell, Grid, Row
from ubp2.evaluation.measures import count
from ubp2.evaluation.protocol import SETTINGS
from ubp2.evaluation.results import Results, Series
from ubp2.evaluation.scores import Scores, counted, titles
from ubp2.evaluation.tables import Published

__all__ = ["Clip", "clips", "machines", "protocols", "run_commands", "shortfalls"]

PAPER_DECISIONS = 1_000_000
_USUAL = {"true": "on", "false": "off", "none": "as usual"}
CLIP_BYTES, CLIPS_BYTES = 3_000_000, 30_000_000  # of one clip, and of all: the page must open on a phone


class Clip(NamedTuple):
    """The final behaviour of one seed of a method on a task."""

    task: str
    method: str
    seed: int
    path: Path


def infos(results: Results) -> list[Mapping[str, Any]]:
    """What info.json says of each run that can be read; a missing or damaged one tells nothing."""
    found = []
    for one in results.series:
        if one.folder is not None:
            try:
                info = json.loads((one.folder / "info.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            found += [{**info, "method": one.method}] if isinstance(info, dict) else []
    return found


def run_commands(results: Results) -> list[str]:
    """Every command that made a run, once, as one would type it."""
    lines: dict[str, None] = {}
    for info in infos(results):
        for part in (info, *info.get("resumed", ())):
            words = shlex.split(str(part.get("command", "")))
            if words:
                lines[shlex.join(["ubp2" if "ubp2" in Path(words[0]).parts[-2:] else words[0], *words[1:]])] = None
    return list(lines)


def machines(results: Results) -> Grid | None:
    """Device, source and versions, a row for each kind of run; None: no run folder tells."""
    groups: dict[tuple[str, str, str], int] = defaultdict(int)
    for info in infos(results):
        source = info.get("source") or {}
        commit = str(source.get("commit", "installed"))[:10] + (", changed" if source.get("dirty") else "")
        versions = ", ".join(f"{name} {version}" for name, version in (info.get("versions") or {}).items())
        groups[str(info.get("device", "unknown")), commit, versions] += 1
    if not groups:
        return None
    rows = tuple(
        Row(device, (Cell(str(runs)), Cell(commit), Cell(versions)))
        for (device, commit, versions), runs in groups.items()
    )
    return Grid("Hardware and versions of the runs", "Device", ("Runs", "Source", "Versions"), rows)


def protocols(results: Results) -> Grid | None:
    """The protocol, a row for each setting that says something; None: nothing is known."""
    tasks, names = results.tasks(), titles(results.tasks())

    def values(name: str, task: str) -> str:
        own = [one.protocol[name] for one in results.series if one.task == task and name in one.protocol]
        told = list(dict.fromkeys(_USUAL.get(str(value).lower(), str(value)) for value in own))
        return "" if told in (["off"], ["as usual"]) else " or ".join(told)

    rows = []
    for name in ("metric", *SETTINGS):
        told = [values(name, task) for task in tasks]
        if any(told):
            rows.append(Row(name, tuple(Cell(text or GAP) for text in told)))
    unknown = sorted({one.method for one in results.series if not set(one.protocol) - {"metric"}})
    notes = (f"Imported without its protocol, so that nothing could be compared: {'; '.join(unknown)}.",)
    columns = tuple(names[task] for task in tasks)
    return Grid("Protocol", "Setting", columns, tuple(rows), notes if unknown else ()) if rows else None


def shortfalls(scores: Scores, results: Results, published: Mapping[str, Mapping[str, Published]] | None) -> list[str]:
    """Sentences that say where ours is smaller than what stands beside it from the paper."""
    compared = {task for own in (published or {}).values() for task in own} & set(scores.tasks) & set(PAPER_TASKS)
    here = [task for task in scores.tasks if task in compared]
    names, told = titles(scores.tasks), []

    def listed(found: Mapping[str, str]) -> str:
        alike: dict[str, list[str]] = defaultdict(list)
        for task, text in found.items():
            alike[text].append(names[task])
        return "; ".join(
            f"{text} on {', '.join(where) if len(where) < len(scores.tasks) or len(where) == 1 else 'all tasks'}"
            for text, where in alike.items()
        )

    ends = {task: max((e.decisions for (t, _), e in scores.entries.items() if t == task), default=0) for task in here}
    early = {task: f"to {count(end)}" for task, end in ends.items() if end < PAPER_DECISIONS}
    if early:
        told.append(
            f"The paper's numbers are averages over {count(PAPER_DECISIONS)} decisions; ours go {listed(early)}. They "
            f"show the beginning of such runs and cannot confirm or refute the paper's."
        )
    labels = {task: _fewest_labels(results, task) for task in here}
    fewer = {t: f"{count(n)} of {count(PAPER_TASKS[t].budget)}" for t, n in labels.items() if n < PAPER_TASKS[t].budget}
    if fewer:
        told.append(f"Fewer labels than in the paper's main results: {listed(fewer)}.")
    seeds = {task: min((e.seeds for (t, _), e in scores.entries.items() if t == task), default=0) for task in here}
    less = {t: f"{n} of {PAPER_TASKS[t].seeds}" for t, n in seeds.items() if n < PAPER_TASKS[t].seeds}
    if less:
        told.append(f"Fewer seeds than in the paper's main results: {listed(less)}.")
    return told


def _fewest_labels(results: Results, task: str) -> float:
    """The fewest labels that a run which counts has used: a budget may be more. Where nobody knows, its budget."""
    asking = [
        one for method in results.methods() for one in counted(results, task, method) if not one.protocol.get("ceiling")
    ]
    used = [one.protocol.get("preferences.budget") if np.isnan(one.labels[-1]) else one.labels[-1] for one in asking]
    return min((float(value) for value in used if value is not None), default=math.inf)


def clips(results: Results) -> tuple[list[Clip], list[str]]:
    """One clip a method and task, of the seed in the middle by its last score; and sentences on those left out.

    Of an even number of seeds, the worse of the two in the middle.
    """
    found, left, total = [], [], 0
    for task in results.tasks():
        for method in results.methods():
            filmed = [(one, path) for one in results.of(task, method) if (path := _newest(one))]
            if not filmed:
                continue
            one, path = sorted(filmed, key=lambda pair: pair[0].score[-1])[(len(filmed) - 1) // 2]
            size = path.stat().st_size
            if size > CLIP_BYTES or total + size > CLIPS_BYTES:
                left.append(f"the clip {path} is too large for the page ({size / 1e6:.1f} MB)")
                continue
            total += size
            found.append(Clip(task, method, one.seed, path))
    return found, left


def _newest(series: Series) -> Path | None:
    """The clip of the last evaluation; one that was made afterwards on purpose goes before."""
    if series.folder is None:
        return None
    own: Sequence[Path] = [path for path in (series.folder / "clip.mp4",) if path.is_file()]
    own = own or sorted((series.folder / "videos").glob("*.mp4"))
    return own[-1] if own else None
