"""How the time of a plan grows with each size alone."""

from __future__ import annotations

import dataclasses
from functools import partial

from ubp2.bench import flops
from ubp2.bench.report import Row
from ubp2.bench.subject import ACTION_DIM, OBS_DIM, subject, with_model
from ubp2.bench.timing import compile_all, median_seconds
from ubp2.config.schema import Config

__all__ = ["measure"]

SEEDS = (1, 2, 4, 8)


def measure(config: Config, repetitions: int) -> list[Row]:
    """Rows of (what, size): time over the time of the preset with one seed, beside the same ratio of the arithmetic."""
    cases = _cases(config)
    subjects = {name: subject(changed, name[1] if name[0] == "seeds" else 1) for name, changed in cases.items()}
    work = {name: partial(own.programs.plan, own.state, *own.acting) for name, own in subjects.items()}
    compile_all(work)
    seconds = {name: median_seconds(run, repetitions) for name, run in work.items()}
    amount = {name: own.seeds * flops.plan(own.config, OBS_DIM, ACTION_DIM) for name, own in subjects.items()}
    base = ("seeds", 1)
    return [
        {
            "what": name[0],
            "size": name[1],
            "ms": 1e3 * seconds[name],
            "time_over_base": seconds[name] / seconds[base],
            "arithmetic_over_base": amount[name] / amount[base],
        }
        for name in cases
    ]


def _cases(config: Config) -> dict[tuple[str, int], Config]:
    """Each size alone, around the preset's own; one seed is the preset itself."""
    model, planner = config.model, config.planner

    def searching(**changes: int) -> Config:
        return dataclasses.replace(config, planner=dataclasses.replace(planner, **changes))

    cases = {("seeds", n): config for n in SEEDS}
    cases |= {("samples", n): searching(samples=n) for n in _around(planner.samples) if n >= planner.elites}
    cases |= {("horizon", n): searching(horizon=n) for n in _around(planner.horizon)}
    cases |= {("width", n): with_model(config, width=n) for n in _around(model.width)}
    members = ("dynamics_members", "reward_members", "value_members")
    cases |= {("members", n): with_model(config, **dict.fromkeys(members, n)) for n in _around(model.dynamics_members)}
    return cases


def _around(size: int) -> list[int]:
    return sorted({max(size // 2, 1), 2 * size, 4 * size} - {size})
