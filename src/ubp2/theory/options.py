"""What `ubp2 theory ...` takes. Imports nothing heavy: `ubp2 theory --help` is as instant as all help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ubp2.errors import UserError
from ubp2.terminal.flags import Json, Switch, check_least

__all__ = [
    "STUDIES",
    "Calibration",
    "Ensembles",
    "Gain",
    "Optimism",
    "Preferences",
    "Regret",
    "Report",
    "Simulation",
    "Suboptimality",
    "Theory",
    "check",
]

STUDIES = (
    "gain",
    "calibration",
    "optimism",
    "simulation",
    "regret",
    "suboptimality",
    "preferences",
    "ensembles",
    "report",
)
KernelName = Literal["linear", "rbf", "matern"]
NoiseName = Literal["gaussian", "uniform", "rademacher", "truncated"]


@dataclass(frozen=True)
class _Common:
    """What every study takes."""

    seed: int = 0
    """Seed of everything random; the same seed gives the same numbers."""
    out: Path | None = None
    """Also write the numbers (NAME.json) and the figure (NAME.png) into this folder."""
    json: Json = False


@dataclass(frozen=True)
class Gain(_Common):
    """Maximum information gain by greedy choice, for kernels and dimensions, beside the rates of the paper's table."""

    points: int = 1000
    """Observations."""
    dimensions: tuple[int, ...] = (1, 2, 3)
    """Dimensions of the inputs."""
    candidates: int = 2000
    """Points that the greedy choice is made from, drawn at random; the corners of the cube come on top."""


@dataclass(frozen=True)
class Calibration(_Common):
    """How often confidence intervals hold, everywhere and at all times, for random functions and kinds of noise."""

    repeats: int = 100
    """Random functions a kernel and kind of noise."""
    points: int = 60
    """Observations of a function, each chosen by what is known so far."""
    delta: float = 0.1
    """Probability with which an interval may fail."""


@dataclass(frozen=True)
class Optimism(_Common):
    """The lemmas on optimism, returns and single episodes, on random systems; what happens when beta is too small."""

    draws: int = 2000
    """Random systems, each with data and policies of its own."""
    kernel: KernelName = "rbf"
    """Kernel of dynamics and reward."""


@dataclass(frozen=True)
class Simulation(_Common):
    """The simulation lemma for noise that is not Gaussian, and the Lipschitz constant of the value behind it."""

    draws: int = 300
    """Random systems, each with data and a policy of its own."""


@dataclass(frozen=True)
class Regret(_Common):
    """Cumulative regret of optimistic, greedy and random agents, with the exponent of its growth."""

    kernel: KernelName = "rbf"
    """Kernel of dynamics and reward."""
    system: Literal["lq", "hills", "pendulum"] | None = None
    """What is learned; None: lq for the linear kernel, hills for the others."""
    episodes: int = 100
    """Episodes of an agent."""
    repeats: int = 20
    """Agents of a kind, each with draws of its own."""
    scale: tuple[float, ...] = ()
    """Shares of the proof's coefficients, an agent each; 1 is the proof. None given: 1, 0.1, 0.01 and 0.001; with
    --ablation 0.001."""
    noise: NoiseName = "gaussian"
    """Noise of the state."""
    infinite: Switch = False
    """Infinite horizon, with a terminal value, in place of a fixed one."""
    ablation: Switch = False
    """In place of the shares, agents that lack one of the bonuses, or have one alone; needs --infinite."""


@dataclass(frozen=True)
class Suboptimality(_Common):
    """A planner that loses up to epsilon a step: constant, falling, or by a budget of actions that it looks at."""

    episodes: int = 100
    """Episodes of an agent."""
    repeats: int = 20
    """Agents of a kind."""
    epsilon: tuple[float, ...] = (0.05, 0.1, 0.2)
    """What the planner may lose a step."""


@dataclass(frozen=True)
class Preferences(_Common):
    """Beyond the paper: the same agent, with a reward that is learned from comparisons of episodes."""

    episodes: int = 60
    """Episodes of an agent."""
    repeats: int = 10
    """Agents of a kind."""
    labels: int = 4
    """Comparisons after each episode."""


@dataclass(frozen=True)
class Ensembles(_Common):
    """Beyond the paper: deep ensembles beside the exact posterior on the same data, and where each can be believed."""

    repeats: int = 10
    """Random functions."""
    points: int = 40
    """Observations of each."""
    members: int = 5
    """Networks of an ensemble."""
    updates: int = 2000
    """Gradient steps of a fit."""


@dataclass(frozen=True)
class Report(_Common):
    """All of the above on one page."""

    repeats: int = 10
    """Agents of a kind in the studies of regret; the other studies follow."""
    episodes: int = 100
    """Episodes of an agent."""
    workers: int = 2
    """Studies at the same time."""


@dataclass(frozen=True)
class Theory:
    """Run the theory of the paper: information gain, calibration, optimism, regret, all on one page (report)."""

    what: Annotated[
        Annotated[Gain, tyro.conf.subcommand("gain")]
        | Annotated[Calibration, tyro.conf.subcommand("calibration")]
        | Annotated[Optimism, tyro.conf.subcommand("optimism")]
        | Annotated[Simulation, tyro.conf.subcommand("simulation")]
        | Annotated[Regret, tyro.conf.subcommand("regret")]
        | Annotated[Suboptimality, tyro.conf.subcommand("suboptimality")]
        | Annotated[Preferences, tyro.conf.subcommand("preferences")]
        | Annotated[Ensembles, tyro.conf.subcommand("ensembles")]
        | Annotated[Report, tyro.conf.subcommand("report")],
        tyro.conf.arg(name=""),
    ]


_LEAST = {  # of each number that a study may take; several numbers are each looked at
    "repeats": 1,
    "episodes": 4,
    "points": 2,
    "candidates": 2,
    "draws": 1,
    "dimensions": 1,
    "labels": 1,
    "members": 2,
    "updates": 1,
    "workers": 1,
    "scale": 0,
    "epsilon": 0,
    "seed": 0,
}


def check(what: _Common) -> None:
    """Refuse what cannot be computed, before anything heavy is imported."""
    check_least(what, _LEAST)
    if isinstance(what, Gain) and max(what.dimensions, default=1) > 12:
        raise UserError(
            f"--dimensions are at most 12, because all corners of the cube are candidates, got {max(what.dimensions)}"
        )
    for name in ("dimensions", "epsilon"):
        if getattr(what, name, None) == ():
            raise UserError(f"--{name} needs at least one number, such as --{name} 1")
    delta = getattr(what, "delta", 0.5)
    if not 0 < delta < 1:
        raise UserError(f"--delta must lie between 0 and 1, got {delta}")
    if isinstance(what, Regret) and what.ablation:
        if not what.infinite:
            raise UserError("--ablation needs --infinite: with a fixed horizon there is no bonus on the value")
        if len(what.scale) > 1:
            raise UserError(f"--ablation takes one --scale, got {len(what.scale)}")
