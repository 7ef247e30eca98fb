"""The buffer of answered comparisons."""

from __future__ import annotations

import jax
import numpy as np

from tests.conftest import quick_jit
from ubp2.preference import buffer
from ubp2.types import Preferences, Query

CAPACITY, LENGTH, OBS, ACTION = 4, 3, 2, 1
sample = quick_jit(buffer.sample, static_argnums=2)


def query(number: int) -> Query:
    """A query whose every array says which it is: 10, 20, 30 and 40 times the number."""
    left, right = (np.full((LENGTH, OBS), factor * number, np.float32) for factor in (10, 30))
    left_action, right_action = (np.full((LENGTH, ACTION), factor * number, np.float32) for factor in (20, 40))
    return Query(left, left_action, right, right_action, 0, 0, 0, 0, 0.0)


def filled(labels: list[float], weights: list[float]) -> Preferences:
    """Queries 1, 2, 3, ... with these answers."""
    rows = buffer.init(CAPACITY, LENGTH, OBS, ACTION)
    for number, (label, weight) in enumerate(zip(labels, weights, strict=True), start=1):
        rows = buffer.append(rows, query(number), label, weight)
    return rows


def test_append_writes_the_next_row_and_no_other() -> None:
    """Three answers fill three rows, in order, and leave the fourth empty."""
    rows = filled([1.0, 0.0, 0.5], [1.0, 0.0, 1.0])
    assert int(rows.count) == 3
    assert rows.label.tolist() == [1.0, 0.0, 0.5, 0.0] and rows.weight.tolist() == [1.0, 0.0, 1.0, 0.0]
    fields = (rows.left_obs, rows.left_action, rows.right_obs, rows.right_action)
    for field, factor in zip(fields, (10, 20, 30, 40), strict=True):
        expected = np.array([factor, 2 * factor, 3 * factor, 0], np.float32)[:, None, None]
        np.testing.assert_array_equal(field, np.broadcast_to(expected, field.shape))


def test_a_minibatch_is_uniform_over_the_filled_rows_and_keeps_them_whole() -> None:
    """Only answered rows come, equally often, and all fields of one belong together."""
    batch = sample(filled([1.0, 0.0, 0.5], [1.0, 0.0, 1.0]), jax.random.key(0), 3000)
    number = np.asarray(batch.left_obs)[:, 0, 0] / 10
    counts = np.bincount(number.astype(int), minlength=4)
    assert counts[0] == 0 and int(counts.sum()) == 3000
    np.testing.assert_allclose(counts[1:], 1000, atol=4 * np.sqrt(3000 * 2 / 9))
    for field, factor in ((batch.left_action, 20), (batch.right_obs, 30), (batch.right_action, 40)):
        np.testing.assert_array_equal(field, np.broadcast_to((factor * number)[:, None, None], field.shape))
    np.testing.assert_array_equal(batch.label, np.array([np.nan, 1.0, 0.0, 0.5])[number.astype(int)])
    np.testing.assert_array_equal(batch.weight, np.array([np.nan, 1.0, 0.0, 1.0])[number.astype(int)])


def test_an_empty_buffer_weighs_nothing() -> None:
    """Before the first label a minibatch teaches nothing."""
    assert not sample(buffer.init(CAPACITY, LENGTH, OBS, ACTION), jax.random.key(0), 8).weight.any()


def test_beyond_the_capacity_nothing_is_written() -> None:
    """Two answers too many change neither the rows nor their count, so minibatches stay uniform over the four."""
    full, over = filled([1.0] * 4, [1.0] * 4), filled([1.0] * 4 + [0.0] * 2, [1.0] * 6)
    for a, b in zip(full, over, strict=True):
        np.testing.assert_array_equal(a, b)
    number = np.asarray(sample(over, jax.random.key(1), 4000).left_obs)[:, 0, 0] / 10
    np.testing.assert_allclose(np.bincount(number.astype(int))[1:], 1000, atol=4 * np.sqrt(4000 * 3 / 16))
