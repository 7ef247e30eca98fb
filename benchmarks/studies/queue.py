"""The queue: what `queue.yaml` asks, which runs answer it, and the line that says how far each study is."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ubp2.config.files import leaves, not_yaml, overridden
from ubp2.config.presets import PAPER_TASKS, preset
from ubp2.config.schema import Config
from ubp2.errors import UserError, unknown_name

__all__ = ["NEEDS_CODE", "QUEUE", "STATUSES", "Cell", "Study", "find", "load", "mark", "unknown_settings"]

QUEUE = Path(__file__).with_name("queue.yaml")
NEEDS_CODE = "needs code"
STATUSES = ("open", "running", "partial", "done", NEEDS_CODE)
_STUDY = {"name", "question", "changes", "preset", "envs", "base", "variants", "cells", "seeds", "decisions"}
_STUDY |= {"evaluation", "status", "record"}
_OWN = {"steps", "seed", "evaluation.every", "evaluation.episodes"}  # fields of the study, not settings of a cell
_KEYS = {"preset", "envs", "needs", "settings"}  # what a variant may say besides settings


@dataclass(frozen=True)
class Cell:
    """A method on a task, to be trained once for every seed of its study."""

    method: str
    env: str
    preset: str
    settings: Mapping[str, Any]
    needs: str | None = None
    """The code that does not exist yet; such a cell is listed and never run."""


@dataclass(frozen=True)
class Study:
    """A question, what its answer changes, and the cells that answer it."""

    name: str
    question: str
    changes: str
    cells: tuple[Cell, ...]
    """The cells that today's settings can express."""
    waiting: tuple[Cell, ...]
    """The cells that need code."""
    seeds: tuple[int, ...]
    decisions: int
    every: int
    episodes: int
    status: str

    def runs(self) -> Iterator[tuple[Cell, int]]:
        """Every cell with every seed."""
        return ((cell, seed) for cell in self.cells for seed in self.seeds)

    def config(self, cell: Cell, seed: int) -> Config:
        """The configuration of a run; a setting that this checkout does not have is an error that names the study."""
        about = {"steps": self.decisions, "evaluation.every": self.every, "evaluation.episodes": self.episodes}
        try:
            return overridden(preset(cell.preset, cell.env), {**about, "seed": seed, **cell.settings})
        except UserError as error:
            raise UserError(f"study {self.name}, {cell.method} on {cell.env}: {error}") from None


