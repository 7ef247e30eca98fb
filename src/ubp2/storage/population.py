"""A folder of runs that train together, and ``population.json``, which says which they are.

Each member is an ordinary run folder, with which every command works alone. Seeds of one configuration are in
``s<seed>/``; runs that differ in more lie where their names say, such as ``door-close/best/s0/``. The file lists the
runs of each program. Programs are trained one after the other.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.storage.database import POPULATION, disk_errors
from ubp2.storage.runs import HALF_MADE, Run, default_folder, occupied, write_json

__all__ = ["create", "is_population", "members", "open_members", "programs", "run_folders"]

_PARTS = re.compile(r"[\w.+=,-]+")


def is_population(folder: Path | str) -> bool:
    """Whether several runs were trained together in this folder."""
    return (Path(folder) / POPULATION).is_file()


def members(folder: Path | str) -> list[Path]:
    """The run folders of a population, in order; of a single run, the folder itself."""
    return [member for program in programs(folder) for member in program]


def programs(folder: Path | str) -> list[list[Path]]:
    """The run folders of each program of a population."""
    folder = Path(folder)
    if not is_population(folder):
        return [[folder]]
    try:
        content = json.loads((folder / POPULATION).read_text(encoding="utf-8"))
        if "seeds" in content:  # as versions up to 0.2 wrote it
            return [[folder / f"s{int(seed)}" for seed in content["seeds"]]]
        return [[folder / _name(member) for member in program] for program in content["programs"]]
    except (ValueError, KeyError, TypeError, UserError) as error:
        raise UserError(
            f"{folder / POPULATION} is damaged ({error}); write {{'programs': [[...]]}} with the run folders in it"
        ) from None


def run_folders(folders: Sequence[Path]) -> list[Path]:
    """Every run folder among these folders, populations taken apart."""
    return [member for folder in folders for member in members(folder)]


def _name(member: str) -> str:
    """The name of a member, checked: a folder below that of the population."""
    parts = PurePosixPath(member).parts
    if not parts or not all(_PARTS.fullmatch(part) and part.strip(".") for part in parts):
        raise UserError(
            f"a run of several is named by folders of letters, digits and . + = , - _, got {member!r}; rename it"
        )
    return "/".join(parts)


def create(
    stack: ExitStack,
    folder: Path | None,
    configs: Mapping[str, Config],
    groups: Sequence[Sequence[int]] | None = None,
    device: str = "unknown",
    *,
    custom: Collection[str] = (),
) -> list[Run]:
    """Make the run folders of these configurations below `folder`; `stack` holds their locks.

    configs: by name below the folder; the only one may be called "", and is then the folder itself.
    groups: which of them, by number, make a program; None: all of them.

    population.json comes last: without it, what a killed creation left is made anew.
    """
    if list(configs) == [""]:
        return [stack.enter_context(Run.create(folder, configs[""], device, custom=custom))]
    names = [_name(name) for name in configs]
    for name in names:
        above = [str(each) for each in PurePosixPath(name).parents][:-1]
        if names.count(name) > 1 or set(above) & set(names):
            raise UserError(f"two runs would have the folder {name}, or one inside the other's; name them apart")
    folder = default_folder(next(iter(configs.values())), seed=False) if folder is None else Path(folder)
    with disk_errors(folder, None):
        if folder.exists() and (not folder.is_dir() or not _half_made(folder, names)):
            raise occupied(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            if (folder / name / "config.yaml").exists():
                with Run.open(folder / name, write=True):  # refused where another process is making them right now
                    (folder / name / "config.yaml").unlink()
    runs = [
        stack.enter_context(Run.create(folder / name, config, device, custom=custom))
        for name, config in zip(names, configs.values(), strict=True)
    ]
    groups = [list(range(len(runs)))] if groups is None else groups
    with disk_errors(folder, None):
        write_json(folder / POPULATION, {"programs": [[names[i] for i in group] for group in groups]})
    return runs


def open_members(
    stack: ExitStack,
    folder: Path | str,
    device: str = "unknown",
    together: Callable[[Config, Config], Collection[str]] | None = None,
) -> list[Run]:
    """Open a run, or every member of a population, as the only writer; `stack` holds the locks.

    together: names of the settings that keep two runs out of one program, which is refused.
    """
    for program in programs(folder):
        first, *others = (Run.open(path) for path in program)  # what is refused leaves nothing written
        for run in others:
            if together is not None and (names := together(first.config, run.config)):
                raise UserError(
                    f"{run.folder} has another configuration than {first.folder} ({', '.join(names)}), so they cannot "
                    f"go on together; go on with each alone, such as: "
                    f"ubp2 train --resume {shlex.quote(str(run.folder))}"
                )
    return [stack.enter_context(Run.open(path, write=True, device=device)) for path in members(folder)]


def _half_made(folder: Path, names: Collection[str]) -> bool:
    """Whether the folder holds nothing but members that a killed creation left, in which nothing has happened."""
    if (folder / POPULATION).exists():
        return False
    wanted = {folder / name for name in names}
    above = {parent for path in wanted for parent in path.parents}
    known = HALF_MADE | {"config.yaml"}
    for path in folder.rglob("*"):
        inside = next((member for member in wanted if member in path.parents), None)
        if path in wanted or path in above or path.name == f"{POPULATION}.tmp":
            continue
        if inside is None or path.parent != inside or path.name not in known or (path.is_dir() and any(path.iterdir())):
            return False
    return True
