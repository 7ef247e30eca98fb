"""Work that not every seed needs at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["when"]

T = TypeVar("T")


def when(needed: Array, change: Callable[[T], T], value: T) -> T:
    """change(value) where `needed`, else the value.

    With an axis of seeds a `cond` computes both branches for all of them at every call; a loop of one turn or none is
    skipped unless some seed needs it.
    """
    return jax.lax.fori_loop(0, jnp.where(needed, 1, 0), lambda _, now: change(now), value)
