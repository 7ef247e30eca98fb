"""What is searched: for each setting, by its dotted name, the values that it may take.

    training.learning_rate: {log: [1e-4, 1e-3]}     # between these, evenly on a logarithmic scale
    optimism.lambda_value: {range: [0, 2]}          # between these, evenly
    planner.horizon: [3, 5, 7]                      # one of these

A trial's point is drawn from the seed of the search and the number of the trial alone, so that more trials later leave
the first ones what they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ubp2.config.files import leaves, not_yaml, overridden
from ubp2.config.resolving import is_model_free
from ubp2.config.schema import Config
from ubp2.errors import UserError

__all__ = ["Point", "Space", "default", "draw", "load", "read"]

Space = Mapping[str, Any]  # dotted name: list of values, {log: [low, high]} or {range: [low, high]}
Point = dict[str, Any]  # dotted name: value

_ATTEMPTS = 200  # draws until one can run
_FIXED = ("env", "seed", "steps", "ceiling", "teacher", "evaluation", "checkpoint", "environment", "preferences.budget")
_EXPECTED = "a list of values, {log: [low, high]} or {range: [low, high]}"

_LEARNING = {"training.learning_rate": {"log": [1e-4, 1e-3]}}
_LABELS = {"preferences.every": [250, 500, 1000], "preferences.segment_length": [5, 10, 25]}
_MODEL_BASED = {
    **_LEARNING,
    "planner.horizon": [3, 5, 7],
    "model.reward_inputs": ["state", "state-action"],
    "preferences.stop_accuracy": [0.9, 0.97, None],
    **_LABELS,
}
_OPTIMISTIC = {
    "optimism.lambda_dynamics": {"log": [0.5, 20.0]},
    "optimism.lambda_reward": {"log": [0.1, 10.0]},
    "preferences.strategy": ["uniform", "promising", "optimistic", "disagreement"],
}
_SAC = {**_LEARNING, "sac.alpha_learning_rate": {"log": [3e-5, 1e-3]}}
_PEBBLE = {**_SAC, "sac.epochs": [10, 50, 200], "preferences.strategy": ["uniform", "disagreement"], **_LABELS}


def default(config: Config) -> Space:
    """What is searched unless told: what the agent's learning depends on most, and nothing that it does not read."""
    if is_model_free(config.agent):
        return _SAC if config.agent == "sac" or config.ceiling else _PEBBLE
    found = {**_MODEL_BASED, **(_OPTIMISTIC if config.agent == "ubp2" and config.ablation is None else {})}
    if config.ceiling:
        return {name: values for name, values in found.items() if not name.startswith("preferences.")}
    return found


def load(path: Path, base: Config) -> Space:
    """The space in a YAML file; errors name the file."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; --space takes a YAML file of what is searched") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    except yaml.YAMLError as error:
        raise not_yaml(path, error) from None
    try:
        return read(data, base)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def read(data: Any, base: Config) -> Space:
    """A space as a file has it, checked by name and value against the configuration that it changes."""
    if not isinstance(data, Mapping) or not data:
        raise UserError(f"a search space must name settings, such as 'planner.horizon: [3, 5, 7]', got {data!r}")
    return {str(name): _checked(str(name), values, base) for name, values in data.items()}


def _checked(name: str, values: Any, base: Config) -> Any:
    if any(name == fixed or name.startswith(f"{fixed}.") for fixed in _FIXED):
        raise UserError(f"{name} is the same for all trials, or their scores could not be compared; leave it out")
    if isinstance(values, list) and values:
        return [dict(leaves(overridden(base, {name: value}))).get(name, value) for value in values]
    if not (isinstance(values, Mapping) and len(values) == 1 and set(values) <= {"log", "range"}):
        raise UserError(f"{name}: expected {_EXPECTED}, got {values!r}")
    ((scale, ends),) = values.items()
    if not isinstance(ends, list) or len(ends) != 2:
        raise UserError(f"{name}: {scale} takes two numbers, [low, high], got {ends!r}")
    low, high = (dict(leaves(overridden(base, {name: end}))).get(name) for end in ends)
    if isinstance(low, bool) or not isinstance(low, int | float) or not isinstance(high, int | float):
        raise UserError(f"{name} is no number, so it has no {scale}; give a list of values")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UserError(f"{name}: {scale} goes from the smaller to the larger number, got {ends!r}")
    if scale == "log" and low <= 0:
        raise UserError(f"{name}: log needs numbers above 0, got {ends!r}; use range")
    return {scale: [low, high]}


def draw(space: Space, seed: int, number: int, works: Callable[[Point], object]) -> Point:
    """The point of a trial: trial 0 changes nothing, any other is drawn until one can run.

    works: raises UserError for a point that cannot.
    """
    if number == 0:
        return {}
    rng = np.random.default_rng([seed, number])
    error: UserError | None = None
    for _ in range(_ATTEMPTS):
        point = {name: _value(values, rng) for name, values in space.items()}
        try:
            works(point)
            return point
        except UserError as reason:
            error = reason
    raise UserError(f"of {_ATTEMPTS} settings drawn from the search space none can run; of the last: {error}")


def _value(values: Any, rng: np.random.Generator) -> Any:
    if isinstance(values, list):
        return values[int(rng.integers(len(values)))]
    ((scale, (low, high)),) = values.items()
    whole = isinstance(low, int)
    if whole and scale == "range":
        return int(rng.integers(low, high + 1))
    margin = 0.5 if whole else 0.0  # what is rounded to an end is as wide as what is rounded to any other number
    least, most = low - margin, high + margin
    value = (
        math.exp(rng.uniform(math.log(least), math.log(most))) if scale == "log" else float(rng.uniform(least, most))
    )
    value = round(value) if whole else float(f"{value:.3g}")  # more digits mean nothing
    return min(max(value, low), high)