def load(path: Path = QUEUE) -> list[Study]:
    """Read the queue in its order of value."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the queue {path}: {error.strerror}; it lies in benchmarks/studies/") from None
    except yaml.YAMLError as error:
        raise not_yaml(path, error) from None
    if not isinstance(data, Mapping) or not isinstance(data.get("studies"), list):
        raise UserError(f"{path} must have a list 'studies'")
    found = [_study(entry, data.get("defaults") or {}, path) for entry in data["studies"]]
    names = [study.name for study in found]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{path} has two studies called {name}; rename one")
    return found


def find(studies: list[Study], names: Collection[str]) -> list[Study]:
    """The studies of these names, in the order of the queue."""
    known = {study.name: study for study in studies}
    for name in names:
        if name not in known:
            raise unknown_name("study", name, known)
    return [study for study in studies if study.name in names]


def unknown_settings(study: Study) -> list[str]:
    """Settings of a study that this checkout does not have."""
    known = {name for name, _ in leaves(Config())} | {"teacher"}
    return sorted({name for cell in study.cells for name in cell.settings if name not in known})


def mark(path: Path, name: str, status: str, record: Mapping[str, Any]) -> None:
    """Write status and record of a study into the file; every other line stays as it is."""
    lines = path.read_text(encoding="utf-8").splitlines()
    begins = [i for i, line in enumerate(lines) if line.startswith("  - name:")]
    start = next((i for i in begins if lines[i].partition(":")[2].strip() == name), None)
    if start is None:
        raise UserError(f"{path} has no line '  - name: {name}'; add the study, or collect with another --queue")
    end = next((i for i in begins if i > start), len(lines))
    kept = [line for line in lines[start + 1 : end] if not line.startswith(("    status:", "    record:"))]
    while kept and not kept[-1].strip():
        kept.pop()
    own = [f"    status: {status}", f"    record: {json.dumps(dict(record))}"]  # JSON is YAML on one line
    after = ["", *lines[end:]] if end < len(lines) else []
    temporary = path.with_suffix(".tmp")
    temporary.write_text("\n".join([*lines[: start + 1], *kept, *own, *after]) + "\n", encoding="utf-8")
    load(temporary)  # a queue that cannot be read must not take the place of one that can
    temporary.replace(path)


def _study(entry: Any, defaults: Mapping[str, Any], path: Path) -> Study:
    entry = {**defaults, **entry} if isinstance(entry, Mapping) else {}
    name = entry.get("name")
    if not isinstance(name, str) or not name.replace("-", "").isalnum():
        raise UserError(f"{path}: every study needs a name of letters, digits and '-', got {name!r}")
    where = f"{path}, study {name}"
    for key in entry:
        if key not in _STUDY:
            raise UserError(f"{where}: {unknown_name('key', key, _STUDY)}")
    missing = {"question", "changes", "preset", "seeds", "decisions", "evaluation", "status"} - set(entry)
    if missing:
        raise UserError(f"{where} lacks {', '.join(sorted(missing))}")
    if entry["status"] not in STATUSES:
        raise UserError(f"{where}: {unknown_name('status', str(entry['status']), STATUSES)}")
    cells = [*_variants(entry, where), *_listed(entry, where)]
    pairs = [(cell.method, cell.env) for cell in cells]
    for method, env in pairs:
        if pairs.count((method, env)) > 1:
            raise UserError(f"{where} has {method} on {env} twice; rename one")
    if not cells:
        raise UserError(f"{where} has no cells; give it 'envs' with 'variants', or 'cells'")
    first, count = _seeds(entry["seeds"], where)
    evaluation = entry["evaluation"] if isinstance(entry["evaluation"], Mapping) else {}
    numbers = [entry["decisions"], evaluation.get("every"), evaluation.get("episodes")]
    if not all(isinstance(number, int) and number > 0 for number in numbers):
        raise UserError(f"{where}: decisions and evaluation (every, episodes) must be whole numbers above 0")
    return Study(
        name=name,
        question=entry["question"],
        changes=entry["changes"],
        cells=tuple(cell for cell in cells if cell.needs is None),
        waiting=tuple(cell for cell in cells if cell.needs is not None),
        seeds=tuple(range(first, first + count)),
        decisions=entry["decisions"],
        every=evaluation["every"],
        episodes=evaluation["episodes"],
        status=entry["status"],
    )


def _variants(entry: Mapping[str, Any], where: str) -> Iterator[Cell]:
    """Each of a list of tasks with each of a table of variants."""
    for label, variant in (entry.get("variants") or {}).items():
        variant = dict(variant or {})
        extra = {key: variant.pop(key) for key in _KEYS & set(variant)}
        settings = {**(entry.get("base") or {}), **variant, **(extra.get("settings") or {})}
        for env in _envs(extra.get("envs", entry.get("envs")), where):
            yield _cell(str(label), env, extra.get("preset", entry["preset"]), settings, extra.get("needs"), where)


def _listed(entry: Mapping[str, Any], where: str) -> Iterator[Cell]:
    for own in entry.get("cells") or []:
        if not isinstance(own, Mapping) or not {"label", "env"} <= set(own):
            raise UserError(f"{where}: every cell needs a label and an env, got {own!r}")
        settings = {**(entry.get("base") or {}), **(own.get("settings") or {})}
        (env,) = _envs([own["env"]], where)
        yield _cell(str(own["label"]), env, own.get("preset", entry["preset"]), settings, own.get("needs"), where)


def _cell(label: str, env: str, preset: str, settings: Mapping[str, Any], needs: str | None, where: str) -> Cell:
    taken = _OWN & set(settings)
    if taken:
        raise UserError(f"{where}, {label}: {', '.join(sorted(taken))} belongs to the study (decisions, evaluation)")
    return Cell(label, env, preset, settings, needs)


def _envs(envs: Any, where: str) -> list[str]:
    """Environment ids; the word `paper` stands for the paper's ten tasks, a name without a suite for Meta-World's."""
    if envs == "paper":
        return list(PAPER_TASKS)
    if not isinstance(envs, list) or not envs:
        raise UserError(f"{where}: envs must be a list of environments, or the word paper, got {envs!r}")
    return [env if "/" in env else f"metaworld/{env}" for env in envs]


def _seeds(seeds: Any, where: str) -> tuple[int, int]:
    """First seed and count; a number alone is the count."""
    table = seeds if isinstance(seeds, Mapping) else {"count": seeds}
    first, count = table.get("first", 0), table.get("count")
    if not isinstance(count, int) or count < 1 or not isinstance(first, int) or first < 0:
        raise UserError(f"{where}: seeds must be a count, or a table of first and count, got {seeds!r}")
    return first, count
