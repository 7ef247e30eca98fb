"""What `ubp2 report` and `ubp2 compare` do, and what they answer: data for --json, and text."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from ubp2.errors import UserError, unknown_name
from ubp2.evaluation import compare as comparing
from ubp2.evaluation import grids
from ubp2.evaluation import report as reporting
from ubp2.evaluation.options import Compare, Report, sides
from ubp2.evaluation.sources import gather, parse

__all__ = ["compare", "report"]

_FORMS = {
    "text": grids.as_text,
    "markdown": grids.as_markdown,
    "csv": grids.as_csv,
    "latex": grids.as_latex,
    "html": grids.as_html,
}


def report(args: Report) -> tuple[dict[str, Any], str]:
    """Write the report of runs and files, and tell its main table."""
    if not args.runs:
        raise UserError("ubp2 report needs at least one run folder or file: ubp2 report RUN --out report")
    reporting.check_out(args.out)
    results = gather([parse(text) for text in args.runs], controller=args.controller, vary=args.vary)
    if not results.series:
        raise UserError(f"there is nothing to report: {'; '.join(results.problems)}")
    for method in args.methods:
        if method not in results.methods():
            raise unknown_name("method", method, results.methods())
    written = reporting.produce(
        results,
        args.out,
        title=args.title,
        columns=args.columns,
        order=args.methods or None,
        commands=[_command(args)],
        reference=args.reference,
        bars=args.bars,
    )
    table = written.tables["scores"]
    data = {
        "page": written.page,
        "tasks": written.scores.tasks,
        "methods": written.scores.methods,
        "reference": written.scores.reference,
        "scores": list(table.records),
        "missing": {
            f"{method} on {task}": seeds for task, method in results.wanted if (seeds := results.missing(task, method))
        },
        "problems": written.problems,
    }
    lines = [grids.as_text(table), "", *(f"left out: {problem}" for problem in written.problems)]
    return data, "\n".join([*lines, f"report: {written.page}"])


def compare(args: Compare) -> tuple[dict[str, Any], str]:
    """Compare two sets, and tell the table in the form asked for."""
    first, second = ([parse(text) for text in side] for side in sides(args))
    found = comparing.compare(first, second, controller=args.controller, vary=args.vary)
    return comparing.as_data(found), _FORMS[args.form](comparing.as_grid(found))


def _command(args: Report) -> str:
    """The command as one would type it again, without what is as it would be anyway."""
    words = ["ubp2", "report", *args.runs]
    for field in dataclasses.fields(args):
        value = getattr(args, field.name)
        if field.name not in ("runs", "json") and value != field.default:
            words.append(f"--{field.name}")
            words += map(str, value if isinstance(value, tuple) else () if value is True else (value,))
    return shlex.join(words)
