"""What a report is asked for: run folders and files in one list, with names where the user gives some."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from ubp2.errors import UserError
from ubp2.evaluation.imports import SUFFIXES, read_file
from ubp2.evaluation.protocol import check_vary
from ubp2.evaluation.results import Controller, Results, Series, checked, read_runs

__all__ = ["Source", "gather", "parse"]


class Source(NamedTuple):
    """A run folder, a folder of such, or a file; None: what it says itself."""

    path: Path
    method: str | None = None
    task: str | None = None

    @property
    def is_file(self) -> bool:
        """Whether it is a file of results, also one that is not there."""
        return self.path.is_file() or (not self.path.exists() and self.path.suffix.lower() in SUFFIXES)


def parse(text: str) -> Source:
    """Read PATH, METHOD=PATH or TASK:METHOD=PATH; a path that exists as it stands is a path."""
    if Path(text).exists() or "=" not in text:
        return Source(Path(text))
    name, _, path = text.rpartition("=")
    if not Path(path).exists():
        name, _, path = text.partition("=")
    task, colon, method = name.rpartition(":")
    if not method or not path or (colon and not task):
        raise UserError(f"expected PATH, METHOD=PATH or TASK:METHOD=PATH, got '{text}'")
    return Source(Path(path), method, task or None)


def _names(folders: Sequence[Source]) -> dict[Path, str]:
    """The names that are given to folders; one folder has one, or a run would count twice."""
    names: dict[Path, str] = {}
    for source in folders:
        if source.method and names.setdefault(source.path.resolve(), source.method) != source.method:
            raise UserError(
                f"{source.path} is named twice, {names[source.path.resolve()]} and {source.method}, and a run counts "
                f"once; leave one of the two out"
            )
    return names


def gather(sources: Sequence[Source], *, controller: Controller = "acting", vary: Collection[str] = ()) -> Results:
    """Read all sources into one; protocols are compared over all of them. A file that cannot be read is an error."""
    check_vary(vary)
    folders = [source for source in sources if not source.is_file]
    for source in folders:
        if source.task is not None:
            raise UserError(f"the runs in {source.path} know their task; name the method alone: METHOD={source.path}")
    names = _names(folders)
    runs = read_runs([source.path for source in folders], controller=controller, names=names, vary=vary)
    read: list[Series] = []
    for source in sources:
        if source.is_file:
            read += read_file(source.path, task=source.task, method=source.method, controller=controller)
    wanted = dict(runs.wanted)
    for one in read:
        wanted[one.task, one.method] = wanted.get((one.task, one.method), frozenset()) | {one.seed}
    return checked(Results((*runs.series, *read), runs.problems, wanted), vary)
