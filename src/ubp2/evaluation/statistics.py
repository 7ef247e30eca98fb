"""Numbers over seeds that one can trust with few of them, as the paper's tables and rliable have them.

Scores of a group (one method on one task) are an array with seeds on the first axis, [N] or, as curves, [N, T]. A NaN
that gets here stays one: a number that leaves a diverged seed out unsaid would flatter its method. Gaps between
evaluations are filled or left out where curves are read (`evaluation.curves.aligned`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np

__all__ = [
    "ENOUGH",
    "Wilcoxon",
    "area_under_curve",
    "average_rank",
    "interval",
    "iqm",
    "iqm_band",
    "iqm_curve",
    "labels_to_reach",
    "over_time",
    "over_time_interval",
    "performance_profile",
    "probability_of_improvement",
    "standard_error",
    "wilcoxon",
    "worst_case_regret",
]

RESAMPLES = 5000
SIGNIFICANT = 0.05
ENOUGH = 5  # seeds from which on an interval is more than a hint: with fewer, the bootstrap is far too narrow


def iqm(scores: np.ndarray) -> float:
    """Mean of the middle half: a quarter of the scores, rounded down, is left out at each end."""
    return float(iqm_curve(np.ravel(np.asarray(scores, float))))


def iqm_curve(curves: np.ndarray) -> np.ndarray:
    """The interquartile mean over seeds at each evaluation: [N, T] to [T]."""
    ordered = np.sort(np.asarray(curves, float), axis=0)  # NaN come last
    if not len(ordered):
        raise ValueError("the interquartile mean of no scores")
    cut = len(ordered) // 4
    return np.where(np.isnan(ordered[-1]), np.nan, ordered[cut : len(ordered) - cut].mean(axis=0))


def over_time(curves: np.ndarray) -> float:
    """The number in the paper's tables: the interquartile mean over seeds of [N, T], averaged over evaluations."""
    if not np.size(curves):
        raise ValueError("the average over time of no evaluations")
    return float(iqm_curve(curves).mean())


def standard_error(scores: np.ndarray) -> float:
    """Standard error of the mean of [N] scores, from their sample variance; of one score it is not known (NaN)."""
    scores = np.asarray(scores, float)
    return float(scores.std(ddof=1) / np.sqrt(scores.size)) if scores.size > 1 else float("nan")


