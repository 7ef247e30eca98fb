"""Query strategies on sets small enough for numbers worked by hand or for brute force."""

from __future__ import annotations

from typing import get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import quick_jit
from ubp2.config import files as config_files
from ubp2.config.schema import PreferenceConfig
from ubp2.errors import UserError
from ubp2.preference.queries import (
    STRATEGIES,
    Candidates,
    Chosen,
    disagreement,
    entropy,
    information_gain,
    kcenter,
    make_strategy,
    optimistic,
    ranked,
    register,
    thompson,
)

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


def judged(returns: jax.Array) -> Candidates:
    """Candidates of which only the returns are known, as strategies that rank need them."""
    nothing = jnp.zeros((0, 0))
    return Candidates(returns, nothing, nothing, jnp.zeros(0, bool))


def located(features: np.ndarray, labelled: np.ndarray, filled: int) -> Candidates:
    """Candidates at these places, of which member 0 gives the later the likelier answers, and filled labelled rows."""
    odds = jnp.array(np.stack([np.arange(len(features)), np.zeros(len(features))], axis=-1), jnp.float32)[None]
    return Candidates(odds, jnp.array(features), jnp.array(labelled), jnp.arange(len(labelled)) < filled)


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


def test_entropy_by_hand() -> None:
    """Mean over members of -P ln P - (1 - P) ln(1 - P): the surest tie is worth most, whether or not members differ."""
    score, flip = entropy(jax.random.key(0), returns(FIRST))
    np.testing.assert_allclose(score, [0.5623, 0.3251, 0.5004, 0.3495, 0.6931], atol=1e-4)
    assert not np.any(flip)
    sure = jnp.array([[[1e4, 0.0]], [[0.0, 1e4]]])
    np.testing.assert_array_equal(entropy(jax.random.key(0), sure)[0], [0.0])


def test_information_gain_by_hand() -> None:
    """Entropy of the mean less mean entropy: nothing where members agree, ln 2 where they are sure of the contrary."""
    score, flip = information_gain(jax.random.key(0), returns(FIRST))
    # Pair 1: ln 2 - 0.3251; pair 3: H(0.125) = 0.3768, less 0.3495.
    np.testing.assert_allclose(score, [0.0, 0.3681, 0.0, 0.0273, 0.0], atol=1e-4)
    assert not np.any(flip)
    sure = jnp.array([[[1e4, 0.0]], [[0.0, 1e4]]])
    np.testing.assert_allclose(information_gain(jax.random.key(0), sure)[0], [np.log(2)], rtol=1e-6)


def test_half_of_the_promising_pairs_are_contests_between_the_best() -> None:
    """200 pairs; 80 of 400 segments may be the best, surely good or perhaps very good, and pairs 0 to 19 hold two."""
    mean = np.random.default_rng(0).uniform(-1, 0, (200, 2))
    gap = np.zeros((200, 2))
    mean[:20], mean[20:40, 0] = 3.0, 3.0
    gap[40:60, 1] = 5.0
    both = jnp.array(np.stack([mean + gap, mean - gap]), jnp.float32)
    asked = [STRATEGIES["promising"](jax.random.key(k), judged(both), 10).index for k in range(50)]
    contests = np.mean([np.mean(np.asarray(index) < 20) for index in asked])
    assert 0.4 < contests < 0.6, contests  # a tenth of the pairs, and half of the questions
    others = {int(i) for index in asked for i in index if i >= 20}
    assert len(others) > 100  # chance does the rest


def test_optimistic_selection_by_hand() -> None:
    """The best come first, each in its order; disagreement (pair 1) beats a surer mean (pair 2)."""
    index, flip, score = STRATEGIES["optimistic"](jax.random.key(0), judged(returns(FIRST)), 4)
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
    pick = quick_jit(jax.vmap(lambda key, pairs: STRATEGIES["uniform"](key, judged(pairs), 1), in_axes=(0, None)))
    index, flip, score = pick(keys, returns(FIRST))
    assert not flip.any() and float(score.min()) >= 0 and float(score.max()) < 1
    counts = np.bincount(np.asarray(index)[:, 0], minlength=5)
    np.testing.assert_allclose(counts, 1000, atol=4 * np.sqrt(5000 * 0.2 * 0.8))
    np.testing.assert_array_equal(pick(keys, -returns(FIRST))[0], index)


