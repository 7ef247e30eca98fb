"""Algorithm 2 with numbers worked by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import quick_jit
from ubp2.errors import UserError
from ubp2.preference.queries import STRATEGIES, disagreement, make_strategy, optimistic, promising, select, uniform

# P(first preferred) of two members for five pairs, and what Algorithm 2 makes of them.
FIRST = [[0.75, 0.9, 0.2, 0.2, 0.5], [0.75, 0.1, 0.2, 0.05, 0.5]]
#   pair   mean    std    first asked first   second asked first
#    0     0.75    0      0.75                0.25
#    1     0.5     0.4    0.9                 0.9                 members disagree: as good either way
#    2     0.2     0      0.2                 0.8                 flipped
#    3     0.125   0.075  0.2                 0.95                flipped
#    4     0.5     0      0.5                 0.5                 all indifferent
SCORE, FLIP, ORDER = [0.75, 0.9, 0.8, 0.95, 0.5], [False, False, True, True, False], [3, 1, 2, 0, 4]


def returns(first: list[list[float]]) -> jax.Array:
    """Returns [E, N, 2] that give these probabilities, over an arbitrary common level."""
    odds = np.log(np.array(first) / (1 - np.array(first)))
    return jnp.array(np.stack([odds + 3, np.full_like(odds, 3.0)], axis=-1), jnp.float32)


def test_optimistic_scores_by_hand() -> None:
    """Mean plus standard deviation over members, for the better order of the pair."""
    score, flip = optimistic(jax.random.key(0), returns(FIRST))
    np.testing.assert_allclose(score, SCORE, rtol=1e-4)
    assert np.asarray(flip)[[0, 2, 3]].tolist() == [False, True, True]


def test_disagreement_by_hand() -> None:
    """The standard deviation alone: the pair that members answer differently is worth asking, in either order."""
    score, flip = disagreement(jax.random.key(0), returns(FIRST))
    np.testing.assert_allclose(score, [0.0, 0.4, 0.0, 0.075, 0.0], atol=1e-4)
    assert not np.any(flip)


def test_half_of_the_promising_pairs_are_contests_between_the_best() -> None:
    """200 pairs; 80 of 400 segments may be the best, surely good or perhaps very good, and pairs 0 to 19 hold two."""
    mean = np.random.default_rng(0).uniform(-1, 0, (200, 2))
    gap = np.zeros((200, 2))
    mean[:20], mean[20:40, 0] = 3.0, 3.0
    gap[40:60, 1] = 5.0
    both = jnp.array(np.stack([mean + gap, mean - gap]), jnp.float32)
    asked = [select(promising, jax.random.key(k), both, 10)[0] for k in range(50)]
    contests = np.mean([np.mean(np.asarray(index) < 20) for index in asked])
    assert 0.4 < contests < 0.6, contests  # a tenth of the pairs, and half of the questions
    others = {int(i) for index in asked for i in index if i >= 20}
    assert len(others) > 100  # chance does the rest


def test_optimistic_selection_by_hand() -> None:
    """The best come first, each in its order; disagreement (pair 1) beats a surer mean (pair 2)."""
    index, flip, score = select(optimistic, jax.random.key(0), returns(FIRST), 4)
    assert index.tolist() == ORDER[:4]
    np.testing.assert_allclose(score, [SCORE[i] for i in ORDER[:4]], rtol=1e-4)
    assert [bool(flip[0]), bool(flip[2]), bool(flip[3])] == [True, True, False]


def test_exchanging_the_segments_flips_and_nothing_else() -> None:
    """A pair is the same pair whichever segment is listed first."""
    pairs = jnp.array(np.random.default_rng(0).normal(size=(5, 40, 2)), jnp.float32)
    score, flip = optimistic(jax.random.key(0), pairs)
    other, other_flip = optimistic(jax.random.key(0), pairs[..., ::-1])
    np.testing.assert_allclose(score, other, rtol=1e-5)
    np.testing.assert_array_equal(flip, ~np.asarray(other_flip))
    assert 0 < int(flip.sum()) < 40


def test_the_flipped_pair_is_the_one_members_prefer_first() -> None:
    """After the exchange the segment asked first has the larger mean probability."""
    pairs = jnp.array(np.random.default_rng(1).normal(size=(5, 40, 2)), jnp.float32)
    _, flip = optimistic(jax.random.key(0), pairs)
    first = jnp.where(flip[None, :], pairs[..., 1], pairs[..., 0])
    second = jnp.where(flip[None, :], pairs[..., 0], pairs[..., 1])
    assert float(jax.nn.sigmoid(first - second).mean(axis=0).min()) >= 0.5


def test_uniform_ignores_returns_and_takes_every_pair_equally() -> None:
    """Scores lie in [0, 1), nothing is flipped, and each of five pairs comes first for a fifth of many keys."""
    keys = jax.random.split(jax.random.key(0), 5000)
    pick = quick_jit(jax.vmap(lambda key, pairs: select(uniform, key, pairs, 1), in_axes=(0, None)))
    index, flip, score = pick(keys, returns(FIRST))
    assert not flip.any() and float(score.min()) >= 0 and float(score.max()) < 1
    counts = np.bincount(np.asarray(index)[:, 0], minlength=5)
    np.testing.assert_allclose(counts, 1000, atol=4 * np.sqrt(5000 * 0.2 * 0.8))
    np.testing.assert_array_equal(pick(keys, -returns(FIRST))[0], index)


def test_strategies_by_name() -> None:
    """Known names are found; a slip is named with what was meant."""
    assert make_strategy("optimistic") is optimistic and set(STRATEGIES) == {
        "optimistic",
        "promising",
        "disagreement",
        "uniform",
    }
    with pytest.raises(UserError, match="unknown query strategy 'optimist'"):
        make_strategy("optimist")
