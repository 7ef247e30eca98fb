"""Labels out of runs into files and out of files into runs: `ubp2 labels export | import`, `ubp2 train --labels`."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.labelling import files
from ubp2.labelling.header import Header, describe, require_same
from ubp2.preference.imported import Label, newest, weighted
from ubp2.preference.store import LabelStore
from ubp2.storage import locks, population
from ubp2.storage.runs import Run

__all__ = [
    "Exported",
    "Gathered",
    "Imported",
    "begin_with",
    "check",
    "export",
    "gather",
    "import_files",
    "put",
    "require_store",
]


class Exported(NamedTuple):
    """What went into a file."""

    header: Header
    """What the labels are about; `header.counts` has how many of what kind they are."""
    damaged: int
    """Labels left out because their question does not match its checksum."""


class Imported(NamedTuple):
    """What came into one run."""

    run: Path
    added: int
    known: int  # were there already
    labels: int  # of other runs that this run has now, with weight


def require_store(folder: Path) -> Run:
    """The run in a folder, which must have labels: opening a store would make an empty one."""
    run = Run.open(folder)
    if not run.labels.is_file():
        raise UserError(f"{folder} has no labels.sqlite: the run has not asked anything yet")
    return run


def export(folder: Path, path: Path, *, anonymous: bool, overwrite: bool, intact: bool) -> Exported:
    """Write the current answers of a run, or of all runs of a population, into a file.

    Args:
        folder: The run folder, or that of several seeds.
        path: The file; its ending says how it is written (.jsonl, .jsonl.gz or .parquet).
        anonymous: Whether to replace the names of people and runs.
        overwrite: Whether a file that is there already is replaced; otherwise it is an error.
        intact: Whether to leave out what is damaged; otherwise it is an error.
    """
    files.check_name(path)
    runs = [require_store(member) for member in population.members(folder)]
    require_one_task(folder, runs)
    labels: list[Label] = []
    spec, damaged = None, []
    for run in runs:
        with LabelStore(run.labels) as store:
            labels += store.labels(_name(Path(folder), run), damaged.append if intact else None)
            spec = store.notes("environment").get("environment", spec)
    if not labels:
        raise UserError(f"there is nothing to export: nobody has answered a question of {folder}")
    if anonymous:
        labels = _without_names(labels)
    header = describe(runs[0].config, spec, labels, sorted({each.run for each in labels}), anonymous=anonymous)
    files.write(path, header, labels, overwrite=overwrite)
    return Exported(header, len(damaged))


def require_one_task(folder: Path, runs: Sequence[Run]) -> None:
    """Refuse a folder of runs on several tasks, whose labels say nothing about each other."""
    envs = dict.fromkeys(run.config.env for run in runs)
    if len(envs) > 1:
        raise UserError(
            f"{folder} holds runs of several environments ({', '.join(envs)}), and labels belong to one; name the run "
            f"folders one by one, such as {runs[0].folder}"
        )


def _name(folder: Path, run: Run) -> str:
    """A run as its labels name it: its folder, with those between it and the population's."""
    own, above = run.folder.resolve(), folder.resolve()
    return own.name if own == above else "-".join(own.relative_to(above).parts)


def _without_names(labels: Sequence[Label]) -> list[Label]:
    """Names of people and runs replaced by drawn ones, which cannot be guessed back as a hash of a name can."""
    names: dict[str, str] = {}

    def drawn(name: str, kind: str) -> str:
        return names.setdefault(f"{kind} {name}", f"{kind}-{secrets.token_hex(4)}")

    return [
        each._replace(annotator=drawn(each.annotator, "annotator"), run=drawn(each.run, "run"), reason=None)
        for each in labels
    ]


class Gathered(NamedTuple):
    """Labels of files, and what each file says of itself."""

    headers: list[tuple[Path, Header]]
    labels: list[Label]


def check(paths: Sequence[Path | str], config: Config, spec: Mapping[str, Any] | None = None) -> None:
    """Refuse files that do not fit this configuration by their headers, before all of them is read."""
    for path in map(Path, paths):
        require_same(path, files.read_header(path), config, spec)


def gather(paths: Sequence[Path | str], config: Config) -> Gathered:
    """Read label files for a run of this configuration: of each annotator the newest answer to each question."""
    check(paths, config)
    headers, labels = [], []
    for path in map(Path, paths):
        header, own = files.read(path)
        headers.append((path, header))
        labels += own
    return Gathered(headers, newest(labels))


def begin_with(config: Config, spec: Mapping[str, Any], found: Gathered) -> Config:
    """The configuration of a new run that has these labels from its first decision."""
    headers, labels = found
    if not headers:
        return config
    for path, header in headers:
        require_same(path, header, config, spec)
    count = len(weighted(labels))
    if config.ceiling:
        raise UserError("--ceiling learns from the true reward and from no label; leave out --labels or --ceiling")
    if not count:
        raise UserError(f"{headers[0][0]} has skipped questions only, nothing that can be learned from")
    return dataclasses.replace(config, preferences=dataclasses.replace(config.preferences, imported=count))


def put(run: Run, labels: Sequence[Label]) -> None:
    """Copy labels into the store of a new run, which then stands alone."""
    if labels:
        with LabelStore(run.labels) as store:
            store.take_in(labels)


def import_files(folder: Path, paths: Sequence[Path]) -> list[Imported]:
    """Add the labels of files to a run that stands still, or to every run of a population.

    The configuration counts them first: a run that was to have more labels than are there says so, and one that had
    more than it knows of would drop them.
    """
    from ubp2.training import checkpoint

    runs = [Run.open(member) for member in population.members(folder)]
    require_one_task(folder, runs)
    if runs[0].config.ceiling:
        raise UserError(f"{folder} learns from the true reward (ceiling) and from no label; name another run")
    if runs[0].labels.is_file():
        with LabelStore(runs[0].labels) as store:
            check(paths, runs[0].config, _spec(store))
    labels = gather(paths, runs[0].config).labels
    results = []
    with ExitStack() as stack:
        for run in runs:
            run = stack.enter_context(Run(run.folder, run.config, locks.take(run.folder)))
        saved = checkpoint.load_common([run.checkpoints for run in runs])
        for run in runs:
            with LabelStore(run.labels) as store:
                new = store.missing(labels)
                count = len(store.imported() | weighted(new))
                preferences = dataclasses.replace(run.config.preferences, imported=count)
                run.extend(dataclasses.replace(run.config, preferences=preferences))
                store.take_in(new, saved[0].decision if saved else 0)
                results.append(Imported(run.folder, len(new), len(labels) - len(new), count))
    return results


def _spec(store: LabelStore) -> dict[str, Any]:
    """What the store knows of its environment: what the trainer has noted, or at least the sizes of a question."""
    noted = store.notes("environment").get("environment")
    if noted is not None:
        return noted
    first = next(iter(store.labels()), None)
    return (
        {}
        if first is None
        else dict(obs_dim=first.query.left_obs.shape[1], action_dim=first.query.left_action.shape[1])
    )
