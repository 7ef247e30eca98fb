"""What the rest of the package knows of an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ubp2.errors import UserError
from ubp2.types import Step

__all__ = ["Env", "EnvSpec", "Faulty", "Lost", "Outcome", "VectorEnv"]


class Faulty(UserError):
    """An environment raised an exception, returned what it must not, or cannot be replaced.

    `others` has the same of further environments, and `lost` those that died meanwhile; the answers of the rest are
    here as they are in `Lost`.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index
        self.others: list[Faulty] = []
        self.lost: Lost | None = None
        self.step: Step | None = None
        self.observations: dict[int, np.ndarray] = {}

    @property
    def all(self) -> list[Faulty]:
        """This and the others."""
        return [self, *self.others]


class Lost(UserError):
    """The processes of some environments died or hung, and their episodes with them; `VectorEnv.revive` starts others.

    The answers of the other environments are here. Who does not catch this stops with a sentence that says what
    happened.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = dict(reasons)  # of each that is lost
        self.indices = list(reasons)
        self.step: Step | None = None  # of a `receive`; rows of lost environments mean nothing
        self.observations: dict[int, np.ndarray] = {}  # of a `receive_resets`


class EnvSpec(NamedTuple):
    """Sizes and clock of an environment."""

    id: str
    obs_dim: int
    action_dim: int
    episode_decisions: int  # decisions until truncation
    action_repeat: int
    fps: int  # frames a second at which clips play in real time: one frame a decision
    has_success: bool  # whether the environment reports success at all
    action_low: tuple[float, ...]  # bounds of the environment's own actions, which [-1, 1] is mapped to
    action_high: tuple[float, ...]
    pixels: int = 0  # observations are square RGB frames of this side, flat, as workers hand them over; 0: numbers

    @property
    def obs_type(self) -> type[np.uint8] | type[np.float32]:
        """The type of an observation."""
        return np.uint8 if self.pixels else np.float32

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> EnvSpec:
        """The spec whose `_asdict` went through JSON, which has no tuples."""
        bounds = {name: tuple(fields[name]) for name in ("action_low", "action_high")}
        return cls(**{**fields, **bounds})


class Outcome(NamedTuple):
    """One decision in one environment."""

    obs: np.ndarray  # [D] float32, or uint8 for frames
    true_reward: float
    terminated: bool
    truncated: bool
    success: bool


class Env(Protocol):
    """One environment in the current process. Actions are in [-1, 1]; an episode is a pure function of
    (seed, actions): `reset(seed)` leaves nothing of earlier episodes."""

    spec: EnvSpec
    cameras: tuple[str, ...]  # what `render` takes, the most telling first; empty: one view, without a name

    def reset(self, seed: int) -> np.ndarray: ...  # [D] float32

    def step(self, action: np.ndarray) -> Outcome: ...

    # [height, width, 3] uint8. None: the first camera, and the environment's own size; `size` is a wish in pixels,
    # which not every environment hears.
    def render(self, camera: str | None = None, size: int | None = None) -> np.ndarray: ...

    def close(self) -> None: ...


class VectorEnv(Protocol):
    """W environments that step in lock-step, in worker processes (`ubp2.envs.workers`) or in this process.

    `send` and `receive` are the two halves of a step, so that the device can work while the CPU simulates.
    There is no automatic reset: the caller resets the environments it wants, by index, with a seed each.
    `send_resets` and `receive_resets` are the halves of a reset: several environments reset at the same time, and the
    caller does something else meanwhile.

    Whatever waits for an environment may raise `Lost` or `Faulty`, once every other one has answered.
    """

    spec: EnvSpec  # of the first; sizes of observations, actions and episodes are those of all
    specs: Sequence[EnvSpec]
    size: int

    def reset(self, index: int, seed: int) -> np.ndarray: ...  # [D]

    def send_resets(self, seeds: Mapping[int, int]) -> None: ...  # index -> seed

    def receive_resets(self) -> dict[int, np.ndarray]: ...  # index -> [D]

    def send(self, actions: np.ndarray, which: Sequence[int] | None = None) -> None: ...  # [W, A]; None: all step

    def receive(self) -> Step: ...  # rows of environments that did not step mean nothing

    def render(self, index: int) -> np.ndarray: ...

    # Start them anew: they need a reset. UserError where that is hopeless, and Lost once the run is to stop: nobody
    # waits then for what would not be used.
    def revive(self, lost: Lost) -> None: ...

    def heed(self, stopping: Callable[[], bool]) -> None: ...  # while this is True, wait for nobody very long

    def close(self) -> None: ...
