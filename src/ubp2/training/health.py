"""Is every number of the agents finite? Asked of each update, one decision later, so that nobody waits for the answer.

An update says itself whether what came of it is finite, and hands out the minibatch that it saw. By the time the next
action has arrived it is done, and its answer costs no waiting. What is not finite stops the run before it can reach a
checkpoint, with the minibatch saved.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from ubp2.errors import UserError
from ubp2.training import checkpoint, evidence
from ubp2.training.crew import Crew
from ubp2.training.records import Evidence
from ubp2.training.seeds import take

__all__ = ["Health", "not_finite", "require_finite_actions", "require_finite_fit"]


class _Update(NamedTuple):
    decision: int
    repetition: int
    metrics: dict[str, jax.Array]  # [S]
    evidence: Evidence


@dataclass
class Health:
    """The updates that have not been looked at yet, oldest first."""

    updates: deque[_Update] = field(default_factory=deque)

    def learned(self, decision: int, repetition: int, metrics: dict[str, jax.Array], seen: Evidence) -> None:
        """Remember an update that is under way."""
        self.updates.append(_Update(decision, repetition, metrics, seen))

    def check(self, crew: Crew, agent: Any, before: int) -> None:
        """Look at the updates of decisions before this one; a member fails at its first that went wrong."""
        while self.updates and self.updates[0].decision < before:
            update = self.updates.popleft()
            for i in np.flatnonzero(~np.asarray(update.evidence.finite)).tolist():
                if i not in crew.failed:
                    crew.blame(i, partial(_diverged, crew, agent, update, i))


def not_finite(tree: Any) -> list[str]:
    """Names of the arrays in a tree on the host that hold NaN or infinity."""
    arrays = checkpoint.flatten(tree)
    return [name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]


def require_finite_actions(crew: Crew, agent: Any, t: int, obs: np.ndarray, actions: np.ndarray) -> None:
    """A member fails where it decided for something that is no number, though its updates were well."""
    for i in np.flatnonzero(~np.isfinite(actions).all(axis=1) & crew.alive).tolist():
        crew.blame(i, partial(_no_action, crew, agent, t, obs, actions, i))


def require_finite_fit(
    crew: Crew, agent: Any, t: int, finite: np.ndarray, metrics: dict[str, np.ndarray], preferences: Any
) -> None:
    """A member [S] fails where the fit of its reward was not finite; what it saw are all its labels."""
    for i in np.flatnonzero(~finite).tolist():
        crew.blame(i, partial(_no_fit, crew, agent, t, metrics, preferences, i))


def _no_action(crew: Crew, agent: Any, t: int, obs: np.ndarray, actions: np.ndarray, i: int) -> UserError:
    facts = {"what": "action", "parameters": _parameters(agent, i)}
    path = evidence.write(crew.members[i].run, t, facts, {"obs": obs[i], "action": actions[i]})
    return _error(crew, i, f"the action is not finite at decision {t}", f"the observation is in {path}")


def _no_fit(crew: Crew, agent: Any, t: int, metrics: dict[str, np.ndarray], preferences: Any, i: int) -> UserError:
    numbers, parameters = _numbers(metrics, i), _parameters(agent, i)
    facts = {"what": "fit", "metrics": numbers, "parameters": parameters}
    labels = take(jax.device_get(preferences), i)
    path = evidence.write(crew.members[i].run, t, facts, checkpoint.flatten(labels))
    return _error(crew, i, _broken(numbers, parameters, t), f"the labels that it saw are in {path}")


def _diverged(crew: Crew, agent: Any, update: _Update, i: int) -> UserError:
    metrics: dict[str, np.ndarray] = jax.device_get(update.metrics)
    numbers, parameters = _numbers(metrics, i), _parameters(agent, i)
    facts = {"what": "update", "repetition": update.repetition, "metrics": numbers, "parameters": parameters}
    seen = take(jax.device_get(update.evidence), i)
    arrays = checkpoint.flatten({"batch": seen.batch._asdict(), "supervision": seen.supervision._asdict()})
    path = evidence.write(crew.members[i].run, update.decision, facts, arrays)
    return _error(crew, i, _broken(numbers, parameters, update.decision), f"its batch is in {path}")


def _broken(numbers: dict[str, float | str], parameters: list[str], decision: int) -> str:
    """What is not finite, in words: the first of it by name."""
    broken = [name for name, value in numbers.items() if isinstance(value, str)] + parameters
    what = broken[0] if broken else "a parameter"
    more = f" and {len(broken) - 1} more are" if len(broken) > 1 else " is"
    return f"{what}{more} not finite at decision {decision}"


def _error(crew: Crew, i: int, what: str, where: str) -> UserError:
    return UserError(
        f"learning diverged: {what} of {crew.name(i)}; {where}, and the checkpoints before it are "
        f"intact; lower --training.learning-rate, or look at {crew.members[i].run.folder / 'metrics.jsonl'}"
    )


def _numbers(metrics: dict[str, np.ndarray], i: int) -> dict[str, float | str]:
    return {name: evidence.number(float(value[i])) for name, value in metrics.items()}


def _parameters(agent: Any, i: int) -> list[str]:
    """Arrays of one agent, as it is now, that are not finite."""
    return not_finite(take(jax.device_get(agent), i))
