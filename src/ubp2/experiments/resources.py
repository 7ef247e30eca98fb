"""Needs of a program, computed from its configurations: cores, and a share of a GPU.

Schedulers place programs by it. Both rules go by measurements on an H200 with 16 cores (docs/performance.md):

- cores: with 16 seeds an environment process is busy a quarter of the time, so that four share a core; the loop itself
  takes one. Without a GPU the programs run on the cores, too, and get at least the two on which times were measured.
- GPU: the memory of all seeds over that of the device, and never less than a quarter. Four programs side by side gained
  all that they could gain; beyond that they wait for each other.
"""

from __future__ import annotations

import functools
import math
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ubp2.config.schema import Config, given
from ubp2.errors import UserError, unknown_name

__all__ = [
    "MOST",
    "Part",
    "Resources",
    "Shape",
    "gpu_megabytes",
    "largest",
    "most_together",
    "needed",
    "needed_together",
    "overriding",
]

_ENVIRONMENTS_A_CORE = 4
_LEAST_SHARE = 0.25
_CONTEXT = 600.0  # MB that CUDA and its libraries take before the first array
_SPARE = 1.5  # jax asks for memory in growing pieces, and does not use all of each
_UNKNOWN_DEVICE = 16_000.0  # MB; where nobody can be asked, as on the login node of a cluster
_FULL = 0.9  # of a device that a program of many may fill
MOST = 64  # runs in a program unless told: so many were measured (docs/scale.md), and more gain nothing


@dataclass(frozen=True)
class Shape:
    """Sizes that an environment gives to what is computed."""

    obs: int
    action: int


@dataclass(frozen=True)
class Resources:
    """Of one group while it trains; gpus: a share, 0 where it runs on cores alone."""

    cpus: int
    gpus: float = 0.0
    megabytes: float = 0.0  # of GPU memory, estimated

    def words(self) -> str:
        """As a person reads it."""
        cores = f"{self.cpus} core{'s' if self.cpus > 1 else ''}"
        return cores if not self.gpus else f"{cores}, {self.gpus:g} GPU ({self.megabytes / 1000:.1f} GB)"


class Part(NamedTuple):
    """Runs of one configuration in a program."""

    config: Config
    seeds: int
    shape: Shape


def needed(config: Config, seeds: int, shape: Shape, *, gpu: bool, device: float | None = None) -> Resources:
    """What `seeds` seeds in one program take; gpu: whether they get any; device: its memory in MB, None: asked."""
    return needed_together([Part(config, seeds, shape)], gpu=gpu, device=device)


def needed_together(parts: Sequence[Part], *, gpu: bool, device: float | None = None) -> Resources:
    """Needs of runs of several configurations in one program."""
    workers = sum(part.seeds for part in parts if not part.config.environment.in_process)
    environments = math.ceil(workers / _ENVIRONMENTS_A_CORE)
    if not gpu:
        return Resources(max(1 + environments, 2))
    wanted = _megabytes(parts)
    share = wanted / (device or _device())
    return Resources(1 + environments, _rounded(max(share, _LEAST_SHARE)), wanted)


def most_together(config: Config, shape: Shape, beside: int = 1) -> int:
    """How many such runs one program on a GPU may have: as its memory allows, and not more than were measured.

    beside: programs that share the GPU, this one included.
    """
    room = _FULL * _device() / beside
    return next((n for n in range(MOST, 1, -1) if _megabytes([Part(config, n, shape)]) <= room), 1)


def _megabytes(parts: Sequence[Part]) -> float:
    """Memory of the device for a program, with what it does not tell of."""
    sums = [_memory(*part) for part in parts]
    arrays = sum(own.kept for own in sums) + max(sum(own.update for own in sums), max(own.session for own in sums))
    return _CONTEXT + _SPARE * arrays


def gpu_megabytes(config: Config, seeds: int, shape: Shape) -> float:
    """Arrays on the device at once: replay, networks with their optimiser, and the larger of an update and a session.

    Held against `device mb` of short runs on Door Close (benchmarks/results/reproduce): best, 1 and 10 seeds, 170 and
    890 MB, here 86 and 861; paper 1,550 and 1,764 MB, here 1,746 and 2,714; 16 seeds 2,824 MB, here 3,483.
    """
    own = _memory(config, seeds, shape)
    return own.kept + max(own.update, own.session)


class _Memory(NamedTuple):
    """MB: what stays, and what an update of all seeds and the session of one take while they last."""

    kept: float
    update: float
    session: float


def _memory(config: Config, seeds: int, shape: Shape) -> _Memory:
    model, prefs = config.model, config.preferences
    members = model.dynamics_members + model.reward_members + model.value_members
    networks = members + model.value_members + 2  # target values, policy and its target
    inputs = shape.obs + shape.action if model.space == "observation" else model.latent_dim + shape.action
    parameters = model.width * (inputs + model.width * (model.depth - 1) + shape.obs)
    kept = networks * parameters * 4  # numbers, two moments of Adam, a gradient
    unit = model.width * model.depth  # activations of one network at one place
    update = seeds * config.training.batch_size * given(config.training.horizon) * members * unit
    looked_at = 0 if prefs.strategy == "uniform" else 4 * prefs.candidates * prefs.segment_length
    session = looked_at * model.reward_members * unit  # one seed at a time
    frames = seeds * given(config.training.replay_capacity) * (shape.obs + shape.action + 3)
    return _Memory(*(4 * numbers / 1e6 for numbers in (frames + seeds * kept, update, session)))


def overriding(found: Resources, override: Mapping[str, Any]) -> Resources:
    """Computed resources with those that a user has given in their place."""
    return Resources(override.get("cpus", found.cpus), override.get("gpus", found.gpus), found.megabytes)


def checked(override: Any) -> dict[str, Any]:
    """The `resources` of a file: any of cpus and gpus."""
    if not isinstance(override, Mapping):
        raise UserError(f"resources must be a table such as {{cpus: 4, gpus: 0.5}}, got {override!r}")
    for name, value in override.items():
        if name not in ("cpus", "gpus"):
            raise unknown_name("resource", str(name), ("cpus", "gpus"))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < (name == "cpus"):
            raise UserError(f"resources.{name} must be a number, at least {int(name == 'cpus')}, got {value!r}")
    return {**override, **({"cpus": math.ceil(override["cpus"])} if "cpus" in override else {})}


def largest(several: list[Resources]) -> Resources:
    """What is enough for each of them."""
    return Resources(
        max(one.cpus for one in several), max(one.gpus for one in several), max(one.megabytes for one in several)
    )


def _rounded(share: float) -> float:
    """Up to the next twentieth, and above one to whole devices: a program runs on one, which must then be larger."""
    return 1.0 if share >= 1 else math.ceil(share * 20) / 20


def _device() -> float:
    return _device_megabytes() or _UNKNOWN_DEVICE


@functools.cache
def _device_megabytes() -> float | None:
    """Memory of the smallest GPU here; None where there is none to ask."""
    if shutil.which("nvidia-smi") is None:
        return None
    ask = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(ask, capture_output=True, text=True, timeout=20, check=True).stdout
        return min(float(line) for line in told.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
