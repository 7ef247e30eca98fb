"""What `ubp2 reproduce` and `ubp2 sweep` take. Imports nothing heavy: their help is as instant as all help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
import yaml

from ubp2.errors import UserError
from ubp2.terminal.flags import Json, Switch

__all__ = ["WORKS", "Reproduce", "Sweep", "flat", "settings"]

WORKS = ("status", "stop", "resume", "cell")


@dataclass(frozen=True)
class Reproduce:
    """Run a table or figure of the paper: what is missing, at any budget, with the paper's numbers beside ours."""

    experiment: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[EXPERIMENT]")] = None
    """table1, table2, fig-selection, ...; None: list them."""
    tasks: tuple[str, ...] = ()
    """Only these tasks (door-close), or other environments by id (toy/reach); none: all of the experiment."""
    methods: tuple[str, ...] = ()
    """Only these methods; none: all of the experiment."""
    seeds: int | None = None
    """Seeds of each cell; None: the paper's number."""
    steps: int | None = None
    """Decisions of each run; None: those of the preset (paper: 1,000,000)."""
    preset: str = "paper"
    """Sizes: paper (the paper's, for a GPU), best (what learns fastest in our hands, for a GPU), cpu (small)."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A setting for every cell, such as 'teacher.name: noisy'; can be repeated."""
    out: Path | None = None
    """Folder of the runs and the report; None: runs/EXPERIMENT-PRESET-STEPS. The same command again continues."""
    on: Literal["local", "ray"] = "local"
    """Where cells run: processes on this machine, or a Ray cluster (pip install 'ubp2[ray]')."""
    address: str | None = None
    """Address of the Ray cluster; None: RAY_ADDRESS, that of this machine, or a new one."""
    jobs: int = 1
    """Programs that train side by side (local)."""
    together: int | None = None
    """Most runs in one program, of whatever cells; None: as many as a GPU has memory for, and one on a CPU."""
    minutes: float | None = None
    """End within so many minutes, report included; the same command goes on."""
    retries: int | None = None
    """How often a failed program is tried again, from its last checkpoint; None: 2, on Ray 10: lost nodes count."""
    no_clips: Switch = False
    """Film nothing."""
    dry_run: Switch = False
    """Show the plan with its cost, and stop."""
    report_only: Switch = False
    """Train nothing; write the report of what is there."""
    json: Json = False


@dataclass(frozen=True)
class Sweep:
    """Train a grid of tasks, methods, settings and seeds, here, on Ray or on SLURM; then status, stop, resume."""

    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE|VERB")]
    """YAML file of the sweep (docs/sweeps.md); or status, stop, resume; or cell, which jobs of SLURM call."""
    folder: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[DIR]")] = None
    """Folder of the sweep, for status, stop, resume and cell."""
    on: Literal["local", "ray", "slurm"] | None = None
    """Where cells run: processes here, a Ray cluster (extra ubp2[ray]), or an array job; None: as in the file."""
    address: str | None = None
    """Address of the Ray cluster; None: as in the file, RAY_ADDRESS, that of this machine, or a new one."""
    jobs: int | None = None
    """Programs side by side; None: as in the file, or 1 here and no limit on SLURM. Ray goes by resources."""
    minutes: float | None = None
    """End within so many minutes, report included; ubp2 sweep resume goes on."""
    retries: int | None = None
    """How often a failed program is tried again, from its last checkpoint; None: 2, on Ray 10: lost nodes count."""
    out: Path | None = None
    """Folder of the sweep; None: as in the file, or runs/ and its name."""
    number: int | None = None
    """Which program ubp2 sweep cell trains: the number of its file in programs/."""
    fake_preempt: float | None = None
    """slurm: run the array script here, and preempt each task at random moments, first within so many seconds."""
    dry_run: Switch = False
    """Show the plan with its cost and resources, and stop."""
    json: Json = False


def settings(lines: tuple[str, ...]) -> dict[str, Any]:
    """The settings of --set, by dotted name."""
    found: dict[str, Any] = {}
    for line in lines:
        try:
            data = yaml.safe_load(line)
        except yaml.YAMLError:
            data = None
        if not isinstance(data, dict):
            raise UserError(f"--set expects 'dotted.field: value', such as 'teacher.name: noisy', got '{line}'")
        for name, value in data.items():
            found.update(flat(str(name), value))
    return found


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A setting that may be a table as settings by dotted name; `teacher: noisy` is short for its name."""
    if isinstance(value, Mapping):
        for key, own in value.items():
            yield from flat(f"{name}.{key}", own)
    else:
        yield ("teacher.name" if name in ("teacher", "preferences.teacher") else name), value
