"""Scripted teachers: they answer comparisons from the true reward, on the host, which the agent never sees.

All are one: B-Pref's simulated human (Lee et al. 2021, arXiv:2111.03026) with five traits, of which each named teacher
has one. `docs/teachers.md` has the equations, and how to write a teacher of one's own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ubp2.config.schema import TeacherConfig
from ubp2.errors import UserError, unknown_name

__all__ = ["TEACHERS", "Situation", "Teacher", "Traits", "checked", "make_teacher", "oracle", "traits"]

_LOG = logging.getLogger(__name__)

Teacher = Callable[[int, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""``(key_seed, left_rewards [N, L], right_rewards [N, L]) -> (label [N], weight [N])``.

A label is 1 where left is preferred, 0 where right is, 0.5 for a tie; a weight of 0 skips the pair. Whatever a teacher
draws comes from ``np.random.default_rng(key_seed)``: a resumed run gets the same answers.
"""


class Situation(NamedTuple):
    """What a scripted teacher knows of the run when a session begins: what it expects grows with the agent."""

    session: int  # 0 is the first
    recent_return: float  # mean true return of the last 10 training episodes
    episode_length: int  # T, decisions


class Traits(NamedTuple):
    """How a teacher departs from the oracle."""

    beta: float = math.inf  # rationality
    gamma: float = 1.0  # memory
    mistake: float = 0.0  # share of answers that are turned round
    skip: float = 0.0  # share of the recent return below which a pair is not worth an answer
    equal: float = 0.0  # share of the recent return that is no difference


TEACHERS: Mapping[str, Traits] = MappingProxyType(
    {
        "oracle": Traits(),
        "noisy": Traits(beta=1.0),
        "myopic": Traits(gamma=0.9),
        "mistake": Traits(mistake=0.1),
        "skip": Traits(skip=0.1),
        "equal": Traits(equal=0.1),
    }
)


def traits(config: TeacherConfig) -> Traits:
    """The traits of the named teacher, and over them those that the config sets."""
    if config.name not in TEACHERS:
        raise unknown_name("teacher", config.name, TEACHERS)
    own = {name: getattr(config, name) for name in Traits._fields}
    return TEACHERS[config.name]._replace(**{name: value for name, value in own.items() if value is not None})


def make_teacher(config: TeacherConfig, situation: Situation) -> Teacher:
    """The scripted teacher of a config, as it is in one session."""
    own, published = traits(config), config.compat == "bpref-code"
    if situation.session == 0 and situation.recent_return < 0 and (own.skip or own.equal):
        _LOG.warning(
            "teacher.skip and teacher.equal are shares of the recent mean return, which is %.3g: below 0 they do "
            "nothing; use them where rewards are positive",
            situation.recent_return,
        )
    # The published code hands epsilon * margin to a setter that multiplies by epsilon, but for the first session.
    power = 2 if published and situation.session > 0 else 1
    margin = situation.recent_return / situation.episode_length  # a decision
    thresholds = (margin * own.skip**power, margin * own.equal**power)
    return partial(_respond, own, thresholds, 1.0 if published else 0.5)


def oracle(key_seed: int, left_rewards: np.ndarray, right_rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Prefer the segment with the larger sum of true rewards, without mistakes; an exact tie is a tie."""
    return _respond(Traits(), (0.0, 0.0), 0.5, key_seed, left_rewards, right_rewards)


def _respond(
    own: Traits, thresholds: tuple[float, float], tie: float, key_seed: int, left: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Answer in B-Pref's order: skip, prefer, err, and call equal what hardly differs, whatever was preferred.

    thresholds: of skip and equal, a decision. tie: the label of exactly equal returns.
    """
    count, length = np.shape(left)
    choice, slip = np.random.default_rng(key_seed).random((2, count))  # drawn for all pairs, whatever becomes of them
    skip, equal = (length * threshold for threshold in thresholds)
    left_sum, right_sum = (np.sum(side, axis=1, dtype=np.float64) for side in (left, right))  # [N]
    memory = own.gamma ** np.arange(length - 1, -1, -1.0)  # [L], 1 at the last decision
    ahead = np.sum(left * memory, axis=1) - np.sum(right * memory, axis=1)
    if math.isinf(own.beta):
        label = np.where(ahead == 0, tie, ahead > 0)
    else:
        label = (choice < 0.5 + 0.5 * np.tanh(0.5 * own.beta * ahead)).astype(np.float64)  # Bradley-Terry
    label = np.where(slip < own.mistake, 1.0 - label, label)
    label = np.where(np.abs(left_sum - right_sum) < equal, 0.5, label)
    skipped = (np.maximum(left_sum, right_sum) <= skip) & (skip > 0)
    return label, np.where(skipped, 0.0, 1.0)


def checked(answers: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and weights [N] as a teacher returned them; those of a user may be anything."""
    try:
        label, weight = (np.asarray(part, np.float64) for part in answers)
    except (TypeError, ValueError):
        raise UserError(
            f"a teacher returns two arrays, labels [N] and weights [N], got {type(answers).__name__}; "
            f"end it with: return labels, weights"
        ) from None
    for name, values, right, allowed in (
        ("labels", label, np.isin(label, (0.0, 0.5, 1.0)), "0 (right preferred), 0.5 (tie) or 1 (left preferred)"),
        ("weights", weight, np.isfinite(weight) & (weight >= 0), "at least 0, where 0 skips the pair"),
    ):
        if values.shape != (count,):
            raise UserError(f"the teacher's {name} must be one for each of the {count} pairs, got {values.shape}")
        if not right.all():
            raise UserError(f"the teacher's {name} must be {allowed}, got {values[~right][0]}; correct the teacher")
    return label, weight
