"""Programs of a plan: which groups of seeds, of whatever cells, train together in one process.

    OUT/programs/3.json    {"groups": {"../door-close/ubp2/seeds-0-4": {"config": ..., "seeds": [0, 1, 2, 3, 4]}, ...}}

Groups whose configurations may share a program are packed together, as many runs as fit. Run folders stay in their
cells. Groups that began together go on together, for the file remembers them; those without a file go on alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ubp2.config.files import load_yaml
from ubp2.config.schema import Config
from ubp2.envs.base import EnvSpec
from ubp2.errors import UserError
from ubp2.experiments.cells import CONFIG, Cell, Group, groups
from ubp2.storage.runs import write_json

__all__ = ["FOLDER", "Program", "ended", "folders", "pack", "plain", "read", "write", "write_ended", "write_file"]

FOLDER = "programs"
_FILE = re.compile(r"(\d+)\.json")


@dataclass(frozen=True)
class Program:
    """Groups that train together in one process."""

    groups: tuple[Group, ...]
    number: int = 0
    out: Path | None = None  # the folder of its plan; None: of no plan, as a trial of `ubp2 tune`

    @property
    def runs(self) -> int:
        """How many runs it trains."""
        return sum(group.seeds for group in self.groups)

    @property
    def finished(self) -> bool:
        """Whether every group is."""
        return all(group.finished for group in self.groups)

    @property
    def file(self) -> Path:
        """The file that lists its groups."""
        return _folder(self.out or Path()) / f"{self.number}.json"

    def only(self, wanted: Callable[[Group], bool]) -> Program:
        """The program with these groups alone."""
        return replace(self, groups=tuple(filter(wanted, self.groups)))


def pack(
    cells: Sequence[Cell],
    specs: Mapping[str, EnvSpec],
    out: Path,
    most: Callable[[Cell], int],
    *,
    fixed: bool = False,
) -> list[Program]:
    """The programs of these cells, in the order of the cells.

    specs: of each task. most: runs in a program with such a cell. fixed: the files have the last word also on groups
    that have not begun, for whoever looks at a plan that somebody else made.
    """
    files = _files(out)
    home = {folder: number for number in sorted(files) for folder in files[number]}
    found: list[Group] = []
    for cell in cells:
        known = [name for name in _by_age(files) if name.parent == plain(cell.folder)] if fixed else []
        found += groups(cell, most(cell), [name.name for name in known])
    bound = {i: home.get(plain(group.folder), -1 - i) for i, group in enumerate(found) if fixed or _begun(group)}
    together: dict[int, list[int]] = {}
    for i, number in bound.items():
        together.setdefault(number, []).append(i)
    packs = [*together.values(), *_packed(found, [i for i in range(len(found)) if i not in bound], specs, most)]
    free = max(files, default=-1) + 1
    programs: list[Program] = []
    for members in sorted(packs):
        chosen = tuple(found[i] for i in members)
        names = {plain(group.folder) for group in chosen}
        number = next((number for number in sorted(files, reverse=True) if set(files[number]) == names), None)
        if number is None:
            number, free = free, free + 1
        programs.append(Program(chosen, number, out))
    return programs


def _packed(
    found: Sequence[Group], new: Sequence[int], specs: Mapping[str, EnvSpec], most: Callable[[Cell], int]
) -> list[list[int]]:
    """New groups by program: the first of their kind that has room."""
    if sum(most(found[i].cell) > found[i].seeds for i in new) < 2:
        return [[i] for i in new]
    from ubp2.training.member_axis import group as shared  # imports jax, for those who pack something

    packs: list[list[int]] = []
    for alike in shared([found[i].cell.config for i in new], [specs[found[i].cell.task] for i in new]):
        own: list[list[int]] = []
        for i in (new[k] for k in alike):
            room = (
                each
                for each in own
                if sum(found[j].seeds for j in (*each, i)) <= min(most(found[j].cell) for j in (*each, i))
            )
            place = next(room, None)
            if place is None:
                own.append([i])
            else:
                place.append(i)
        packs += own
    return packs


def write(programs: Sequence[Program]) -> None:
    """Write down who trains with whom, as far as no file says it yet."""
    for program in programs:
        names = {plain(group.folder) for group in program.groups}
        if program.out is not None and set(_files(program.out).get(program.number, ())) != names:
            write_file(program, program.file)


def write_file(program: Program, file: Path) -> None:
    """Write down the groups of a program, by paths seen from the folder of the file."""
    file.parent.mkdir(parents=True, exist_ok=True)

    def seen(path: Path) -> str:
        return Path(os.path.relpath(path, file.parent)).as_posix()

    content = {
        seen(group.folder): {
            "config": seen(group.cell.folder / CONFIG),
            "seeds": list(range(group.first, group.first + group.seeds)),
        }
        for group in program.groups
    }
    write_json(file, {"groups": content})


def read(file: Path) -> dict[Path, list[Config]]:
    """The configurations of the runs of a program by the folder of their group, for `ubp2.api.train_folders`."""
    found: dict[Path, list[Config]] = {}
    for folder, own in _content(file).items():
        try:
            config, seeds = load_yaml(_seen(file, own["config"])), [int(seed) for seed in own["seeds"]]
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(file, error) from None
        found[_seen(file, folder)] = [replace(config, seed=seed) for seed in seeds]
    if not found:
        raise _damaged(file, "it has no groups")
    return found


def write_ended(file: Path, results: Mapping[Path, Mapping[str, Any]]) -> None:
    """Leave word of how each run ended, for whoever started the process."""
    write_json(_ended(file), {str(folder): dict(own) for folder, own in results.items()})


def ended(file: Path, *, forget: bool = False) -> dict[Path, dict[str, Any]]:
    """How each run of a program ended: finished and error; empty without such word. forget: before a new attempt."""
    if forget:
        _ended(file).unlink(missing_ok=True)
        return {}
    try:
        content = json.loads(_ended(file).read_text(encoding="utf-8"))
        return {plain(Path(folder)): dict(own) for folder, own in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _ended(file: Path) -> Path:
    return file.with_name(f"{file.stem}.ended")


def _folder(out: Path) -> Path:
    return out / FOLDER


def _files(out: Path) -> dict[int, list[Path]]:
    """The group folders of every program that was ever planned, by its number; a damaged file remembers nothing."""
    found = {}
    for file in _folder(out).glob("*.json"):
        match = _FILE.fullmatch(file.name)
        if match:
            try:
                found[int(match[1])] = folders(file)
            except UserError:
                found[int(match[1])] = []
    return found


def folders(file: Path) -> list[Path]:
    """The group folders that a file names."""
    return [_seen(file, folder) for folder in _content(file)]


def _by_age(files: Mapping[int, Collection[Path]]) -> list[Path]:
    """All group folders, the latest plan's first."""
    return [folder for number in sorted(files, reverse=True) for folder in files[number]]


def _content(file: Path) -> dict[str, dict[str, Any]]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8"))["groups"])
    except OSError as error:
        raise UserError(f"cannot read the program {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(file, error) from None


def _damaged(file: Path, error: object) -> UserError:
    return UserError(
        f"{file} is damaged ({error!s}); remove it, and the command that wrote it makes it anew: ubp2 sweep resume, "
        f"or the same ubp2 reproduce"
    )


def _seen(file: Path, path: str) -> Path:
    return plain(file.parent / path)


def plain(path: Path) -> Path:
    """A path without detours, absolute, so that two ways to write it are one."""
    return Path(os.path.abspath(path))


def _begun(group: Group) -> bool:
    return group.folder.exists()
