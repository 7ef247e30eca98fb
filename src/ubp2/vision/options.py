"""What `ubp2 encoder ...` takes. Imports nothing heavy: its help is as instant as all help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ubp2.config.sections import LEAST_PIXELS, is_visual
from ubp2.errors import UserError
from ubp2.terminal.flags import Json, Switch, check_least

__all__ = ["LEAST_FRAMES", "WORKS", "Encoder", "check"]

WORKS = ("train",)
LEAST_FRAMES = 120  # that an encoder can learn from at all


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
    check_least(args, {"frames": LEAST_FRAMES, "updates": 1, "pixels": LEAST_PIXELS, "workers": 1, "seed": 0})
    if args.out.is_dir():
        raise UserError(f"--out is a file, and {args.out} is a folder; name a file in it, such as encoder.npz")
    if not is_visual(args.env):
        suite, slash, task = args.env.partition("/")
        meant = f"did you mean {suite}-visual/{task}?" if slash else "name one such as dmc-visual/walker-walk"
        raise UserError(f"an encoder learns from frames, and {args.env} has none; {meant}")
