"""What `ubp2 tune` takes. Imports nothing heavy: its help is as instant as all help."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ubp2.config.presets import DEFAULT_PRESET
from ubp2.errors import UserError
from ubp2.terminal.flags import Json, Switch

__all__ = ["TRIALS", "Tune", "check"]

TRIALS = 20


@dataclass(frozen=True)
class Tune:
    """Search settings for an environment with Ray Tune: many runs, of which the worse are stopped early (ASHA)."""

    env: str | None = None
    """Environment id, such as toy/reach or gym/my_package:MyEnv-v0."""
    preset: str = DEFAULT_PRESET
    """Where the settings come from that are not searched."""
    config: Path | None = None
    """YAML file of settings, laid over the preset."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A setting for every trial, such as 'model.width: 128'; can be repeated."""
    space: Path | None = None
    """YAML file of what is searched (docs/tune.md); None: what matters most for the agent."""
    trials: int | None = None
    """Settings to try, of which the first are those of the preset as they are; None: 20, or those of --resume."""
    steps: int | None = None
    """Decisions of a trial that is not stopped early; None: those of the preset."""
    seeds: int = 1
    """Seeds of a trial, which train together; its score is their mean."""
    seed: int = 0
    """First seed of every trial, and the seed of what is drawn."""
    score: Literal["auto", "success", "return"] = "auto"
    """What is compared: the rate of success or the true return in evaluation; auto: success where there is one."""
    reduction: float = 3.0
    """Of so many trials that come to a rung one goes on; rungs lie apart by the same factor."""
    grace: int | None = None
    """Decisions before a trial may be stopped; None: a share of the run, and not before labels can have mattered."""
    out: Path | None = None
    """Folder of the trials; None: runs/tune-ENV-PRESET-STEPS. The same command again goes on, also with more trials."""
    resume: Path | None = None
    """Folder of an earlier search to go on with, as it was asked for; only --trials may grow."""
    address: str | None = None
    """Ray cluster, all of whose nodes see the folder; None: that at RAY_ADDRESS, that of this machine, or a new one."""
    jobs: int | None = None
    """Most trials at a time; None: as many as there are cores and GPUs for."""
    cpus: float | None = None
    """Cores of a trial; None: what its seeds need."""
    gpus: float | None = None
    """GPUs of a trial, a share such as 0.25 too; None: what its seeds need of one, where the cluster has any."""
    retries: int = 2
    """How often a trial that failed, or whose node died, is tried again, from its last checkpoint."""
    dry_run: Switch = False
    """Show the trials, and stop."""
    json: Json = False


def check(args: Tune) -> None:
    """Refuse numbers that cannot work."""
    for name in ("trials", "seeds", "steps", "grace", "jobs"):
        number = getattr(args, name)
        if number is not None and number < 1:
            raise UserError(f"--{name} must be at least 1, got {number}")
    for name in ("seed", "retries", "gpus"):
        number = getattr(args, name)
        if number is not None and number < 0:
            raise UserError(f"--{name} must not be negative, got {number}")
    if args.cpus is not None and not args.cpus > 0:
        raise UserError(f"--cpus must be above 0, got {args.cpus}")
    if not args.reduction > 1:
        raise UserError(f"--reduction must be above 1, got {args.reduction}: at 3 a third goes on at each rung")
    if args.resume is not None:
        _check_resume(args)
    elif args.env is None:
        raise UserError("ubp2 tune needs an environment: --env toy/reach, or --resume DIR to go on with a search")


_FREE = ("trials", "resume", "address", "jobs", "cpus", "gpus", "retries", "dry_run", "json")  # with --resume


def _check_resume(args: Tune) -> None:
    """A search goes on as it was asked for, on whatever machine."""
    changed = [
        each.name for each in fields(args) if each.name not in _FREE and getattr(args, each.name) != each.default
    ]
    if changed:
        names = ", ".join(f"--{name}" for name in changed)
        raise UserError(f"--resume goes on with the search as it was asked for; leave out {names}")
