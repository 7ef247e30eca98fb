"""What `ubp2 labels ...` takes. Imports nothing heavy: `ubp2 labels --help` is as instant as all help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ubp2.terminal.flags import Json, Switch

__all__ = ["Export", "Import", "Labels", "Stats", "Verify"]

WORKS = ("export", "import", "verify", "stats")


@dataclass(frozen=True)
class Export:
    """Write the answers of a run, with both segments of each, into a file that stands alone."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder, or folder of several seeds: the labels of all."""
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """File to write: .jsonl, .jsonl.gz, or .parquet (needs pyarrow)."""
    anonymous: Switch = False
    """Replace the names of annotators and runs by drawn ones."""
    overwrite: Switch = False
    """Replace the file if it is there."""
    intact: Switch = False
    """Leave out labels whose segments are damaged on the disk, instead of refusing."""
    json: Json = False


@dataclass(frozen=True)
class Import:
    """Add the labels of files to a run that stands still; it learns from them when it is resumed."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder, or folder of several seeds: each gets the labels."""
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE ...")]
    """Files that ubp2 labels export wrote."""
    json: Json = False


@dataclass(frozen=True)
class Verify:
    """Look at every page, question and answer of the label store of a run; 1: something is damaged."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder, or folder of several seeds."""
    json: Json = False


@dataclass(frozen=True)
class Stats:
    """Tell who answered how much and how fast, and how far people agree with each other and with themselves."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder, or folder of several seeds: each of them."""
    json: Json = False


@dataclass(frozen=True)
class Labels:
    """Export, import, verify or summarise the labels of a run."""

    what: Annotated[
        Annotated[Export, tyro.conf.subcommand("export")]
        | Annotated[Import, tyro.conf.subcommand("import")]
        | Annotated[Verify, tyro.conf.subcommand("verify")]
        | Annotated[Stats, tyro.conf.subcommand("stats")],
        tyro.conf.arg(name=""),
    ]
