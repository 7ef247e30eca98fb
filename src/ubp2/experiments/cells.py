"""The cells of an experiment: a method on a task, with its configuration, its seeds and where they stand.

    OUT/door-close/ubp2/cell.yaml      the configuration, which stays what it is
    OUT/door-close/ubp2/seeds-0-4/     run folders of its seeds; more seeds later get a folder beside it

A cell is described by its configuration alone: what was trained under another one is refused, and never mixed in.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ubp2.config.files import differences, load_yaml, overridden, save_yaml
from ubp2.config.presets import PAPER_TASKS, preset
from ubp2.config.resolving import is_model_free, resolve
from ubp2.config.schedule import labels_that_fit
from ubp2.config.schema import Config, given
from ubp2.config.switching import check_asked
from ubp2.errors import UserError, unknown_name
from ubp2.experiments.catalogue import Acting, Experiment, Method
from ubp2.experiments.options import flat
from ubp2.storage import population
from ubp2.storage.runs import read_metrics

__all__ = [
    "CONFIG",
    "PRESETS",
    "Cell",
    "Group",
    "cells",
    "check_config",
    "folder_of",
    "groups",
    "short",
    "write_config",
]

CONFIG = "cell.yaml"
_GROUP = re.compile(r"seeds-(\d+)(?:-(\d+))?")

# Agents without a model have a preset of their own, with what was published. In shorter runs they ask as often as the
# others, of ten candidates a question as published, and have more epochs a fit and a faster temperature, on a CPU also
# smaller networks: as measured in docs/agents, where they ask 25 every 1000 decisions.
_OFTEN = {
    "preferences.every": 500,
    "preferences.per_session": 20,
    "preferences.candidates": 200,
    "sac.epochs": 50,
    "sac.alpha_learning_rate": 3e-4,
}
_SMALL = {"model.width": 128, "model.depth": 2, "training.batch_size": 128}
_MODEL_FREE: Mapping[str, Mapping[str, Any]] = {
    "paper": {},
    "best": {**_OFTEN, "preferences.first": 2500},
    "cpu": {**_OFTEN, "preferences.first": 1000, **_SMALL},
    "demo": {**_OFTEN, "preferences.first": 1000, "preferences.every": 250, **_SMALL},
}
PRESETS = tuple(_MODEL_FREE)
# Evaluation is a third of a run on a GPU otherwise. With another number of workers plans draw other random numbers: the
# scores of a planner are as good, and not the same.
_WORKERS = {"paper": 2, "best": 2}
_EVALUATIONS = 5  # at least so many in a short run: scores are averaged over time


@dataclass(frozen=True)
class Cell:
    """A method on a task: what it trains, and how many seeds of it are wanted."""

    task: str
    method: str
    config: Config
    seeds: int
    folder: Path
    controller: Acting = "acting"  # whose success counts, and who is filmed


@dataclass(frozen=True)
class Group:
    """Seeds of a cell that lie in one folder, and how many decisions all of them have evaluated.

    They train together, with or without groups of other cells (`programs.Program`).
    """

    cell: Cell
    first: int
    seeds: int
    decision: int = 0

    @property
    def folder(self) -> Path:
        """Where their run folders are; a single seed is a run folder itself."""
        last = "" if self.seeds == 1 else f"-{self.first + self.seeds - 1}"
        return self.cell.folder / f"seeds-{self.first}{last}"

    @property
    def finished(self) -> bool:
        """Whether every seed was evaluated at the end of its run."""
        return self.decision >= self.cell.config.steps


def short(task: str) -> str:
    """A task's name in folders and tables: the suite stands before it where it is not Meta-World."""
    return task.removeprefix("metaworld/").replace("/", "-")


def cells(
    experiment: Experiment,
    tasks: tuple[str, ...],
    methods: tuple[Method, ...],
    *,
    preset: str,
    steps: int | None,
    seeds: int | None,
    settings: Mapping[str, Any],
    episode_decisions: Mapping[str, int],
    out: Path,
) -> list[Cell]:
    """Every method on every task; mistakes in settings are told before anything runs."""
    if preset not in PRESETS:
        raise unknown_name("preset of a sweep", preset, PRESETS)
    if seeds is not None and seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    found = []
    for task in tasks:
        name = "best" if preset == "paper" and task not in PAPER_TASKS else preset
        base = _base(task, name, steps, settings, episode_decisions[task], experiment.budget)
        for method in methods:
            config = _config(method, base, name, settings, episode_decisions[task])
            wanted = experiment.seeds_of(task) if seeds is None else seeds
            folder = out / short(task) / method.name
            found.append(Cell(task, method.name, config, wanted, folder, experiment.controller))
    return found


