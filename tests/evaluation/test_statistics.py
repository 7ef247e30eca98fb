"""Statistics over seeds, against numbers worked by hand, SciPy, and rliable.

Numbers called rliable's are what rliable 1.2.0 printed for X and Y, seven and five runs of two methods on three tasks.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats

from ubp2.evaluation.statistics import (
    area_under_curve,
    average_rank,
    interval,
    iqm,
    iqm_band,
    iqm_curve,
    labels_to_reach,
    over_time,
    over_time_interval,
    performance_profile,
    probability_of_improvement,
    standard_error,
    wilcoxon,
    worst_case_regret,
)

X = np.array(
    [
        [0.90, 0.2, 0.55],
        [0.80, 0.0, 0.60],
        [1.00, 0.4, 0.35],
        [0.70, 0.1, 0.80],
        [0.95, 0.3, 0.50],
        [0.60, 0.4, 0.45],
        [1.00, 0.0, 0.70],
    ]
)
Y = np.array([[0.50, 0.2, 0.60], [0.85, 0.1, 0.50], [0.70, 0.0, 0.40], [1.00, 0.3, 0.50], [0.40, 0.2, 0.65]])
THRESHOLDS = np.array([0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0])


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


def test_iqm_is_rliables() -> None:
    assert iqm(X) == pytest.approx(0.55) and iqm(Y) == pytest.approx(0.45)
    assert iqm_curve(X) == pytest.approx([0.87, 0.2, 0.56])
    assert iqm_curve(Y) == pytest.approx([0.68333333, 0.16666667, 0.53333333])
    assert iqm_curve(X) == pytest.approx(stats.trim_mean(X, proportiontocut=0.25, axis=0))


def test_a_diverged_seed_is_not_left_out_unsaid() -> None:
    """Sorted to the end, a NaN would be cut off with the best quarter."""
    scores = np.array([[0.1, 0.2], [0.2, np.nan], [0.3, 0.4], [0.4, 0.5]])
    np.testing.assert_array_equal(iqm_curve(scores), [0.25, np.nan])
    assert math.isnan(iqm(scores)) and math.isnan(over_time(scores))
    assert np.isnan(iqm_band(scores)[0]).tolist() == [False, True]
    assert math.isnan(probability_of_improvement([scores[:, 1]], [scores[:, 0]]))
    assert np.isnan(performance_profile([scores[:, 1], scores[:, 0]], THRESHOLDS)).all()


def test_over_time_takes_seeds_first_and_evaluations_second() -> None:
    curves = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    assert over_time(curves) == pytest.approx((0.0 + 0.5 + 1.0) / 3)
    assert over_time(curves[:1]) == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="no evaluations"):
        over_time(np.zeros((3, 0)))


def test_standard_error() -> None:
    assert standard_error(np.array([0.2, 0.4, 0.9])) == pytest.approx(stats.sem([0.2, 0.4, 0.9]))
    assert math.isnan(standard_error(np.array([0.5])))


def test_interval_is_rliables() -> None:
    """rliable, 50,000 resamples: IQM of X in [0.4773, 0.6273], of Y in [0.3889, 0.5333]; draws differ."""
    low, high = interval(list(X.T), lambda groups: iqm(np.concatenate(groups)))
    assert (low, high) == pytest.approx((0.4773, 0.6273), abs=0.01)
    low, high = interval(list(Y.T), lambda groups: iqm(np.concatenate(groups)))
    assert (low, high) == pytest.approx((0.3889, 0.5333), abs=0.01)


def test_interval_of_single_seeds_is_not_known() -> None:
    assert np.isnan(interval([np.ones(1), np.ones(1)], lambda groups: float(groups[0].mean()))).all()
    low, high = interval([np.ones((1, 4))], lambda groups: iqm_curve(groups[0]))
    assert low.shape == high.shape == (4,) and np.isnan([low, high]).all()
    assert np.isnan(iqm_band(np.ones((1, 4)))).all()


def test_one_seed_beside_many_leaves_no_interval_that_lacks_its_spread() -> None:
    many, one = np.arange(6) / 5, np.zeros(1)
    assert np.isnan(interval([many, one], lambda groups: float(groups[0].mean() - groups[1].mean()))).all()
    assert np.isnan(over_time_interval([many[:, None], one[:, None]])).all()


@pytest.mark.parametrize("count", [2, 3, 5, 8, 15])
def test_fast_band_is_the_interval(count: int) -> None:
    """Of scores with ties, as success rates have them."""
    curves = np.random.default_rng(count).integers(0, 6, (count, 7)) / 5
    slow = interval([curves], lambda groups: iqm_curve(groups[0]))
    np.testing.assert_allclose(iqm_band(curves), slow, atol=1e-12)
    slow = interval([curves], lambda groups: iqm_curve(groups[0]), level=0.8, seed=3)
    np.testing.assert_allclose(iqm_band(curves, level=0.8, seed=3), slow, atol=1e-12)


def test_ranks_share_ties() -> None:
    table = np.array([[90.0, 50.0, 10.0], [80.0, 50.0, 30.0], [70.0, 60.0, 10.0]])
    assert average_rank(table) == pytest.approx([(1 + 2.5 + 2.5) / 3, (2 + 2.5 + 1) / 3, (3 + 1 + 2.5) / 3])
    against = np.mean([stats.rankdata(-task) for task in table.T], axis=0)
    assert average_rank(table) == pytest.approx(against)
    assert average_rank(np.array([[0.1 + 0.2], [0.3]])).tolist() == [1.5, 1.5]


def test_regret_is_the_largest_drop_below_the_best() -> None:
    table = np.array([[90.0, 50.0, 10.0], [80.0, 55.0, 30.0], [70.0, 60.0, 10.0]])
    assert worst_case_regret(table).tolist() == [20.0, 10.0, 20.0]


def test_tasks_that_a_method_lacks_count_for_none() -> None:
    table = np.array([[90.0, 50.0], [80.0, np.nan]])
    assert average_rank(table).tolist() == [1.0, 2.0] and worst_case_regret(table).tolist() == [0.0, 10.0]
    assert np.isnan(average_rank(table[:, 1:])).all() and np.isnan(worst_case_regret(table[:, 1:])).all()


@pytest.mark.parametrize("alternative", ["greater", "two-sided"])
@pytest.mark.parametrize("count", [6, 9, 15])
def test_wilcoxon_is_scipys_exact_one(count: int, alternative: Literal["greater", "two-sided"]) -> None:
    generator = np.random.default_rng(count)
    a, b = generator.normal(0.4, 1.0, count), generator.normal(0.0, 1.0, count)
    test = wilcoxon(a, b, alternative=alternative)
    expected: Any = stats.wilcoxon(a, b, alternative=alternative, method="exact")
    assert test.p == pytest.approx(expected.pvalue)
    assert test.seeds == count and test.refused is None


def test_wilcoxon_counts_all_signs_where_differences_tie() -> None:
    """Success rates of few episodes tie often, and in decimals: 0.8 - 0.6 is not 0.4 - 0.2 to the last bit."""
    a = np.array([0.8, 0.4, 1.0, 0.2, 1.0, 0.6, 0.6])
    b = np.array([0.6, 0.2, 0.4, 0.4, 1.0, 0.2, 0.0])
    ranks = np.array([2.0, 2.0, 5.5, 2.0, 4.0, 5.5])  # of 0.2, 0.2, 0.6, -0.2, 0.4, 0.6; the tie is left out
    seen = ranks.sum() - 2.0
    sums = [np.dot(ranks, signs) for signs in itertools.product((0, 1), repeat=6)]
    test = wilcoxon(a, b)
    assert test.p == pytest.approx(np.mean([total >= seen for total in sums])) and test.seeds == 7
    assert wilcoxon(a, b, alternative="two-sided").p == pytest.approx(2 * test.p)


def test_wilcoxon_of_five_seeds_can_be_significant_one_sided_only() -> None:
    a, b = np.arange(5) + 1.5, np.arange(5) / 2
    assert wilcoxon(a, b).p == 2**-5 and wilcoxon(a, b).significant and not wilcoxon(b, a).significant
    two = wilcoxon(a, b, alternative="two-sided")
    assert two.refused == "5 pairs of seeds cannot reach p < 0.05, whatever they say: 6 can"
    assert math.isnan(two.p) and not two.significant


def test_wilcoxon_refuses_what_says_nothing() -> None:
    assert wilcoxon(np.ones(4), np.zeros(4)).refused
    assert wilcoxon(np.ones(9), np.ones(9)).refused == "all 9 pairs of seeds are ties"
    lost = wilcoxon(np.array([1, 1, 1, 1, 1, np.nan]), np.array([0, 0, 0, 0, np.nan, 0]))
    assert lost.seeds == 4 and lost.refused and wilcoxon(np.zeros(0), np.zeros(0)).seeds == 0
    with pytest.raises(ValueError, match="as many of one as of the other"):
        wilcoxon(np.ones(5), np.ones(6))


def test_performance_profile_is_rliables() -> None:
    shares = [0.90476190, 0.80952381, 0.61904762, 0.52380952, 0.38095238, 0.19047619, 0.0]
    assert performance_profile(list(X.T), THRESHOLDS) == pytest.approx(shares)
    assert performance_profile(list(X.T), THRESHOLDS) == pytest.approx([np.mean(t < X) for t in THRESHOLDS])
    low, high = interval(list(X.T), lambda groups: performance_profile(groups, THRESHOLDS))
    assert low == pytest.approx([0.8095, 0.7143, 0.5238, 0.3810, 0.2381, 0.0476, 0.0], abs=0.05)  # one run is 0.048
    assert high == pytest.approx([1.0, 0.9524, 0.6667, 0.6190, 0.5238, 0.2857, 0.0], abs=0.05)


def test_tasks_count_alike_however_many_seeds_they_have() -> None:
    assert performance_profile([np.ones(15), np.zeros(5)], np.array([0.5])).tolist() == [0.5]
    assert probability_of_improvement([np.ones(15), np.zeros(5)], [np.zeros(3), np.ones(9)]) == 0.5


def test_probability_of_improvement_is_rliables() -> None:
    """rliable: 0.6095 in [0.4190, 0.7905]; a task's probability is the Mann-Whitney U over the number of pairs."""
    assert probability_of_improvement(list(X.T), list(Y.T)) == pytest.approx(0.6095238095)
    wins = [stats.mannwhitneyu(x, y, alternative="greater").statistic / 35 for x, y in zip(X.T, Y.T, strict=True)]
    assert probability_of_improvement(list(X.T), list(Y.T)) == pytest.approx(np.mean(wins))
    assert probability_of_improvement(list(Y.T), list(X.T)) == pytest.approx(1 - 0.6095238095)
    assert probability_of_improvement(list(X.T), list(X.T)) == 0.5
    bounds = interval([*X.T, *Y.T], lambda groups: probability_of_improvement(groups[:3], groups[3:]))
    assert bounds == pytest.approx((0.4190, 0.7905), abs=0.015)
    with pytest.raises(ValueError, match="without any score"):
        probability_of_improvement([np.zeros(0)], [np.ones(2)])
    summed = np.array([0.1 + 0.2]), np.array([0.3])  # sums in another order are no difference
    assert summed[0] > summed[1] and probability_of_improvement([summed[0]], [summed[1]]) == 0.5


