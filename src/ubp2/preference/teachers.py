"""Scripted teachers: they answer comparisons from the true reward, on the host, which the agent never sees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ubp2.errors import unknown_name

__all__ = ["TEACHERS", "Teacher", "make_teacher", "oracle"]

Teacher = Callable[[int, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""``(key_seed, left_rewards [N, L], right_rewards [N, L]) -> (label [N], weight [N])``.

A label is 1 where left is preferred, 0 where right is, 0.5 for a tie; a weight of 0 skips the pair. Whatever a teacher
draws comes from ``np.random.default_rng(np.random.SeedSequence(key_seed))``: a resumed run gets the same answers.
"""


def oracle(key_seed: int, left_rewards: np.ndarray, right_rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Prefer the segment with the larger sum of true rewards, without mistakes; an exact tie is a tie."""
    del key_seed
    left = np.sum(left_rewards, axis=1, dtype=np.float64)  # [N]
    right = np.sum(right_rewards, axis=1, dtype=np.float64)  # [N]
    return 0.5 + 0.5 * np.sign(left - right), np.ones_like(left)


TEACHERS: dict[str, Teacher] = {"oracle": oracle}


def make_teacher(name: str) -> Teacher:
    """Return the teacher of that name."""
    if name not in TEACHERS:
        raise unknown_name("teacher", name, TEACHERS)
    return TEACHERS[name]
