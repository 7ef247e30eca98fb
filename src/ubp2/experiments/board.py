"""How the groups of a plan stand, as a table: live on a terminal, once for `ubp2 sweep status`.

It is read from the folders alone, so that it can be seen from any machine that shares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ubp2.experiments.cells import Group
from ubp2.experiments.execution import label
from ubp2.experiments.group_folders import decision, failure, last_row, written

__all__ = ["Board", "Row", "counted", "row", "text"]

_ROWS = 20  # most that are shown live; a table that is higher than the terminal flickers
_ORDER = ("failed", "running", "waiting", "finished")
_SCORES = (("success_any", "success"), ("return", "return"))


@dataclass(frozen=True)
class Row:
    """One group: where it stands, and how well its seeds did at their last evaluation."""

    group: Group
    state: str  # finished, running, failed, waiting
    decision: int
    score: tuple[str, float] | None = None  # name, mean over seeds

    def words(self) -> tuple[str, str, str, str]:
        """As a person reads it, column by column."""
        come = f"{self.decision:,} of {self.group.cell.config.steps:,}"
        return label(self.group), self.state, come, f"{self.score[0]} {self.score[1]:.3g}" if self.score else ""


def row(group: Group) -> Row:
    """How a group stands now."""
    come = decision(group)
    names = [""] if group.seeds == 1 else [f"s{seed}" for seed in range(group.first, group.first + group.seeds)]
    last = [last_row(group.folder / name, "eval") for name in names]
    evaluated = min((each.get("decision", 0) for each in last), default=0)
    if evaluated >= group.cell.config.steps:
        return Row(group, "finished", come, _score(last))
    state = "running" if written(group.folder) else "failed" if failure(group) else "waiting"
    return Row(group, state, come, _score(last) if evaluated else None)


def _score(last: Sequence[dict[str, Any]]) -> tuple[str, float] | None:
    """Success where the environment tells it, else return: of the policy, the mean over seeds."""
    for suffix, name in _SCORES:
        found = [value for each in last for key, value in each.items() if key.endswith(f"policy/{suffix}")]
        if len(found) == len(last):
            return name, sum(found) / len(found)
    return None


def counted(rows: Sequence[Row]) -> dict[str, int]:
    """How many groups are in which state."""
    found = Counter(one.state for one in rows)
    return {state: found[state] for state in _ORDER if found[state]}


def text(rows: Sequence[Row]) -> str:
    """All rows, aligned, and the counts."""
    words = [one.words() for one in rows]
    widths = [max(len(each[column]) for each in words) for column in range(4)]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(each, widths, strict=True)).rstrip() for each in words]
    return "\n".join([*lines, ", ".join(f"{count} {state}" for state, count in counted(rows).items())])


class Board:
    """The rows of a plan while it runs; what is finished is not read again."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._rows = [row(group) for group in groups]

    def refresh(self) -> list[Row]:
        """Look at every group that is not finished."""
        self._rows = [one if one.state == "finished" else row(one.group) for one in self._rows]
        return self._rows

    def drawn(self) -> Any:
        """For rich: those that run or failed first, as many as fit."""
        from rich.table import Table

        shown = sorted(self._rows, key=lambda one: _ORDER.index(one.state))[:_ROWS]
        more = len(self._rows) - len(shown)
        counts = ", ".join(f"{count} {state}" for state, count in counted(self._rows).items())
        table = Table(box=None, padding=(0, 2, 0, 0), caption=counts + (f"; {more} not shown" if more else ""))
        for name in ("cell", "state", "decisions", "score"):
            table.add_column(name, justify="left", no_wrap=True)
        for one in shown:
            table.add_row(*one.words())
        return table
