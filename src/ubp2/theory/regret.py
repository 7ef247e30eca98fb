"""Cumulative regret against episodes: optimistic, greedy and random agents, and agents without one of the bonuses."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray as Array

from ubp2.theory.algorithm import Episode, Method, optimum, run
from ubp2.theory.findings import Findings
from ubp2.theory.growth import exponent, few, interval
from ubp2.theory.kernels import NAMES
from ubp2.theory.options import Regret
from ubp2.theory.systems import System, make_system

__all__ = ["SCALES", "UNTUNED", "column", "row", "study", "system_of"]

SCALES = (1.0, 0.1, 0.01, 0.001)  # shares of the proof's coefficients, the same for every system
UNTUNED = "optimistic, a = b = c = 1"
_STUCK = 0.1  # of the best return, lost in an episode at the end
_BONUSES = {
    "all three": (True, True, True),
    "no reward bonus": (False, True, True),
    "no dynamics bonus": (True, False, True),
    "no value bonus": (True, True, False),
    "reward bonus alone": (True, False, False),
    "dynamics bonus alone": (False, True, False),
    "value bonus alone": (False, False, True),
}


def system_of(options: Regret) -> str:
    """The system that was asked for, or the kernel's own."""
    return options.system or ("lq" if options.kernel == "linear" else "hills")


def study(options: Regret) -> Findings:
    """A row and a curve an agent."""
    name = system_of(options)
    system = make_system(name, options.kernel, options.noise)
    methods = _methods(options)
    runs = {label: _runs(system, method, options) for label, method in methods.items()}
    curves = {label: column(own, "regret") for label, own in runs.items()}
    best = optimum(system, options.infinite)
    rows = [row(label, own) | _promises(runs[label], best) for label, own in curves.items()]
    horizon = "infinite horizon" if options.infinite else f"horizon {system.horizon}"
    title = f"{name}, {NAMES[options.kernel]} kernel, {horizon}"
    notes = [
        *few(options.repeats),
        f"{options.repeats} agents a row, {options.episodes} episodes. exponent p: the mean cumulative regret grows as "
        "C + c N^p, by what the second half of the episodes adds over what the second quarter adds (1: as much an "
        "episode; below 0: it converges), with a 95 % interval from agents drawn again; last: regret of an episode, "
        "mean over the last tenth.",
        _coefficients_note(options),
        f"stuck: share of agents that lose {_STUCK:.0%} of the best return on average over the last tenth. promised: "
        f"optimistic value of the best plan, beside a best return of {best:.3g}; lost: share of it that the executed "
        "policy does not reach in the agent's own model.",
    ]
    drawn = {label: own.cumsum(axis=1).tolist() for label, own in curves.items()}
    return Findings("regret", {title: rows}, {"title": title, "cumulative": drawn}, notes)


def _methods(options: Regret) -> Mapping[str, Method]:
    forever = options.infinite
    scales = options.scale or SCALES
    if options.ablation:
        methods = {label: Method("ucb", scales[-1], on, forever) for label, on in _BONUSES.items()}
    else:
        methods = {f"optimistic, scale {scale:g}": Method("ucb", scale, forever=forever) for scale in scales}
    others = {UNTUNED: Method(scale=None), "greedy": Method("greedy"), "random": Method("random")}
    return methods | {label: method._replace(forever=forever) for label, method in others.items()}


def _coefficients_note(options: Regret) -> str:
    """What the bonuses of the optimistic agents are, and what of the theorem does not apply."""
    switched = f"Bonuses that are switched on are {(options.scale or SCALES)[-1]:g} times the proof's coefficients"
    shares = "The scale of an optimistic agent is its share of the proof's coefficients"
    note = switched if options.ablation else shares
    note += "; with a = b = c = 1 every bonus is one posterior deviation, and nothing is tuned."
    if options.noise != "gaussian":
        note += (
            " The coefficients are those for Gaussian noise, also at scale 1: the theorem on sub-Gaussian noise asks "
            "for a Lipschitz constant of the value, which states that are rounded to a grid do not have. This run "
            "illustrates it and does not test it."
        )
    if options.infinite:
        note += " Episodes have a fixed length, where the theorem lets them grow with log n."
    return note


def _runs(system: System, method: Method, options: Regret) -> list[list[Episode]]:
    """The episodes of every agent. Agents of all methods with one number share their draws."""
    seeds = ([options.seed, i] for i in range(options.repeats))
    return [run(system, method, options.episodes, np.random.default_rng(seed)) for seed in seeds]


def column(runs: list[list[Episode]], name: str) -> Array:
    """One number of every episode of every agent [repeats, N]."""
    return np.array([[getattr(episode, name) for episode in own] for own in runs])


def _promises(runs: list[list[Episode]], best: float) -> dict[str, float]:
    """Agents that are stuck, what the best plan was worth at first and at last, and the share that was lost of it."""
    ends = column(runs, "regret")[:, -_last_tenth(len(runs[0])) :].mean(axis=1)
    promised, lost = column(runs, "promised"), column(runs, "lost")
    share = float(lost.sum() / promised.sum()) if promised.any() else 0.0
    stuck = float((ends > _STUCK * best).mean())
    first, last = float(promised[:, 0].mean()), float(promised[:, -1].mean())
    return {"stuck": stuck, "promised_first": first, "and_last": last, "lost": max(share, 0.0)}


def _last_tenth(episodes: int) -> int:
    return max(1, episodes // 10)


def row(label: str, regret: Array) -> dict[str, str | float]:
    """Regret in all, at the end, and how it grows, for the regrets [repeats, N] of an agent."""
    total, growth = interval(regret.sum(axis=1)), exponent(regret.cumsum(axis=1))
    return {
        "agent": label,
        "regret": total.mean,
        "low": total.low,
        "high": total.high,
        "last": float(regret[:, -_last_tenth(regret.shape[1]) :].mean()),
        "exponent": growth.mean,
        "from": growth.low,
        "to": growth.high,
    }