def test_area_is_in_units_of_the_score() -> None:
    assert area_under_curve(np.array([0, 10, 20]), np.array([0.0, 1.0, 1.0])) == pytest.approx(0.75)
    assert area_under_curve(np.array([10, 20, 40]), np.array([0.5, np.nan, 0.7])) == pytest.approx(0.6)
    assert area_under_curve(np.array([10]), np.array([0.3])) == 0.3
    with pytest.raises(ValueError, match="no evaluations"):
        area_under_curve(np.array([10.0]), np.array([np.nan]))


def test_labels_to_reach_a_level() -> None:
    labels, score = np.array([0, 50, 100, 100]), np.array([0.1, np.nan, 0.5, 0.9])
    assert labels_to_reach(labels, score, 0.5) == 100 and labels_to_reach(labels, score, 0.1) == 0
    assert labels_to_reach(labels, score, 0.95) is None


def test_the_fast_interval_of_a_table_is_the_plain_one() -> None:
    curves = [np.random.default_rng(seed).uniform(size=(5 + seed, 7)) for seed in range(2)]
    plain = interval(curves[:1], lambda groups: over_time(groups[0]))
    assert over_time_interval(curves[:1]) == pytest.approx(plain)
    both = interval(curves, lambda groups: float(np.mean([over_time(own) for own in groups])))
    assert over_time_interval(curves) == pytest.approx(both, abs=0.01), "other draws, the same interval"
    assert np.isnan(over_time_interval([curves[0][:1]])).all()