def favourites(both: np.ndarray, share: int, question: int) -> set[tuple[int, bool, float]]:
    """What a question may be, as (pair, flip, score): one for every two members."""
    units = (both - both.mean(axis=(1, 2), keepdims=True)) / both.std(axis=(1, 2), keepdims=True)
    found = set()
    for i in range(len(both)):
        for j in set(range(len(both))) - {i}:
            hopes = {
                (n, flip): units[i, n, int(flip)] + units[j, n, 1 - int(flip)]
                for n in range(question * share, (question + 1) * share)
                for flip in (False, True)
            }
            best = max(hopes, key=lambda key: hopes[key])
            found.add((*best, round(float(hopes[best]), 3)))
    return found


def test_thompson_asks_for_contests_of_two_members_favourites() -> None:
    """Three members, four questions, five pairs for each (two are left over): every contest is met, and no other."""
    both = np.random.default_rng(0).normal(size=(3, 22, 2)).astype(np.float32)
    both *= np.array([1.0, 50.0, 0.1], np.float32)[:, None, None]  # units of a member are arbitrary
    draw = quick_jit(jax.vmap(lambda key: thompson(key, judged(jnp.array(both)), 4)))
    asked: Chosen = jax.tree.map(np.asarray, draw(jax.random.split(jax.random.key(0), 300)))
    for question in range(4):
        index, flip, score = (field[:, question].tolist() for field in asked)
        seen = set(zip(index, flip, (round(value, 3) for value in score), strict=True))
        assert seen == favourites(both, 5, question) and len(seen) == 6


def test_thompson_with_as_many_candidates_as_questions_asks_them_all() -> None:
    both = jnp.array(np.random.default_rng(0).normal(size=(2, 6, 2)), jnp.float32)
    assert thompson(jax.random.key(0), judged(both), 6).index.tolist() == list(range(6))


def test_kcenter_by_hand() -> None:
    """On a line, labelled at 0 and (not filled) at 100; the farthest from all centres so far comes next."""
    line = np.array([1.0, 10.0, 9.0, -4.0, 5.0], np.float32)[:, None]
    labelled = np.array([0.0, 100.0], np.float32)[:, None]
    index, flip, score = kcenter(jax.random.key(0), located(line, labelled, 1), 4)
    # 10 from 0; then 5 from both 0 and 10; then -4; then 1, as 9, is 1 away from a centre, and the first of equals.
    assert index.tolist() == [1, 4, 3, 0] and not np.any(flip)
    np.testing.assert_allclose(score, [10.0, 5.0, 4.0, 1.0], rtol=1e-5)
    # Before the first label the centre is zero, the mean of the candidates; without repetition even among equals.
    same = np.array([3.0, 3.0, -1.0], np.float32)[:, None]
    index, _, score = kcenter(jax.random.key(0), located(same, labelled, 0), 3)
    assert index.tolist() == [0, 2, 1]
    np.testing.assert_allclose(score, [3.0, 1.0, 0.0], atol=1e-6)


def greedy(features: np.ndarray, centres: list[np.ndarray], among: list[int], count: int) -> list[int]:
    """Farthest first by brute force, in double precision."""
    chosen: list[int] = []
    for _ in range(count):
        left = [i for i in among if i not in chosen]
        chosen.append(max(left, key=lambda i: min(np.linalg.norm(features[i] - c) for c in centres)))
        centres = [*centres, features[chosen[-1]]]
    return chosen


@pytest.mark.parametrize("filled", [0, 1, 7])
def test_kcenter_is_greedy_farthest_first(filled: int) -> None:
    """More candidates than a block, against all distances one by one."""
    rng = np.random.default_rng(filled)
    features, labelled = rng.normal(size=(300, 12)), 2 * rng.normal(size=(9, 12))
    seen = located(features.astype(np.float32), labelled.astype(np.float32), filled)
    index, _, _ = quick_jit(kcenter, static_argnums=2)(jax.random.key(0), seen, 10)
    centres = list(labelled[:filled]) or [np.zeros(12)]
    assert index.tolist() == greedy(features, centres, list(range(300)), 10)


@pytest.mark.parametrize("name", ["disagreement", "entropy"])
def test_the_hybrids_spread_over_the_better_half(name: str) -> None:
    """Of 40 pairs the 20 best by the other score, and among these k-center; the whole set where half is too few."""
    rng = np.random.default_rng(0)
    features, labelled = rng.normal(size=(40, 6)).astype(np.float32), rng.normal(size=(3, 6)).astype(np.float32)
    both = jnp.array(rng.normal(size=(3, 40, 2)), jnp.float32)
    seen = located(features, labelled, 3)._replace(returns=both)
    scores, _ = {"disagreement": disagreement, "entropy": entropy}[name](jax.random.key(0), both)
    half = np.argsort(-np.asarray(scores))[:20].tolist()
    strategy = make_strategy(f"kcenter-{name}")
    index, flip, _ = strategy(jax.random.key(0), seen, 5)
    assert index.tolist() == greedy(features, list(labelled), half, 5)
    assert index.tolist() != kcenter(jax.random.key(0), seen, 5).index.tolist()
    assert not np.any(flip)
    assert len(set(strategy(jax.random.key(0), seen, 30).index.tolist())) == 30


