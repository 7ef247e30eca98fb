"""Seeds whose evaluations do not fall together, as one matrix."""

from __future__ import annotations

import numpy as np

from ubp2.evaluation.curves import Curve, aligned


def curve(decisions: list[float], values: list[float]) -> Curve:
    return Curve(np.array(decisions, float), np.array(values, float))


def test_a_seed_that_was_cut_off_ends_the_matrix() -> None:
    grid, values = aligned([curve([10, 20, 30], [0.0, 1.0, 2.0]), curve([10, 20], [3.0, 4.0])])
    assert grid.tolist() == [10, 20] and values.tolist() == [[0, 1], [3, 4]]


def test_a_finer_grid_keeps_what_all_have_measured() -> None:
    fine = curve([10, 15, 20, 25, 30], [0.0, 9.0, 1.0, 9.0, 2.0])
    grid, values = aligned([fine, curve([10, 20, 30], [3.0, 4.0, 5.0])])
    assert grid.tolist() == [10, 20, 30] and values.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_between_each_other_evaluations_are_joined_by_lines() -> None:
    grid, values = aligned([curve([0, 10, 20], [0.0, 1.0, 2.0]), curve([5, 15, 20], [3.0, 4.0, 4.5])])
    assert grid.tolist() == [5, 10, 15, 20]
    np.testing.assert_allclose(values, [[0.5, 1.0, 1.5, 2.0], [3.0, 3.5, 4.0, 4.5]])
    grid, values = aligned([curve([0, 100], [0.0, 1.0]), curve([40, 60], [2.0, 3.0])])
    assert grid.tolist() == [40, 60] and values[0].tolist() == [0.4, 0.6]


def test_gaps_are_not_measurements() -> None:
    grid, values = aligned(
        [
            curve([10, 20, 30], [0.0, np.nan, 2.0]),
            curve([10, 20, 30], [3.0, 4.0, 5.0]),
            curve([10], [np.nan]),
        ]
    )
    assert grid.tolist() == [10, 30] and values.tolist() == [[0, 2], [3, 5]]


def test_nothing_in_common() -> None:
    grid, values = aligned([curve([10], [0.0]), curve([20], [1.0])])
    assert grid.shape == (0,) and values.shape == (2, 0)
    assert aligned([])[1].shape == (0, 0)
