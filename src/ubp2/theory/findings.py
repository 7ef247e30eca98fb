"""What a study answers: tables, curves to draw and sentences, as text and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ubp2.bench.report import Row, table
from ubp2.system import provenance

__all__ = ["Findings"]


@dataclass
class Findings:
    """Tables by name, each a list of rows with the same columns; curves by name; sentences about them."""

    study: str
    tables: dict[str, Sequence[Row]]
    curves: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    def data(self, command: Sequence[str]) -> dict[str, Any]:
        """One JSON object with all that is needed to compute and draw the same again."""
        return {
            "study": self.study,
            "command": shlex.join(["ubp2", *command]),
            **provenance(),
            "tables": self.tables,
            "notes": self.notes,
            "curves": _short(self.curves),
        }

    def text(self) -> str:
        """The tables as a person reads them."""
        parts = [f"{name}\n{table(rows)}" for name, rows in self.tables.items()]
        return "\n\n".join([*parts, *(["\n".join(self.notes)] if self.notes else [])])


def _short(value: Any) -> Any:
    """Numbers of curves with the six digits that a figure cannot show anyway: files stay small."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, (list, tuple)) else value