def _base(
    task: str, name: str, steps: int | None, settings: Mapping[str, Any], episode_decisions: int, most: int | None
) -> Config:
    """What all methods share on a task: decisions, label budget, evaluations, and the user's settings.

    The budget is the paper's as far as its labels come in time to matter: in the first two thirds of the run.
    """
    config = overridden(preset(name, task), settings)
    steps = config.steps if steps is None else steps
    fits = labels_that_fit(config.preferences, steps * 2 // 3, episode_decisions)
    most = PAPER_TASKS[task].budget if task in PAPER_TASKS else config.preferences.budget if most is None else most
    every = min(config.evaluation.every, max(steps // _EVALUATIONS, 1))
    budget = fits if most is None else min(most, fits)
    saved = min(config.checkpoint.every, max(steps // _EVALUATIONS, 1))  # a kill costs a short run a fifth at most
    shared = {"steps": steps, "preferences.budget": budget, "evaluation.every": every, "checkpoint.every": saved}
    if name in _WORKERS and "evaluation.workers" not in settings:
        shared["evaluation.workers"] = _WORKERS[name]
    return overridden(config, shared)


def _config(method: Method, base: Config, name: str, settings: Mapping[str, Any], episode_decisions: int) -> Config:
    """The method's configuration: its preset, what the cells of a task share, its own settings, the user's."""
    config = base
    if is_model_free(method.settings.get("agent", "")):
        config = overridden(preset("pebble", base.env), _MODEL_FREE[name])
        shared = {
            "steps": base.steps,
            "preferences.budget": base.preferences.budget,
            "evaluation.every": base.evaluation.every,
            "evaluation.episodes": base.evaluation.episodes,
            "evaluation.workers": base.evaluation.workers,
            "checkpoint.every": base.checkpoint.every,
        }
        config = overridden(config, shared)
    budget = max(round(given(base.preferences.budget) * method.budget), 1)
    config = overridden(config, {"preferences.budget": budget, **method.settings, **settings})
    asked = {name for own in (method.settings, settings) for one in own.items() for name, _ in flat(*one)}
    try:
        check_asked(config, asked)
        return resolve(config, episode_decisions)
    except UserError as error:
        raise UserError(f"{method.name} on {base.env}: {error}") from None


def groups(cell: Cell, together: int | None = None, planned: Sequence[str] = ()) -> list[Group]:
    """The seeds of a cell by folder, in their order: those that are there, and new ones, at most `together` in each.

    The order does not depend on which of them began first: a task of a cluster knows its group by its number.
    planned: names of folders that do not exist yet and have been settled, those that count most first.
    """
    check_config(cell)
    there = _existing(cell)
    for name in planned:
        group = _read_name(cell, name)
        if group is not None and not any(_overlap(group, other) for other in there):
            there.append(group)
    taken = {seed for group in there for seed in range(group.first, group.first + group.seeds)}
    missing = [seed for seed in range(cell.seeds) if seed not in taken]
    new: list[Group] = []
    for seed in missing:
        last = new[-1] if new else None
        if last and seed == last.first + last.seeds and last.seeds < (together or cell.seeds):
            new[-1] = Group(cell, last.first, last.seeds + 1)
        else:
            new.append(Group(cell, seed, 1))
    return sorted([*there, *new], key=lambda group: group.first)


def check_config(cell: Cell) -> None:
    """Refuse a cell whose folder was begun under another configuration (`write_config` remembers it)."""
    path = cell.folder / CONFIG
    if not path.exists():
        return
    # What is learned does not depend on checkpoints, and cells of before had fewer.
    changed = differences(replace(load_yaml(path, own_names=True), checkpoint=cell.config.checkpoint), cell.config)
    if changed:
        raise UserError(
            f"{cell.folder} holds {cell.method} on {cell.task} under other settings: {'; '.join(changed)}; "
            f"choose another folder with --out, or ask for the same settings"
        )


def _existing(cell: Cell) -> list[Group]:
    """Groups whose folders are there, as far as they belong to the wanted seeds."""
    found = []
    for folder in sorted(cell.folder.glob("seeds-*")) if cell.folder.exists() else []:
        group = _read_name(cell, folder.name)
        if group is not None and folder.is_dir():
            found.append(replace(group, decision=_evaluated(folder, group.seeds)))
    return found


def _read_name(cell: Cell, name: str) -> Group | None:
    """The group whose folder has this name, as far as it belongs to the wanted seeds."""
    match = _GROUP.fullmatch(name)
    first = int(match[1]) if match else cell.seeds
    return Group(cell, first, int(match[2] or first) - first + 1) if match and first < cell.seeds else None


def _overlap(one: Group, other: Group) -> bool:
    return one.first < other.first + other.seeds and other.first < one.first + one.seeds


def _evaluated(folder: Path, seeds: int) -> int:
    """The last decision at which every seed in the folder was evaluated; 0 where nothing can be read."""
    try:
        members = population.members(folder)
        if len(members) != seeds:
            return 0
        return min(
            max((row["decision"] for row in read_metrics(member) if row.get("kind") == "eval"), default=0)
            for member in members
        )
    except (UserError, OSError):
        return 0


def folder_of(experiment: Experiment, preset: str, steps: int, settings: Mapping[str, Any]) -> Path:
    """Where an experiment goes unless told: one folder for each preset and number of decisions."""
    return Path("runs") / f"{experiment.name}-{preset}-{steps}{'-changed' if settings else ''}"


def write_config(cell: Cell) -> Path:
    """Put the configuration of a cell where `ubp2 train --config` finds it."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    path = cell.folder / CONFIG
    if not path.exists():
        partial = path.with_name(f"{CONFIG}.{uuid.uuid4().hex}.tmp")  # other seeds of the cell may begin just now
        save_yaml(cell.config, partial)
        partial.replace(path)
    return path
