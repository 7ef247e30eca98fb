"""Seeds as an axis: functions of one run, lifted over trees whose arrays have a leading axis [S].

Nothing below `training/` knows of this axis. With one seed it is a reshape, which costs nothing; with several it is
`jax.vmap`, so that S runs are one program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["at", "join", "lift", "take"]

Tree = TypeVar("Tree")


def lift(function: Callable[..., Any], seeds: int, axes: Sequence[int | None]) -> Callable[..., Any]:
    """`function` of one run for `seeds` runs. axes: 0 for an argument with a seed axis, None for one they share."""
    if seeds > 1:
        return jax.vmap(function, in_axes=tuple(axes))

    def alone(*arguments: Any) -> Any:
        own = [_squeeze(x) if axis == 0 else x for x, axis in zip(arguments, axes, strict=True)]
        return jax.tree.map(lambda x: jnp.expand_dims(x, 0), function(*own))

    return alone


def at(tree: Tree, seed: Array, seeds: int) -> Tree:
    """The part of one seed, by a traced index: sessions of different seeds come at different times."""
    if seeds == 1:
        return _squeeze(tree)
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, seed, 0, keepdims=False), tree)


def take(tree: Tree, seed: int) -> Tree:
    """The part of one seed of a tree on the host."""
    return jax.tree.map(lambda x: x[seed], tree)


def join(trees: Sequence[Tree]) -> Tree:
    """One tree with a seed axis from one tree a seed."""
    return jax.tree.map(lambda *parts: jnp.stack(parts), *trees)


def _squeeze(tree: Tree) -> Tree:
    return jax.tree.map(lambda x: jnp.squeeze(x, 0), tree)