@overload
def interval(
    groups: Sequence[np.ndarray],
    statistic: Callable[[Sequence[np.ndarray]], float],
    *,
    level: float = ...,
    seed: int = ...,
) -> tuple[float, float]: ...
@overload
def interval(
    groups: Sequence[np.ndarray],
    statistic: Callable[[Sequence[np.ndarray]], np.ndarray],
    *,
    level: float = ...,
    seed: int = ...,
) -> tuple[np.ndarray, np.ndarray]: ...
def interval(
    groups: Sequence[np.ndarray],
    statistic: Callable[[Sequence[np.ndarray]], Any],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[Any, Any]:
    """Bootstrap interval of a statistic of groups of scores (tasks, methods): seeds are drawn again within each group.

    Percentiles of the statistic over resamples, element by element where it is an array; the same call gives the same
    interval. A group of one seed has nothing to draw from: NaN, not an interval without its share of the spread.
    """
    generator = np.random.default_rng(seed)
    draws = [
        statistic([group[generator.integers(0, len(group), len(group))] for group in groups])
        for _ in range(RESAMPLES if all(len(group) > 1 for group in groups) else 1)
    ]
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(draws, [tail, 100 - tail], axis=0) if len(draws) > 1 else np.full_like(draws * 2, np.nan)
    return (low, high) if np.ndim(low) else (float(low), float(high))


def iqm_band(curves: np.ndarray, *, level: float = 0.95, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """`interval` of `iqm_curve` of [N, T], several times faster, for figures of many panels."""
    if len(curves) < 2:
        return np.full(np.shape(curves)[1], np.nan), np.full(np.shape(curves)[1], np.nan)
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(_iqm_draws(curves, np.random.default_rng(seed)), [tail, 100 - tail], axis=1)
    return low, high


def over_time_interval(groups: Sequence[np.ndarray], *, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """`interval` of the mean over groups (tasks) of `over_time` of [N, T], several times faster, for large tables."""
    if any(len(group) < 2 for group in groups):
        return float("nan"), float("nan")
    generator = np.random.default_rng(seed)
    draws = np.mean([_iqm_draws(group, generator).mean(axis=0) for group in groups], axis=0)
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(draws, [tail, 100 - tail])
    return float(low), float(high)


def _iqm_draws(curves: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """`iqm_curve` of [N, T] with seeds drawn again: [T, resamples].

    Each evaluation is ordered once. A resample is how often it holds each seed, and where the counts, added up in that
    order, lie inside the middle half, a score counts as often as it is held.
    """
    curves = np.asarray(curves, float)
    count, cut = len(curves), len(curves) // 4
    drawn = generator.integers(0, count, (RESAMPLES, count))
    copies = np.stack([(drawn == seed_).sum(axis=1, dtype=np.int32) for seed_ in range(count)])  # [N, resamples]
    order = np.argsort(curves, axis=0)
    ordered = np.take_along_axis(curves, order, axis=0)
    held = np.zeros((curves.shape[1], RESAMPLES), np.int32)
    totals = np.repeat((ordered[-1] * (count - cut) - ordered[0] * cut)[:, None], RESAMPLES, axis=1)
    for who, gap in zip(order, np.diff(ordered, axis=0), strict=False):  # by parts: there is no gap after the last
        held += copies[who]
        totals -= gap[:, None] * np.clip(held, cut, count - cut)
    return totals / (count - 2 * cut)


def average_rank(table: np.ndarray) -> np.ndarray:
    """Mean over tasks of the rank of each method in [methods, tasks]: 1 is the best, ties share their mean rank.

    Tasks that some method has no score for (NaN) are left out for all; without any other task, all ranks are NaN.
    """
    table = np.round(_complete(table), 10)  # sums in another order are no difference
    ahead = (table[None] > table[:, None]).sum(axis=1)
    equal = (table[None] == table[:, None]).sum(axis=1)
    return _over_tasks(np.mean, ahead + (equal + 1) / 2)


def worst_case_regret(table: np.ndarray) -> np.ndarray:
    """How far each method of [methods, tasks] falls behind the best one of a task, on the task where that is most.

    Tasks that some method has no score for (NaN) are left out for all.
    """
    table = _complete(table)
    return _over_tasks(np.max, table.max(axis=0) - table)


def _complete(table: np.ndarray) -> np.ndarray:
    table = np.asarray(table, float)
    return table[:, ~np.isnan(table).any(axis=0)]


def _over_tasks(reduce: Callable[..., Any], table: np.ndarray) -> np.ndarray:
    return np.asarray(reduce(table, axis=1)) if table.shape[1] else np.full(len(table), np.nan)


class Wilcoxon(NamedTuple):
    """A signed-rank test, or why there is none."""

    p: float  # NaN where refused
    seeds: int  # pairs that both have a score
    refused: str | None = None

    @property
    def significant(self) -> bool:
        """Whether p is below 0.05."""
        return self.p < SIGNIFICANT


def wilcoxon(a: np.ndarray, b: np.ndarray, *, alternative: Literal["greater", "two-sided"] = "greater") -> Wilcoxon:
    """Exact Wilcoxon signed-rank test of pairs of scores, [N] each: seed by seed, is `a` greater than `b`?

    One-sided unless told otherwise, because an asterisk claims an improvement, not a difference; it also is the only
    form that the five seeds of an ablation can pass (2^-5 = 0.031; two-sided needs six). Pairs without a difference
    are left out, as Wilcoxon did, and ties of differences share their mean rank. The distribution of the rank sum over
    all signs is counted, not approximated, with ties too. Pairs with a NaN are left out.
    """
    from scipy.stats import rankdata

    if np.shape(a) != np.shape(b):
        raise ValueError(f"pairs of scores need as many of one as of the other, got {np.shape(a)} and {np.shape(b)}")
    a, b = (np.asarray(scores, float) for scores in (a, b))
    there = ~np.isnan(a - b)
    scale = np.abs([a[there], b[there]]).max(initial=1.0)
    difference = np.round((a - b)[there] / scale, 12)  # 0.3 - 0.2 ties with 0.2 - 0.1
    sides, pairs = (1 if alternative == "greater" else 2), difference.size
    needed = 1 + int(np.floor(np.log2(sides / SIGNIFICANT)))
    if pairs < needed:
        have = "1 pair of seeds" if pairs == 1 else f"{pairs} pairs of seeds"
        return Wilcoxon(float("nan"), pairs, f"{have} cannot reach p < {SIGNIFICANT}, whatever they say: {needed} can")
    difference = difference[difference != 0]
    if not difference.size:
        return Wilcoxon(float("nan"), pairs, f"all {pairs} pairs of seeds are ties")
    ranks = np.rint(2 * rankdata(np.abs(difference))).astype(int)  # mean ranks are halves
    sums = np.ones(1)
    for rank in ranks:  # the share of the signs that gives each sum of positive ranks
        sums = (np.pad(sums, (0, rank)) + np.pad(sums, (rank, 0))) / 2
    positive = ranks[difference > 0].sum()
    upper, lower = sums[positive:].sum(), sums[: positive + 1].sum()
    return Wilcoxon(float(upper if sides == 1 else min(1.0, 2 * min(upper, lower))), pairs)


def performance_profile(groups: Sequence[np.ndarray], thresholds: np.ndarray) -> np.ndarray:
    """Share of runs whose score is above each threshold: [P], from [N] scores a task.

    Shares are averaged over tasks, so that each counts the same however many seeds it has; with equally many seeds that
    is rliable's score distribution, the share of all runs together. Its interval: `interval` of this.
    """
    thresholds = np.asarray(thresholds, float)
    shares = [_kept(group, (group[:, None] > thresholds).mean(axis=0)) for group in _scores(groups)]
    return np.mean(shares, axis=0)


def probability_of_improvement(xs: Sequence[np.ndarray], ys: Sequence[np.ndarray]) -> float:
    """Mean over tasks of P(X > Y) + P(X = Y) / 2, of a run of x against one of y; [N] scores a task, in one order.

    Its interval: `interval((*xs, *ys), lambda g: probability_of_improvement(g[:len(xs)], g[len(xs):]))`.
    """
    both = [tuple(np.round(pair, 10) for pair in pairs) for pairs in zip(_scores(xs), _scores(ys), strict=True)]
    if not both:  # rounded, since sums in another order are no difference
        raise ValueError("the probability of improvement on no tasks")
    wins = [(x[:, None] > y).mean() + (x[:, None] == y).mean() / 2 for x, y in both]
    return float(np.mean([_kept(np.concatenate(pair), win) for pair, win in zip(both, wins, strict=True)]))


def _scores(groups: Sequence[np.ndarray]) -> list[np.ndarray]:
    arrays = [np.asarray(group, float) for group in groups]
    if not all(array.size for array in arrays):
        raise ValueError("a task without any score")
    return arrays


def _kept(scores: np.ndarray, value: Any) -> Any:
    """`value`, or NaN where a score is: a comparison with it would only say false."""
    return value * np.nan if np.isnan(scores).any() else value


def area_under_curve(decision: np.ndarray, score: np.ndarray) -> float:
    """Area under the scores over the span that they cover, divided by it: a mean over time, in units of the score.

    Trapezoids, so evaluations may be unevenly spaced; those without a score (NaN) are left out.
    """
    there = ~np.isnan(np.asarray(score, float))
    decision, score = np.asarray(decision, float)[there], np.asarray(score, float)[there]
    if not score.size:
        raise ValueError("the area under no evaluations")
    span = decision[-1] - decision[0]
    return float(np.trapezoid(score, decision) / span) if span > 0 else float(score.mean())


def labels_to_reach(labels: np.ndarray, score: np.ndarray, level: float) -> int | None:
    """Labels used at the first evaluation whose score is at or above `level`; None where there is none."""
    reached = np.flatnonzero(np.asarray(score, float) >= level)
    return int(labels[reached[0]]) if reached.size else None
