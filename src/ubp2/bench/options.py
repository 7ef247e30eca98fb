"""What `ubp2 bench ...` takes. Imports nothing heavy: `ubp2 bench --help` is as instant as all help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ubp2.errors import UserError
from ubp2.terminal.flags import Json, Switch, check_least

__all__ = ["All", "Bench", "Encoder", "Envs", "Pebble", "Plan", "Start", "Train", "Update", "check"]

BENCHES = ("plan", "update", "pebble", "train", "envs", "encoder", "start", "all")


@dataclass(frozen=True)
class _Output:
    """How the numbers come out."""

    out: Path | None = None
    """Also write the JSON object to this file."""
    json: Json = False


@dataclass(frozen=True)
class _Preset(_Output):
    """Sizes of networks and plans."""

    preset: str | None = None
    """Sizes: best, cpu, demo or paper; None: paper on a GPU, cpu elsewhere."""
    config: Path | None = None
    """YAML file with settings that are laid over the preset, as ubp2 train takes it."""


@dataclass(frozen=True)
class _Sizes(_Preset):
    """What one program computes."""

    seeds: tuple[int, ...] = (1,)
    """Seeds in one program; several numbers give a row each."""
    space: Literal["observation", "latent"] | None = None
    """Space of the model; None: that of the preset."""
    precision: Literal["auto", "float32", "bfloat16"] | None = None
    """Type of the factors in products; None: that of the preset."""
    repetitions: int = 30
    """Calls that a median is taken over, fewer where they take more than some seconds."""
    profile: Switch = False
    """On a GPU, also say which kernels the device time goes into."""


@dataclass(frozen=True)
class Plan(_Sizes):
    """One plan: milliseconds, arithmetic, speed-up over a loop over members, agreement of bfloat16 with float32."""

    grow: Switch = False
    """Also how the time grows with seeds, samples, horizon, width and members, each alone."""


@dataclass(frozen=True)
class Update(_Sizes):
    """One gradient step on everything: milliseconds and arithmetic."""


@dataclass(frozen=True)
class Pebble(_Output):
    """PEBBLE's reward fit, the rewards of a whole replay, a step of SAC: milliseconds and speed-up over loops."""

    config: Path | None = None
    """YAML file with settings that are laid over PEBBLE's sizes for Meta-World, as ubp2 train takes it."""
    seeds: tuple[int, ...] = (1,)
    """Seeds in one program; several numbers give a row each."""
    labels: int = 200
    """Labels that the reward is fitted to."""
    epochs: int = 10
    """Passes over them."""
    replay: int = 100_000
    """Transitions that get new rewards."""
    repetitions: int = 30
    """Calls that a median is taken over, fewer where they take more than some seconds."""


@dataclass(frozen=True)
class Train(_Preset):
    """A short run: decisions a second while planning and afterwards, and where the time of a decision goes."""

    env: str = "metaworld/door-close"
    """Environment id."""
    decisions: int = 300
    """Decisions of each of four measurements: planning and policy, each as it runs and with every call waited for."""
    seeds: tuple[int, ...] = (1,)
    """Seeds that train together; several numbers give a run each."""


@dataclass(frozen=True)
class Envs(_Output):
    """Environments: microseconds a decision here and in a worker, many workers in lock-step, resets side by side."""

    env: tuple[str, ...] = ("toy/reach", "metaworld/door-close")
    """Environment ids."""
    workers: tuple[int, ...] | None = None
    """Numbers of workers in lock-step; None: 1, 4 and 16, as far as this machine has half as many cores."""
    repetitions: int = 200
    """Decisions that a median is taken over."""


@dataclass(frozen=True)
class Encoder(_Output):
    """Encoders of frames, with random weights of the real sizes: frames a second, memory, seconds to compile."""

    name: tuple[str, ...] | None = None
    """Encoders; None: conv and dinov2-small, on a GPU also dinov2-base and dinov2-large."""
    batch: tuple[int, ...] = (1, 16, 64)
    """Frames that are encoded together, one an environment."""
    pixels: int = 112
    """Side of the square frame; a multiple of 14 for DINOv2."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the factors in the products of DINOv2; auto: bfloat16 on a GPU, float32 elsewhere."""
    repetitions: int = 30
    """Calls that a median is taken over, fewer where they take more than some seconds."""


@dataclass(frozen=True)
class Start(_Preset):
    """From the command to the first decision and the first plan, with nothing compiled yet and with a filled cache."""

    env: str = "metaworld/door-close"
    """Environment id."""
    seeds: int = 1
    """Seeds that train together."""


@dataclass(frozen=True)
class All(_Output):
    """All of the above in a few minutes on a CPU: plan, update, pebble, envs, train on two environments, start."""


@dataclass(frozen=True)
class Bench:
    """Measure how fast this machine plans, learns, trains, sees and starts; all: most of it."""

    what: Annotated[
        Annotated[Plan, tyro.conf.subcommand("plan")]
        | Annotated[Update, tyro.conf.subcommand("update")]
        | Annotated[Pebble, tyro.conf.subcommand("pebble")]
        | Annotated[Train, tyro.conf.subcommand("train")]
        | Annotated[Envs, tyro.conf.subcommand("envs")]
        | Annotated[Encoder, tyro.conf.subcommand("encoder")]
        | Annotated[Start, tyro.conf.subcommand("start")]
        | Annotated[All, tyro.conf.subcommand("all")],
        tyro.conf.arg(name=""),
    ]


_LEAST = {
    **dict.fromkeys(("seeds", "workers", "repetitions", "labels", "epochs", "replay", "batch", "pixels"), 1),
    "decisions": 20,
}


def check(what: object) -> None:
    """Refuse numbers that cannot be measured, before anything heavy is imported."""
    for name in ("seeds", "workers", "batch"):
        if getattr(what, name, None) == ():
            raise UserError(f"--{name} needs at least one number, such as --{name} 1 4")
    for name in ("env", "name"):
        if getattr(what, name, None) == ():
            raise UserError(f"--{name} needs at least one name, or leave it out")
    check_least(what, _LEAST)
    config = getattr(what, "config", None)
    if config is not None and not config.is_file():
        raise UserError(f"there is no configuration file {config}")
    out = getattr(what, "out", None)
    if out is not None and out.is_dir():
        raise UserError(f"--out is a file, and {out} is a folder; name a file in it, such as {out / 'bench.json'}")
    if out is not None and not out.parent.is_dir():
        raise UserError(f"there is no folder {out.parent} to write {out.name} into; make it first")
