"""What `ubp2 lab ...` takes. Imports nothing heavy: `ubp2 lab --help` is as instant as all help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ubp2.config.presets import DEFAULT_PRESET
from ubp2.errors import UserError
from ubp2.terminal.flags import Json, Switch, check_least

__all__ = ["Reward", "check"]

LABS = ("reward",)


@dataclass(frozen=True)
class Reward:
    """Try out the reward model on the episodes of runs: settings side by side, each fitted to the same labels."""

    name: Annotated[Literal["reward"], tyro.conf.Positional]
    """Which laboratory."""
    data: tuple[Path, ...]
    """Run folders whose episodes are used; a folder of several seeds stands for all of them."""
    preset: str = DEFAULT_PRESET
    """What the settings are laid over: best, cpu, demo or paper."""
    settings: Path | None = None
    """YAML file of settings, 'name: {dotted field: value, ...}' each; None: those of --set, or a built-in list."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """One more setting as in the file, such as 'linear head: {model.reward_head: linear}'; can be repeated."""
    labels: tuple[int, ...] = (24, 96, 200)
    """Numbers of labels to fit to."""
    repeats: int = 2
    """Fits of each setting to each number of labels, with other labels and other initial parameters."""
    updates: int = 500
    """Gradient steps of a fit."""
    held_out: float = 0.25
    """Share of the episodes that is kept for measuring."""
    seed: int = 0
    """Seed of everything random: which episodes are held out, the labels and the fits."""
    out: Path | None = None
    """Also write results.json, results.csv, reliability.png and labels.png into this folder."""
    quiet: Switch = False
    """Show no progress."""
    json: Json = False


def check(what: Reward) -> None:
    """Refuse what cannot be measured, before any episode is read."""
    if not what.data:
        raise UserError("--data needs at least one run folder: ubp2 lab reward --data RUN")
    if not what.labels:
        raise UserError("--labels needs at least one number, such as --labels 24 96")
    if len(set(what.labels)) < len(what.labels):
        raise UserError(f"--labels names a number twice: {' '.join(map(str, what.labels))}; name each once")
    check_least(what, {"labels": 1, "repeats": 1, "updates": 1, "seed": 0})
    if not 0 < what.held_out < 1:
        raise UserError(f"--held-out must lie between 0 and 1, got {what.held_out}")
    if what.out is not None and what.out.exists() and not what.out.is_dir():
        raise UserError(f"--out is a folder, and {what.out} is a file; name another")
