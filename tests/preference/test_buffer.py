"""The buffer of answered comparisons."""

from __future__ import annotations

import jax
import numpy as np

from tests.conftest import quick_jit
from ubp2.preference import buffer
from ubp2.types import Preferences

CAPACITY, LENGTH, OBS, ACTION = 4, 3, 2, 1
sample = quick_jit(buffer.sample, static_argnums=2)
extend = quick_jit(buffer.extend)


def packed(numbers: list[int], labels: list[float], weights: list[float], padding: int = 0) -> Preferences:
    """Rows whose every array says which they are: 10, 20, 30 and 40 times the number; padding has other numbers."""
    shapes = ((LENGTH, OBS), (LENGTH, ACTION)) * 2
    marks = np.array([*numbers, *[99] * padding], np.float32)
    arrays = [
        np.broadcast_to(f * marks[:, None, None], (len(marks), *shape))
        for f, shape in zip((10, 20, 30, 40), shapes, strict=True)
    ]
    answers = (np.array([*values, *[0.25] * padding], np.float32) for values in (labels, weights))
    return Preferences(*arrays, *answers, count=np.int32(len(numbers)))  # type: ignore[arg-type]


def filled(labels: list[float], weights: list[float], at_once: int = 2) -> Preferences:
    """Queries 1, 2, 3, ... with these answers, so many in a call, padded to three."""
    rows = buffer.init(CAPACITY, LENGTH, OBS, ACTION)
    for i in range(0, len(labels), at_once):
        some = slice(i, i + at_once)
        numbers = list(range(i + 1, i + 1 + len(labels[some])))
        rows = extend(rows, packed(numbers, labels[some], weights[some], padding=3 - len(numbers)))
    return rows


def test_extend_writes_the_next_rows_and_no_other() -> None:
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


def test_bootstrap_gives_each_member_half_of_the_labels_for_good() -> None:
    """Weights are double or nothing, the same whenever a label is drawn, and other ones for another member."""
    capacity, members = 400, 3
    rows = buffer.init(capacity, LENGTH, OBS, ACTION)
    rows = rows._replace(
        label=np.arange(capacity, dtype=np.float32), weight=np.ones(capacity), count=np.int32(capacity)
    )
    drawn = [buffer.sample(rows, jax.random.key(k), 2000, members) for k in (0, 1)]
    seen: dict[tuple[int, int], set[float]] = {}
    for batch in drawn:
        assert batch.weight.shape == (members, 2000)
        for member in range(members):
            for label, weight in zip(batch.label.astype(int).tolist(), batch.weight[member].tolist(), strict=True):
                seen.setdefault((member, label), set()).add(weight)
    assert all(len(weights) == 1 for weights in seen.values())
    shares = [np.mean([2.0 in w for (m, _), w in seen.items() if m == member]) for member in range(members)]
    assert all(0.4 < share < 0.6 for share in shares)
    assert any(seen[0, i] != seen[1, i] for i in range(50))
