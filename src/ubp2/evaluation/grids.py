"""A table as a person reads it, in five forms: Markdown, CSV, LaTeX (booktabs), HTML and for the terminal."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

__all__ = ["GAP", "Cell", "Grid", "Row", "as_csv", "as_html", "as_latex", "as_markdown", "as_text", "transposed"]

GAP = "\u2013"  # an en dash: there is no such number
_MINUS = "\u2212"
_NEGATIVE = re.compile(r"(?<!\w)-(?=\d)")
_LONG = 28  # characters in one place of an HTML table from which on lines are broken
_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", GAP: "--", "λ": r"$\lambda$"}
    | {character: f"\\{character}" for character in "&%$#_{}"}
    | {character: f"${character}$" for character in "<>|"}
)


class Cell(NamedTuple):
    """What stands in one place; a negative number begins with a hyphen, which each form sets as it can."""

    text: str
    bold: bool = False
    mark: str = ""  # beside the number: significant


class Row(NamedTuple):
    """One line. What kind it is decides how loud it speaks: ours, or what stands beside it."""

    name: str
    cells: tuple[Cell, ...]
    kind: Literal["ours", "paper", "difference"] = "ours"
    of: str = ""  # the method, where the name does not say it


@dataclass(frozen=True)
class Grid:
    """A table with the sentences that belong below it."""

    caption: str
    corner: str  # over the names of the rows
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    summary: int = 0  # so many of the last columns are over all others
    records: tuple[Mapping[str, Any], ...] = ()  # the numbers, for CSV; empty: the cells as they stand


def transposed(grid: Grid) -> Grid:
    """Columns as rows: narrower, where there are many tasks and few methods."""
    rows = tuple(Row(name, tuple(row.cells[i] for row in grid.rows)) for i, name in enumerate(grid.columns))
    return replace(
        grid, corner="", columns=tuple(f"{row.of} {row.name}".strip() for row in grid.rows), rows=rows, summary=0
    )


def as_text(grid: Grid, width: int = 120) -> str:
    """For the terminal; turned round if that is what makes it fit. Bold is a '>' before the number."""
    lines = _padded(grid)
    if max(map(len, lines)) > width:
        turned = _padded(transposed(grid))
        lines = turned if max(map(len, turned)) < max(map(len, lines)) else lines
    best = ["> the best of these"] if any(cell.bold for row in grid.rows for cell in row.cells) else []
    return "\n".join([grid.caption, *lines, *best, *grid.notes])


def _padded(grid: Grid) -> list[str]:
    table = [[grid.corner, *grid.columns], *([row.name, *map(_plain, row.cells)] for row in grid.rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    return [
        "  " + "  ".join(f"{cell:<{w}}" if i == 0 else f"{cell:>{w}}" for i, (cell, w) in enumerate(pairs)).rstrip()
        for pairs in (list(zip(line, widths, strict=True)) for line in table)
    ]


def _plain(cell: Cell) -> str:
    return f"{'>' if cell.bold else ''}{cell.text}{cell.mark}"


def as_markdown(grid: Grid) -> str:
    """A pipe table under its caption."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    def shown(cell: Cell) -> str:
        text = f"{cell.text}{cell.mark}".replace("*", r"\*")
        return f"**{text}**" if cell.bold else text

    rows = [line([row.name, *map(shown, row.cells)]) for row in grid.rows]
    rule = f"|---|{'---:|' * len(grid.columns)}"
    table = [line([grid.corner, *grid.columns]), rule, *rows]
    return "\n".join([grid.caption, "", *table, *(["", *grid.notes] if grid.notes else []), ""])


def as_csv(grid: Grid) -> str:
    """The numbers, one a line, where the table has them; else the cells."""
    stream = io.StringIO()
    if grid.records:
        writer = csv.DictWriter(stream, list(grid.records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(grid.records)
    else:
        plain = csv.writer(stream, lineterminator="\n")
        plain.writerow([grid.corner, *grid.columns])
        plain.writerows([row.name, *(cell.text + cell.mark for cell in row.cells)] for row in grid.rows)
    return stream.getvalue()


def as_latex(grid: Grid) -> str:
    """A table that needs the package booktabs and nothing else."""

    def shown(cell: Cell) -> str:
        text = cell.text.translate(_LATEX)
        text = _NEGATIVE.sub("$-$", text)
        text += cell.mark.replace("*", r"\textsuperscript{*}")
        return rf"\textbf{{{text}}}" if cell.bold else text

    def line(cells: Sequence[str]) -> str:
        return f"{' & '.join(cells)} \\\\"

    plain = len(grid.columns) - grid.summary
    head = [rf"\textbf{{{name.translate(_LATEX)}}}" if name else "" for name in (grid.corner, *grid.columns)]
    body = []
    for row in grid.rows:
        if row.kind == "ours" and body and any(other.kind != "ours" for other in grid.rows):
            body.append(r"\midrule")
        body.append(line([row.name.translate(_LATEX), *map(shown, row.cells)]))
    notes = " ".join([f"{grid.caption}.", *grid.notes]).translate(_LATEX)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{notes}}}",
            rf"\begin{{tabular}}{{l{'r' * plain}{'|' + 'r' * grid.summary if grid.summary else ''}}}",
            r"\toprule",
            line(head),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def as_html(grid: Grid) -> str:
    """A table in a frame of its own that scrolls on small screens, also by keyboard; headers say what they head."""
    plain = len(grid.columns) - grid.summary

    def kind(i: int) -> str:
        return ' class="summary"' if i >= plain else ""

    head = "".join(f'<th scope="col"{kind(i)}>{html.escape(name)}</th>' for i, name in enumerate(grid.columns))
    rows = []
    for row in grid.rows:
        cells = "".join(f"<td{kind(i)}>{_html_cell(cell)}</td>" for i, cell in enumerate(row.cells))
        of = f'<span class="unseen">{html.escape(row.of)}, </span>' if row.of else ""
        wide = ' class="long"' if len(row.name) > _LONG else ""
        rows.append(f'<tr class="{row.kind}"><th scope="row"{wide}>{of}{html.escape(row.name)}</th>{cells}</tr>')
    label = html.escape(grid.caption, quote=True)
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in grid.notes)
    return (
        f'<div class="table"><p class="caption" aria-hidden="true">{label}</p>'
        f'<div class="frame" role="region" tabindex="0" aria-label="{label}"><table aria-label="{label}">'
        f'<thead><tr><th scope="col">{html.escape(grid.corner)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{notes}</div>"
    )


def _html_cell(cell: Cell) -> str:
    text, bracket, interval = (html.escape(part) for part in cell.text.partition(" ["))
    text, interval = (_NEGATIVE.sub(_MINUS, part) for part in (text, interval))
    if bracket:
        text += f' <span class="range">[{interval}</span>'
    elif len(text) > _LONG:
        text = f'<span class="long">{text}</span>'
    mark = f"<sup>{html.escape(cell.mark)}</sup>" if cell.mark else ""
    return f"<strong>{text}</strong>{mark}" if cell.bold else text + mark
