"""What a fitted reward is worth, as pure functions of arrays on the host.

Every number is finite, also for a reward that is the same everywhere. A fit that has itself left the finite numbers is
NaN in all of them: a study of many settings must show it and go on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ubp2.evaluation.rollout import rank_correlation
from ubp2.lab.fit import Judgement

__all__ = [
    "BINS",
    "MEASURES",
    "Reliability",
    "accuracy",
    "calibration_error",
    "log_loss",
    "measures",
    "off_data",
    "ratio",
    "reliability",
    "top_accuracy",
]

BINS = 10
TOP_PAIRS = 20_000
OFF_SCALE = 2.0  # how far off the data, in units of the distance from the mean
SATURATED = 0.95  # where the slope of tanh has fallen to a tenth
MEASURES = (
    "rank_correlation",
    "top_accuracy",
    "pair_accuracy",
    "calibration_error",
    "log_loss",
    "spread",
    "off_spread",
    "spread_ratio",
    "jrd",
    "off_jrd",
    "jrd_ratio",
    "action_share",
    "level",
    "saturated",
    "train_accuracy",
)
_LEAST = 1e-6  # probabilities nearer to 0 or 1 would make one mistake cost everything


class Reliability(NamedTuple):
    """Predicted probabilities in bins of equal width; means are 0 where a bin is empty."""

    count: np.ndarray  # [B] int
    predicted: np.ndarray  # [B] mean probability in the bin
    observed: np.ndarray  # [B] share of its pairs in which the first was preferred


def reliability(probability: np.ndarray, label: np.ndarray, bins: int = BINS) -> Reliability:
    """Sort pairs by P(first preferred) [P] and set beside it how often the first was preferred; label [P] 0 or 1."""
    known = np.isfinite(probability)
    probability, label = probability[known], label[known]
    where = np.minimum((probability * bins).astype(int), bins - 1)
    count, *sums = (np.bincount(where, weights, bins) for weights in (None, probability, label))
    predicted, observed = (total / np.maximum(count, 1) for total in sums)
    return Reliability(count, predicted, observed)


def calibration_error(table: Reliability) -> float:
    """Expected calibration error: how far observed lies from predicted, over bins weighted by their counts."""
    gap = np.abs(table.predicted - table.observed)
    return float(np.sum(table.count * gap) / max(np.sum(table.count), 1))


def log_loss(probability: np.ndarray, label: np.ndarray) -> float:
    """Mean of -log of the probability that was given to what came; log 2 = 0.693 for one who never says anything."""
    p = np.clip(np.asarray(probability, np.float64), _LEAST, 1 - _LEAST)
    return float(-np.mean(label * np.log(p) + (1 - label) * np.log1p(-p)))


def accuracy(probability: np.ndarray, label: np.ndarray) -> float:
    """Share of pairs whose preferred side has the larger probability; an even one is half right."""
    right = (probability > 0.5) == (label > 0.5)
    return float(np.mean(np.where(probability == 0.5, 0.5, right)))


def top_accuracy(predicted: np.ndarray, true_reward: np.ndarray) -> float:
    """Share of pairs from the better half of the states [N] that the reward puts in the right order.

    A reward can rank nearly everything and still not tell good from very good, where planners spend their time. Pairs
    are drawn at random; states of equal true reward say nothing, and without others nothing can be wrong: 1.
    """
    best = np.flatnonzero(true_reward >= np.median(true_reward))
    first, second = np.random.default_rng(0).choice(best, (2, TOP_PAIRS))
    gap, guess = true_reward[first] - true_reward[second], predicted[first] - predicted[second]
    told = gap != 0
    right = np.where(guess == 0, 0.5, (guess > 0) == (gap > 0))
    return float(right[told].mean()) if told.any() else 1.0


def ratio(off: float, on: float) -> float:
    """How much more uncertain off the data than on it; 1 where members never differ."""
    return off / on if on > 0 else 1.0


def off_data(obs: np.ndarray, mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Observations [N, D] that no episode holds: coordinates shuffled apart, then moved away from the mean.

    Each coordinate keeps its own distribution, twice as wide; what they have to do with each other is gone.
    """
    shuffled = np.stack([rng.permutation(column) for column in obs.T], axis=1)
    return (mean + OFF_SCALE * (shuffled - mean)).astype(np.float32)


def measures(judged: Judgement, true_reward: np.ndarray, label: np.ndarray) -> dict[str, float]:
    """The columns of one fit: true_reward [N] of the visited states, label [P] of the pairs, both held out."""
    reward, probability = np.asarray(judged.reward), np.asarray(judged.probability)
    if not np.isfinite(reward).all():
        return dict.fromkeys(MEASURES, float("nan"))
    table = reliability(probability, label)
    counted = np.asarray(judged.counted).mean(axis=0)
    spread, off_spread = float(judged.spread), float(judged.off_spread)
    divergence, off_divergence = float(judged.divergence), float(judged.off_divergence)
    values = (
        _correlation(counted, true_reward),
        top_accuracy(counted, true_reward),
        accuracy(probability, label),
        calibration_error(table),
        log_loss(probability, label),
        spread,
        off_spread,
        ratio(off_spread, spread),
        divergence,
        off_divergence,
        ratio(off_divergence, divergence),
        float(judged.action_share),
        float(reward.mean()),
        float(np.mean(np.abs(reward) > SATURATED)),
        float(judged.train_accuracy),
    )
    return dict(zip(MEASURES, values, strict=True))


def _correlation(predicted: np.ndarray, true_reward: np.ndarray) -> float:
    """Spearman's rank correlation; 0 for a constant, which ranks nothing: NaN would spoil a mean over repeats."""
    value = rank_correlation(predicted, true_reward)
    return value if np.isfinite(value) else 0.0
