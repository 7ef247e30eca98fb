"""What an experiment costs before it starts: decisions, labels, disk, and time as far as rates are known.

The time of one decision of N seeds in one program is modelled as a + b N milliseconds. The rates here were measured
(docs/reproduce.md says with what); as soon as a cell has run on this machine, its own rate is used for those like it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ubp2.config.resolving import is_model_free
from ubp2.config.schema import Config, given
from ubp2.envs.visual import is_visual
from ubp2.errors import UserError
from ubp2.experiments.cells import Group
from ubp2.experiments.programs import Program
from ubp2.storage import population
from ubp2.storage.runs import read_metrics

__all__ = ["Cost", "Rate", "device_kind", "duration", "estimate", "estimate_together"]


class Rate(NamedTuple):
    """Milliseconds of a decision of N seeds, fixed and for each seed, while planning and with the policy."""

    planning: tuple[float, float]
    policy: tuple[float, float]
    horizon: int = 0  # of the plans and the updates that were measured
    crowded: float = 0.0  # for each seed at least: what many in one program take (docs/scale.md; 48 of `best`: 22 ms)


# By device and preset; MODEL_FREE agents under "pebble". Measured on an H200 with 16 cores, and on two CPU cores.
RATES: Mapping[tuple[str, str], Rate] = {
    ("gpu", "paper"): Rate((4.5, 1.08), (5.8, 0.08), horizon=7, crowded=0.45),
    ("gpu", "best"): Rate((5.9, 0.12), (5.8, 0.08), horizon=7, crowded=0.45),
    ("gpu", "pebble"): Rate((8.6, 0.22), (8.6, 0.22)),
    ("cpu", "cpu"): Rate((0.0, 23.8), (0.0, 16.0), horizon=3),
    ("cpu", "pebble"): Rate((0.0, 5.7), (0.0, 5.7)),
}
START = {"gpu": 60.0, "cpu": 20.0}  # seconds a program, compilation included
BYTES = 250.0  # of a decision on disk: observations, actions, metrics
FEATURES = 384  # of a frame: what DINOv2-S makes of it, and about what the other encoders do


@dataclass(frozen=True)
class Cost:
    """Of one program: what is left to do."""

    decisions: int  # of all its seeds
    labels: int
    seconds: float | None  # None: nobody knows
    megabytes: float
    measured: bool  # whether its rate was seen on this machine


def device_kind() -> str:
    """gpu where there is an NVIDIA driver, else cpu; asks without taking memory on the device."""
    return "gpu" if shutil.which("nvidia-smi") else "cpu"


def estimate(
    group: Group, preset: str, episode_decisions: int, seen: Mapping[str, float], device: str | None = None
) -> Cost:
    """The work left in a group that trains by itself."""
    return estimate_together([group], preset, episode_decisions, seen, device)


def estimate_together(
    groups: Sequence[Group], preset: str, episode_decisions: int, seen: Mapping[str, float], device: str | None = None
) -> Cost:
    """The work left in groups that train in one program.

    seen: seconds a decision of one seed that like cells took here; device: None, this.
    """
    lefts = [max(group.cell.config.steps - group.decision, 0) for group in groups]
    config, left, visual = groups[0].cell.config, max(lefts), is_visual(groups[0].cell.config.env)
    seeds = sum(group.seeds for group, own in zip(groups, lefts, strict=True) if own)
    decisions = sum(group.seeds * own for group, own in zip(groups, lefts, strict=True))
    labels = sum(_labels(group, own) for group, own in zip(groups, lefts, strict=True))
    features = 4 * FEATURES * config.visual.frames if visual else 0  # bytes
    megabytes = decisions * (BYTES + features) / 1e6
    own = seen.get(kind(config))
    seconds: float | None = None
    if own is not None or not left:
        seconds = left * (own or 0.0) * seeds
    else:
        device = device or device_kind()
        rate = RATES.get((device, "pebble" if is_model_free(config.agent) else preset))
        if rate is not None and not visual:  # of frames nobody knows: it depends on who renders and who encodes
            asking = max(_asking(group.cell.config) for group in groups)
            seconds = START[device] + _modelled(config, rate, seeds, left, episode_decisions, asking)
    return Cost(decisions, labels, seconds, megabytes, own is not None)


def _labels(group: Group, left: int) -> int:
    config = group.cell.config
    return 0 if config.ceiling else round(given(config.preferences.budget) * left / config.steps) * group.seeds


def _asking(config: Config) -> float:
    """The share of a run in which there are labels to ask for, and so plans."""
    prefs = config.preferences
    return min(given(prefs.budget) / prefs.per_session * prefs.every, config.steps) / config.steps


def kind(config: Config) -> str:
    """Cells that cost the same: those of one agent family and one horizon, by their frames or not."""
    family = "model-free" if is_model_free(config.agent) else f"planning {config.planner.horizon}"
    return f"{family}, visual" if is_visual(config.env) else family


def rates_seen(programs: Sequence[Program]) -> dict[str, float]:
    """Seconds a decision of one seed, by kind, from the metrics of runs that are there."""
    found: dict[str, list[float]] = {}
    for program in programs:
        group = program.groups[0]
        try:
            rows = read_metrics(population.members(group.folder)[0]) if group.decision else []
        except (UserError, OSError):
            continue
        rates = [row["time/decisions_per_second"] for row in rows if row.get("time/decisions_per_second")]
        if rates:
            found.setdefault(kind(group.cell.config), []).append(1 / rates[-1] / program.runs)
    return {name: sum(each) / len(each) for name, each in found.items()}


def _modelled(config: Config, rate: Rate, seeds: int, left: int, episode_decisions: int, asking: float) -> float:
    """Seconds by a rate: updates, plans while labels last, and evaluations. Both grow with their horizons."""
    planning, policy = (max(a + b * seeds, rate.crowded * seeds) for a, b in (rate.planning, rate.policy))
    plan, updates = planning - policy, policy
    if rate.horizon:
        plan *= config.planner.horizon / rate.horizon
        updates *= given(config.training.horizon) / rate.horizon
    mean = updates + asking * plan
    often = left / config.evaluation.every if config.evaluation.every else 1.0  # 0: at the end alone
    rounds = often * config.evaluation.episodes / config.evaluation.workers
    looked = sum(policy + (name != "policy") * plan for name in config.evaluation.controllers)
    return (left * mean + rounds * episode_decisions * looked) / 1e3


def duration(seconds: float) -> str:
    """A time as a person says it: 40 s, 12 min, 3.5 h, 2.1 days."""
    for size, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            number = seconds / size
            return f"{number:.0f} {name}" if number >= 10 or name == "min" else f"{number:.1f} {name}"
    return f"{seconds:.0f} s"
