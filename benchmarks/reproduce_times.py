"""The tables of docs/reproduce.md: what each experiment takes on one H200 and on two CPU cores.

    python benchmarks/reproduce_times.py        # writes the tables into the page

Times are those that `ubp2 reproduce NAME --dry-run` would print on such a machine before anything has run there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pages import filled, markdown

from ubp2.experiments.catalogue import EXPERIMENTS, Experiment
from ubp2.experiments.cells import Group, cells
from ubp2.experiments.costs import RATES, duration, estimate

PAGE = Path(__file__).parents[1] / "docs" / "reproduce.md"
COLUMNS = (("paper", "gpu", "H200, paper"), ("best", "gpu", "H200, best"), ("cpu", "cpu", "2 cores, cpu"))
EPISODE = 100  # decisions of an episode of Meta-World


def seconds(experiment: Experiment, preset: str, device: str) -> float:
    """All cells of an experiment, one after the other."""
    lengths = dict.fromkeys(experiment.tasks, EPISODE)
    options = {"steps": None, "seeds": None, "settings": {}, "episode_decisions": lengths, "out": Path()}
    made = cells(experiment, experiment.tasks, experiment.methods, preset=preset, **options)
    groups = [
        Group(cell, first, 1 if device == "cpu" else cell.seeds)
        for cell in made
        for first in (range(cell.seeds) if device == "cpu" else [0])
    ]
    each = [estimate(group, preset, EPISODE, {}, device).seconds for group in groups]
    return sum(time for time in each if time is not None)


def times() -> str:
    """A row an experiment."""
    lines = [["command", "in the paper", "cells, runs", *(title for *_, title in COLUMNS)]]
    for name, each in EXPERIMENTS.items():
        if name == "fig-visual":
            continue
        runs = len(each.methods) * sum(each.seeds_of(task) for task in each.tasks)
        cost = [duration(seconds(each, preset, device)) for preset, device, _ in COLUMNS]
        count = f"{len(each.methods) * len(each.tasks)}, {runs}"
        lines.append([f"`ubp2 reproduce {name}`", each.place, count, *cost])
    return markdown(lines)


def rates() -> str:
    """Milliseconds of a decision of N seeds in one program."""
    lines = [["device", "preset", "while planning, ms", "with the policy, ms"]]
    names = {"gpu": "H200", "cpu": "2 cores"}
    for (device, preset), rate in RATES.items():
        planning, policy = (f"{a:g} + {b:g} N" for a, b in (rate.planning, rate.policy))
        lines.append([names[device], preset, planning if preset != "pebble" else "", policy])
    return markdown(lines)


def render(page: str) -> str:
    """The page with its tables written anew."""
    made = {"times": times, "rates": rates}
    return filled(page, lambda name: made[name]())


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit(0)
