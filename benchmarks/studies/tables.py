"""Results of a study as a Markdown table."""

from __future__ import annotations

from pathlib import Path

import curves

from ubp2.errors import UserError

__all__ = ["table"]


def table(path: Path, decisions: list[int] | None = None) -> str:
    """Interquartile means of success over seeds, with bootstrap intervals, a row a method on a task."""
    if not path.exists():
        there = ", ".join(sorted(other.stem for other in path.parent.glob("*.csv"))) or "none"
        raise UserError(f"there are no results of {path.stem} in {path.parent}; studies with results: {there}")
    rows = curves.read(path)
    decisions = decisions or [max((int(row["decision"]) for row in rows), default=0)]
    columns = [
        (who, at) for at in decisions for who in ("planner", "policy") if rows and f"{who}/success_any" in rows[0]
    ]
    lines = [f"| {path.stem} | seeds | {' | '.join(f'{who}, {at:,}' for who, at in columns)} |"]
    lines.append("|---" * (2 + len(columns)) + "|")
    for env, method in dict.fromkeys((row["env"], row["method"]) for row in rows):
        own = [row for row in rows if (row["env"], row["method"]) == (env, method)]
        cells = [curves._cell(curves._successes(own, who, at)) for who, at in columns]
        lines.append(f"| {env}, {method} | {len({row['seed'] for row in own})} | {' | '.join(cells)} |")
    return "\n".join(lines)