def test_kcenter_never_holds_candidates_by_labels_by_features() -> None:
    """2000 pairs of segments of 50 decisions with 39 numbers, 5000 labels: the product alone would take 156 GB."""
    features, labelled = (jax.ShapeDtypeStruct((n, 2 * 50 * 39), jnp.float32) for n in (2000, 5000))
    mask, odds = jax.ShapeDtypeStruct((5000,), jnp.bool_), jax.ShapeDtypeStruct((3, 2000, 2), jnp.float32)
    shapes = Candidates(odds, features, labelled, mask)  # type: ignore[arg-type]
    program = quick_jit(lambda seen: kcenter(jax.random.key(0), seen, 12)).lower(shapes).compile()
    analysis = program.memory_analysis()
    assert analysis is not None and analysis.temp_size_in_bytes < 250e6, analysis  # the arguments themselves: 109 MB


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_asks_different_pairs_and_scores_them(name: str) -> None:
    """Whatever is asked, jitted or not: K different pairs of the N, finite scores, also before the first label."""
    rng = np.random.default_rng(3)
    features = jnp.array(rng.normal(size=(30, 4)), jnp.float32)
    both = jnp.array(rng.normal(size=(3, 30, 2)), jnp.float32)
    seen = Candidates(both, features, jnp.zeros((5, 4)), jnp.zeros(5, bool))
    plain = make_strategy(name)(jax.random.key(1), seen, 6)
    jitted = quick_jit(make_strategy(name), static_argnums=2)(jax.random.key(1), seen, 6)
    assert len(set(plain.index.tolist())) == 6 and int(plain.index.min()) >= 0 and int(plain.index.max()) < 30
    assert plain.flip.dtype == bool and np.isfinite(plain.score).all()
    assert plain.index.tolist() == jitted.index.tolist() and plain.flip.tolist() == jitted.flip.tolist()
    np.testing.assert_allclose(plain.score, jitted.score, rtol=1e-5, atol=1e-6)


def test_what_a_strategy_does_not_read_is_not_computed() -> None:
    """Features and labelled pairs, 400 KB here, are not even handed to a program that ranks returns."""
    wide = jax.ShapeDtypeStruct((100, 500), jnp.float32)
    odds, mask = jax.ShapeDtypeStruct((3, 100, 2), jnp.float32), jax.ShapeDtypeStruct((100,), jnp.bool_)
    shapes = Candidates(odds, wide, wide, mask)  # type: ignore[arg-type]
    sizes = {}
    for name in ("disagreement", "kcenter"):
        program = quick_jit(lambda key, seen, name=name: make_strategy(name)(key, seen, 5))
        analysis = program.lower(jax.random.key(0), shapes).compile().memory_analysis()
        assert analysis is not None
        sizes[name] = analysis.argument_size_in_bytes
    assert sizes["disagreement"] < 10_000 < 400_000 <= sizes["kcenter"]


def test_strategies_by_name() -> None:
    """The configuration knows exactly these names; a slip is answered with what was meant."""
    assert get_args(get_type_hints(PreferenceConfig)["strategy"]) == tuple(STRATEGIES)
    assert make_strategy("thompson") is thompson
    with pytest.raises(UserError, match="unknown query strategy 'optimist'.*Did you mean optimistic"):
        make_strategy("optimist")


def test_a_registered_strategy_is_a_value_of_the_configuration(registry: None) -> None:
    mine = {"preferences": {"strategy": "mine"}}
    with pytest.raises(UserError, match="preferences.strategy must be one of"):
        config_files.from_dict(mine)
    register("mine", ranked(disagreement))
    register("mine", ranked(entropy))  # a notebook runs its cells again
    assert config_files.from_dict(mine).preferences.strategy == "mine"
    assert config_files.FURTHER["preferences.strategy"] == ["mine"]
    with pytest.raises(UserError, match="'entropy' is a query strategy of ubp2 itself"):
        register("entropy", ranked(disagreement))
