"""Scripted teachers, with numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ubp2.errors import UserError
from ubp2.preference.teachers import TEACHERS, make_teacher, oracle


def test_oracle_prefers_the_larger_sum_and_ties_only_on_equality():
    left = np.array([[1.0, 2.0], [0.0, 0.0], [1.0, -1.0], [0.1, 0.2]])
    right = np.array([[0.0, 2.5], [0.0, 1e-300], [0.0, 0.0], [0.2, 0.1]])
    label, weight = oracle(0, left, right)
    assert label.tolist() == [1.0, 0.0, 0.5, 0.5]
    assert weight.tolist() == [1.0] * 4


def test_oracle_is_antisymmetric_and_ignores_the_seed():
    left, right = np.random.default_rng(0).normal(size=(2, 50, 10))
    assert np.array_equal(oracle(1, left, right)[0], 1 - oracle(2, right, left)[0])


def test_oracle_sums_in_double_precision():
    left = np.full((1, 3), 2**24, np.float32)
    right = left.copy()
    right[0, 2] = 1
    left[0, 2] = 2
    assert oracle(0, left, right)[0].tolist() == [1.0]


def test_registry_suggests_the_nearest_name():
    assert make_teacher("oracle") is TEACHERS["oracle"]
    with pytest.raises(UserError, match=r"unknown teacher 'orakle'\. Did you mean oracle"):
        make_teacher("orakle")
