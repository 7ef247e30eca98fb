"""What `ubp2 encoder ...` takes. Imports nothing heavy: its help is as instant as all help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ubp2.errors import UserError
from ubp2.terminal.flags import Json, Switch

__all__ = ["WORKS", "Encoder", "check"]

WORKS = ("train",)


@dataclass(frozen=True)
class Encoder:
    """Train a small convolutional encoder on the frames of an environment, for runs without published weights."""

    work: Annotated[Literal["train"], tyro.conf.Positional]
    """What to do."""
    env: str
    """Environment id with frames, such as dmc-visual/walker-walk."""
    out: Path
    """File to write; a run takes it with --visual.encoder conv --visual.weights FILE."""
    frames: int = 6000
    """Frames of random actions that it learns from."""
    updates: int = 2000
    """Gradient steps."""
    pixels: int = 112
    """Side of the square frame; runs need the same."""
    camera: str | None = None
    """Camera of the environment; None: the first."""
    workers: int = 2
    """Environment processes that render side by side."""
    seed: int = 0
    """Seed of the episodes, the actions and the weights."""
    quiet: Switch = False
    """Show no progress."""
    json: Json = False


def check(args: Encoder) -> None:
    """Refuse what cannot be trained, before anything heavy is imported."""
    for name in ("frames", "updates", "pixels", "workers"):
        if getattr(args, name) < 1:
            raise UserError(f"--{name} must be at least 1, got {getattr(args, name)}")
    if args.seed < 0:
        raise UserError(f"--seed must not be negative, got {args.seed}")
    if args.out.is_dir():
        raise UserError(f"--out is a file, and {args.out} is a folder; name a file in it, such as encoder.npz")
    if "-visual/" not in args.env:
        suite, _, task = args.env.partition("/")
        raise UserError(f"an encoder learns from frames, and {args.env} has none; did you mean {suite}-visual/{task}?")
