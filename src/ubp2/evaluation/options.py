"""What `ubp2 report` and `ubp2 compare` take. Imports nothing heavy: their help is as instant as all help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ubp2.errors import UserError
from ubp2.terminal.flags import Json, Switch

__all__ = ["Compare", "Report", "sides"]

Acting = Literal["acting", "planner", "policy"]
Form = Literal["text", "markdown", "csv", "latex", "html"]


@dataclass(frozen=True)
class Report:
    """Write a page, figures, tables and raw scores of any number of runs."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]
    """Run folders, folders that hold such, or CSV and JSONL files; METHOD=PATH names one, TASK:METHOD=FILE too."""
    out: Path = Path("report")
    """Folder to write; a report in it is replaced."""
    title: str = "Results"
    """Title of the page."""
    controller: Acting = "acting"
    """Whose scores: what the agent acts with itself (its planner while labels are left, then its policy), or one."""
    vary: tuple[str, ...] = ()
    """Settings of the protocol that may differ between runs, such as preferences.budget; docs/report.md has all."""
    columns: tuple[Literal["average", "rank", "regret"], ...] = ("average", "rank")
    """Last columns of the table, over all tasks."""
    methods: tuple[str, ...] = ()
    """Methods in the order of the table; others come after them."""
    reference: str | None = None
    """Method that the others are tested against; None: the first of --methods, else ubp2, else the first there is."""
    bars: Switch = False
    """Also draw the table as bars."""
    json: Json = False


@dataclass(frozen=True)
class Compare:
    """Compare two sets of runs: the difference on each task, its interval, and how often one beats the other."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]
    """A B, or with --with all of A: run folders, folders that hold such, or files; METHOD=PATH names one."""
    against: Annotated[tuple[str, ...], tyro.conf.arg(name="with")] = ()
    """All of B."""
    controller: Acting = "acting"
    """Whose scores: what the agent acts with itself (its planner while labels are left, then its policy), or one."""
    vary: tuple[str, ...] = ()
    """Settings of the protocol that may differ between runs, such as preferences.budget; docs/report.md has all."""
    form: Annotated[Form, tyro.conf.arg(name="as")] = "text"
    """How the table is printed."""
    json: Json = False


def sides(args: Compare) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The two sets that were named."""
    if args.against:
        if not args.runs:
            raise UserError("ubp2 compare needs runs on both sides: ubp2 compare A ... --with B ...")
        return args.runs, args.against
    if len(args.runs) != 2:
        raise UserError(
            f"ubp2 compare takes two folders or files, got {len(args.runs)}; for more: ubp2 compare A ... --with B ..."
        )
    return args.runs[:1], args.runs[1:]
