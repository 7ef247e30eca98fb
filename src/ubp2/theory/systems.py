"""Systems with a known optimum: linear-quadratic, two hills, a pendulum, and random ones.

Each is first written down as one would, then replaced by the function of the kernel's space that fits it best, so that
the assumptions of the theory hold exactly and the norms that it asks for are known. States and actions lie in [-1, 1].
The models learn the change of the state: the theory is the same with the state subtracted on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy import ndarray as Array

from ubp2.errors import UserError, unknown_name
from ubp2.theory.functions import nearest, random_member
from ubp2.theory.grid import Grid, Transitions, transitions
from ubp2.theory.kernels import Kernel
from ubp2.theory.noise import Noise

__all__ = ["SYSTEMS", "System", "make_system", "random_system"]


class System(NamedTuple):
    """A decision process whose dynamics and reward lie in the spaces of their kernels, with norms that are known."""

    grid: Grid
    actions: Array  # [A, 1]
    change: Array  # [S, A, d] of the state, without noise
    reward: Array  # [S, A]
    noise: Noise  # of the state
    reward_noise: Noise  # of observed rewards
    start: int
    horizon: int
    gamma: float
    dynamics_kernel: Kernel
    reward_kernel: Kernel
    dynamics_norm: float
    reward_norm: float

    @property
    def inputs(self) -> Array:
        """Every pair of a state and an action [S A, d + 1], actions fastest."""
        return _inputs(self.grid.points, self.actions)

    @property
    def law(self) -> Transitions:
        return self.law_of(self.change)

    def law_of(self, change: Array) -> Transitions:
        """The law of the next state for other changes of it [S, A, d]."""
        return transitions(self.grid, self.grid.points[:, None] + change, self.noise)

    @property
    def span(self) -> float:
        return float(np.ptp(self.reward))


def _inputs(points: Array, actions: Array) -> Array:
    states, many = len(points), len(actions)
    return np.hstack([np.repeat(points, many, axis=0), np.tile(actions, (states, 1))])


class _Sketch(NamedTuple):
    """A system as one would write it down: change and reward as functions of inputs [n, d + 1]."""

    sizes: tuple[int, ...]  # points of the grid along each axis
    actions: int
    change: Callable[[Array], Array]
    reward: Callable[[Array], Array]
    start: tuple[float, ...]
    noise: float
    horizon: int
    gamma: float


def _hills_reward(x: Array) -> Array:
    return 0.35 * np.exp(-((x[:, 0] + 0.45) ** 2) / 0.045) + np.exp(-((x[:, 0] - 0.8) ** 2) / 0.045)


def _pendulum_change(x: Array) -> Array:
    """An angle of pi x, hanging at 0, and a velocity of 2 y; the torque alone does not lift it: g > u."""
    angle, velocity, step = np.pi * x[:, 0], 2 * x[:, 1], 0.35
    return np.column_stack([step * velocity / np.pi, step * (1.2 * x[:, 2] - 1.5 * np.sin(angle) - 0.1 * velocity) / 2])


SYSTEMS = {
    # s' = 0.9 s + 0.3 a, reward 1 - s^2 - 0.1 a^2: Riccati's equation knows the answer
    "lq": _Sketch(
        (41,),
        11,
        lambda x: (-0.1 * x[:, 0] + 0.3 * x[:, 1])[:, None],
        lambda x: 1 - x[:, 0] ** 2 - 0.1 * x[:, 1] ** 2,
        (0.9,),
        noise=0.05,
        horizon=10,
        gamma=0.9,
    ),
    # a low hill beside the start, a high one further away: who does not look stays on the low one
    "hills": _Sketch(
        (41,),
        7,
        lambda x: (0.25 * x[:, 1] * (1 + 0.2 * np.sin(3 * x[:, 0])))[:, None],
        _hills_reward,
        (-0.4,),
        noise=0.05,
        horizon=10,
        gamma=0.95,
    ),
    "pendulum": _Sketch(
        (21, 15),
        5,
        _pendulum_change,
        lambda x: (1 - np.cos(np.pi * x[:, 0])) / 2,
        (0.0, 0.0),
        noise=0.05,
        horizon=16,
        gamma=0.95,
    ),
}
_LENGTHS = {"lq": 1.0, "hills": 0.4, "pendulum": 0.6}


def make_system(name: str, kernel: str, noise: str = "gaussian") -> System:
    """A named system, in the space of a kernel."""
    if name not in SYSTEMS:
        raise unknown_name("system", name, SYSTEMS)
    if kernel == "linear" and name != "lq":
        raise UserError(f"{name} is not linear: the linear kernel is for lq; take --kernel rbf or matern for {name}")
    sketch = SYSTEMS[name]
    grid = Grid(tuple(np.linspace(-1, 1, size) for size in sketch.sizes))
    dynamics = Kernel(kernel, length=_LENGTHS[name])
    reward = Kernel(kernel, length=_LENGTHS[name], degree=2)
    return _realised(sketch, grid, dynamics, reward, noise)


def _realised(sketch: _Sketch, grid: Grid, dynamics: Kernel, reward: Kernel, noise: str) -> System:
    """Fit both functions at every other point of each axis and read them at every point."""
    actions = np.linspace(-1, 1, sketch.actions)[:, None]
    inputs = _inputs(grid.points, actions)
    coarse = _inputs(Grid(tuple(axis[::2] for axis in grid.axes)).points, actions)
    change = nearest(dynamics, coarse, sketch.change(coarse))
    worth = nearest(reward, coarse, sketch.reward(coarse)[:, None])
    shape = (len(grid.points), len(actions))
    return System(
        grid,
        actions,
        change(inputs).reshape(*shape, -1),
        worth(inputs).reshape(shape),
        Noise(noise, sketch.noise),
        Noise("gaussian", sketch.noise),
        grid.nearest(np.array(sketch.start)),
        sketch.horizon,
        sketch.gamma,
        dynamics,
        reward,
        change.norm,
        worth.norm,
    )


def random_system(
    rng: np.random.Generator,
    kernel: str,
    states: int = 21,
    actions: int = 4,
    horizon: int = 6,
    gamma: float = 0.9,
) -> System:
    """One state and one action; change and reward are random functions of norms 0.5 and 1 in the kernel's space."""
    grid = Grid((np.linspace(-1, 1, states),))
    choices = np.linspace(-1, 1, actions)[:, None]
    own = Kernel(kernel, length=0.5)
    inputs = _inputs(grid.points, choices)
    change = random_member(rng, own, 2, norm=0.5)
    worth = random_member(rng, own, 2, norm=1.0)
    return System(
        grid,
        choices,
        change(inputs).reshape(states, actions, 1),
        worth(inputs).reshape(states, actions),
        Noise("gaussian", 0.1),
        Noise("gaussian", 0.1),
        int(rng.integers(states)),
        horizon,
        gamma,
        own,
        own,
        change.norm,
        worth.norm,
    )
