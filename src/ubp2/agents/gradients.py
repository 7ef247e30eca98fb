"""The optimiser of most networks, and a step of any, for parameters of any type."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import optax

from ubp2.config.schema import Config

__all__ = ["adam", "descend"]

T = TypeVar("T")


def adam(config: Config) -> optax.GradientTransformation:
    """Adam with the rate of the configuration."""
    return optax.adam(config.training.learning_rate)


def descend(
    optimizer: optax.GradientTransformation, gradient: Any, state: optax.OptState, parameters: T
) -> tuple[T, optax.OptState]:
    """The parameters after one step down their gradient, and the optimiser's state after it."""
    change, state = optimizer.update(gradient, state)
    return cast(T, optax.apply_updates(cast(Any, parameters), change)), state
