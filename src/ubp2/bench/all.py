"""ubp2 bench all: every bench at sizes that a CPU measures in a few minutes."""

from __future__ import annotations

from ubp2.bench import envs, pebble, plan, start, train, update
from ubp2.bench.options import All, Envs, Pebble, Plan, Start, Train, Update
from ubp2.bench.report import Report

__all__ = ["measure"]


def measure(options: All) -> Report:
    """The tables of all, each under the name of its bench."""
    reports = [
        plan.measure(Plan()),
        update.measure(Update()),
        pebble.measure(Pebble(epochs=1, replay=20_000)),
        envs.measure(Envs()),
        train.measure(Train(env="toy/reach", preset="demo")),
        train.measure(Train()),
        start.measure(Start()),
    ]
    names = ["plan", "update", "pebble", "envs", "train toy/reach", "train door-close", "start"]
    tables = {
        f"{name}: {table}": rows
        for name, report in zip(names, reports, strict=True)
        for table, rows in report.tables.items()
    }
    return Report("all", tables, list(dict.fromkeys(note for report in reports for note in report.notes)))
