"""A step of an optimiser, for parameters of any type."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import optax

__all__ = ["descend"]

T = TypeVar("T")


def descend(
    optimizer: optax.GradientTransformation, gradient: Any, state: optax.OptState, parameters: T
) -> tuple[T, optax.OptState]:
    """The parameters after one step down their gradient, and the optimiser's state after it."""
    change, state = optimizer.update(gradient, state)
    return cast(T, optax.apply_updates(cast(Any, parameters), change)), state
