"""The interquartile mean and bootstrap intervals, against numbers worked by hand and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ubp2.evaluation.statistics import interval, iqm


def test_iqm_by_hand() -> None:
    assert iqm(np.array([9.0, 0.0, 1.0, 2.0])) == 1.5  # 0 and 9 are left out
    assert iqm(np.array([5.0])) == 5.0 and iqm(np.array([1.0, 2.0, 6.0])) == 3.0  # too few to leave any out


@pytest.mark.parametrize("count", [4, 5, 6, 8, 10, 15, 16])
def test_iqm_is_the_trimmed_mean(count: int) -> None:
    scores = np.random.default_rng(count).uniform(size=count)
    assert iqm(scores) == pytest.approx(stats.trim_mean(scores, 0.25))


def test_iqm_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no scores"):
        iqm(np.array([]))


def test_interval_of_a_mean_is_the_normal_one() -> None:
    """With many scores the bootstrap of a mean is mean +- 1.96 standard errors."""
    scores = np.random.default_rng(0).normal(3.0, 2.0, 400)
    low, high = interval([scores], lambda groups: float(groups[0].mean()))
    error = scores.std() / 20
    assert low == pytest.approx(scores.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(scores.mean() + 1.96 * error, abs=0.1 * error)


def test_interval_draws_within_groups() -> None:
    """Groups without any spread have a difference without any: their members are never mixed."""
    assert interval([np.ones(5), np.zeros(7)], lambda g: float(g[0].mean() - g[1].mean())) == (1.0, 1.0)
