"""A population folder: the run folders of several seeds that train together, and ``population.json``, which says so.

Each member ``s<seed>/`` is an ordinary run folder, with which every command works alone.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path

from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.storage.database import POPULATION, disk_errors
from ubp2.storage.runs import HALF_MADE, Run, default_folder, occupied, write_json

__all__ = ["create", "is_population", "members", "open_members", "run_folders"]

_MEMBER = re.compile(r"s\d+")


def is_population(folder: Path | str) -> bool:
    """Whether several seeds were trained together in this folder."""
    return (Path(folder) / POPULATION).is_file()


def members(folder: Path | str) -> list[Path]:
    """The run folders of a population, in the order of its seeds; of a single run, the folder itself."""
    folder = Path(folder)
    if not is_population(folder):
        return [folder]
    try:
        seeds = json.loads((folder / POPULATION).read_text(encoding="utf-8"))["seeds"]
        return [folder / f"s{int(seed)}" for seed in seeds]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder / POPULATION} is damaged ({error}); write {{'seeds': [...]}} with its s* folders"
        ) from None


def run_folders(folders: Sequence[Path]) -> list[Path]:
    """Every run folder among these folders, populations taken apart."""
    return [member for folder in folders for member in members(folder)]


def create(
    stack: ExitStack,
    folder: Path | None,
    config: Config,
    seeds: int,
    device: str = "unknown",
    *,
    custom: Collection[str] = (),
) -> list[Run]:
    """Make the run folders of `seeds` seeds from `config.seed` on; `stack` holds their locks.

    One seed is a plain run folder. population.json comes last: without it, what a killed creation left is made anew.
    """
    if seeds == 1:
        return [stack.enter_context(Run.create(folder, config, device, custom=custom))]
    folder = default_folder(config, seed=False) if folder is None else Path(folder)
    with disk_errors(folder, None):
        if folder.exists() and (not folder.is_dir() or not all(_half_made(path) for path in folder.iterdir())):
            raise occupied(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("s*/config.yaml"):
            with Run.open(path.parent, write=True):  # refused where another process is making them right now
                path.unlink()
    runs = []
    for seed in range(config.seed, config.seed + seeds):
        own = dataclasses.replace(config, seed=seed)
        runs.append(stack.enter_context(Run.create(folder / f"s{seed}", own, device, custom=custom)))
    with disk_errors(folder, None):
        write_json(folder / POPULATION, {"seeds": [run.config.seed for run in runs]})
    return runs


def open_members(stack: ExitStack, folder: Path | str, device: str = "unknown") -> list[Run]:
    """Open a run, or every member of a population, as the only writer; `stack` holds the locks."""
    first, *others = (Run.open(path) for path in members(folder))  # what is refused leaves nothing written
    for run in others:
        if not _lags(run.config, dataclasses.replace(first.config, seed=run.config.seed)):
            raise UserError(
                f"{run.folder} has another configuration than {first.folder}, so they cannot go on together; "
                f"go on with each alone, such as: ubp2 train --resume {shlex.quote(str(run.folder))}"
            )
    return [stack.enter_context(Run.open(path, write=True, device=device)) for path in members(folder)]


def _lags(config: Config, first: Config) -> bool:
    """Whether a member is as the first, or was just not made longer with it yet: the first is, before the others."""
    from ubp2.config.files import extended

    training = dataclasses.replace(first.training, replay_capacity=config.training.replay_capacity)
    try:
        return extended(config, dataclasses.replace(first, training=training)) == first
    except UserError:
        return False


def _half_made(path: Path) -> bool:
    """Whether this is a member that a killed creation left: a run folder in which nothing has happened."""
    if path.name == f"{POPULATION}.tmp":
        return True
    known = HALF_MADE | {"config.yaml"}
    return bool(_MEMBER.fullmatch(path.name)) and all(
        inner.name in known and not (inner.is_dir() and any(inner.iterdir())) for inner in path.iterdir()
    )
