"""What a bench answers: tables of numbers with what they were measured on, as text and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ubp2.system import devices, provenance

__all__ = ["Report", "Row", "shown", "table"]

Row = Mapping[str, Any]


@dataclass
class Report:
    """Tables by name, each a list of rows with the same columns, and sentences about them."""

    bench: str
    tables: dict[str, Sequence[Row]]
    notes: list[str] = field(default_factory=list)

    def data(self, command: Sequence[str]) -> dict[str, Any]:
        """One JSON object with all that is needed to measure the same again. Asks jax for its devices."""
        return {
            "bench": self.bench,
            "command": shlex.join(["ubp2", *command]),
            "device": devices()[0].partition(" ")[2],
            **provenance(),
            "tables": self.tables,
            "notes": self.notes,
        }

    def text(self) -> str:
        """The tables as a person reads them."""
        parts = [f"{name}\n{table(rows)}" for name, rows in self.tables.items() if rows]
        return "\n\n".join([*parts, *(["\n".join(self.notes)] if self.notes else [])])


def shown(value: Any) -> str:
    """A number with three digits that count, no number as a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def table(rows: Sequence[Row]) -> str:
    """Columns under their names, numbers to the right."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[name.replace("_", " ") for name in names], *([shown(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    numeric = [all(not isinstance(row.get(name), str) for row in rows) for name in names]

    def padded(line: list[str]) -> str:
        cells = (c.rjust(w) if right else c.ljust(w) for c, w, right in zip(line, widths, numeric, strict=True))
        return "  " + "  ".join(cells).rstrip()

    return "\n".join(map(padded, lines))
