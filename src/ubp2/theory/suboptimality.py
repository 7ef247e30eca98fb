"""Planner suboptimality: what an imperfect planner adds to the regret, and how a growing budget takes it away again."""

from __future__ import annotations

import numpy as np

from ubp2.theory.algorithm import Method, run
from ubp2.theory.findings import Findings
from ubp2.theory.growth import few
from ubp2.theory.options import Suboptimality
from ubp2.theory.regret import column, row
from ubp2.theory.systems import make_system

__all__ = ["study"]

_SYSTEM, _KERNEL = "lq", "linear"  # the exact planner's regret is small there, so that what is added can be seen


def study(options: Suboptimality) -> Findings:
    """A row and a curve a planner. The budget is of actions that are looked at in a state, out of eleven."""
    system = make_system(_SYSTEM, _KERNEL)
    base = Method("ucb", None)
    methods = {"exact": base}
    methods |= {f"loses {loss:g} a step": base._replace(slack=loss) for loss in options.epsilon}
    worst = max(options.epsilon)
    methods[f"loses {worst:g} / sqrt(n) a step"] = base._replace(slack=worst, decay=0.5)
    methods["2 actions a state"] = base._replace(budget=2)
    methods["1 + n actions a state"] = base._replace(budget=2, more=1.0)
    rows, curves = [], {}
    steps = float(np.sum(system.gamma ** np.arange(system.horizon)))
    for label, method in methods.items():
        seeds = (np.random.default_rng([options.seed, i]) for i in range(options.repeats))
        runs = [run(system, method, options.episodes, rng) for rng in seeds]
        regret, lost = (column(runs, name) for name in ("regret", "lost"))
        allowed = method.slack * float(np.sum(np.arange(1, options.episodes + 1.0) ** -method.decay)) * steps
        granted = {"lost": float(lost.sum(axis=1).mean()), "may_lose": allowed if method.budget is None else None}
        rows.append(row(label, regret) | granted)
        curves[label] = regret.cumsum(axis=1).tolist()
    notes = [
        *few(options.repeats),
        f"{_SYSTEM}, {_KERNEL} kernel, {options.repeats} agents a row, {options.episodes} episodes; every bonus is one "
        "posterior deviation. lost: optimistic value that the planner missed, summed over episodes; may lose: the "
        "theorem's N (1 - gamma^T) / (1 - gamma) epsilon. The theorem has an infinite horizon; here it is fixed, for "
        "which the paper says that the same term is added.",
    ]
    title = "Planner suboptimality"
    return Findings("suboptimality", {title: rows}, {"title": title, "cumulative": curves}, notes)
