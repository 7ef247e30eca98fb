"""Pairs drawn several times: they are found, in either order, and asked once as long as there are others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import quick_jit
from tests.preference.test_candidates import PREFERENCES, filled
from ubp2.preference import buffer, candidates
from ubp2.preference.queries import STRATEGIES, Candidates, disagreement, make_strategy, ranked, register

Pair = frozenset[tuple[int, int]]
DIFFERENT = 12  # pairs of the newest episode, whose 8 places are asked about with others at least 3 away on the circle


def of_one_episode(pairs: int, seed: int = 0) -> tuple[Candidates, list[Pair]]:
    """Candidates of the newest episode alone, and which two places each of them has. A return is that of its place."""
    preferences = replace(PREFERENCES, candidates=pairs, candidates_from="recent", candidate_episodes=1)
    segments, _, again = candidates.draw(preferences, filled(), jax.random.key(seed))
    where = list(zip(segments.episode.tolist(), segments.start.tolist(), strict=True))
    found = [frozenset(both) for both in zip(where[::2], where[1::2], strict=True)]
    members = jnp.array(np.random.default_rng(seed).normal(size=(3, 16)), jnp.float32)
    returns = members[:, segments.start].reshape(3, -1, 2)
    answered = buffer.init(3, PREFERENCES.segment_length, 2, 1)
    return Candidates(returns, *candidates.describe(segments, answered), again), found


def test_repeats_by_hand() -> None:
    """The first of equal pairs is none, whichever of its places is drawn first."""
    first, second = jnp.array([5, 1, 2, 9, 5, 2, 1, 7]), jnp.array([9, 2, 1, 5, 9, 2, 2, 9])
    assert candidates.repeats(first, second).tolist() == [False, False, True, True, True, False, True, False]
    assert candidates.repeats(first[:1], second[:1]).tolist() == [False]


def test_repeats_of_a_full_replay_are_numbers_that_fit() -> None:
    """Places of a replay of a million: the product of two would not be a whole number of 32 bits."""
    first, second = np.random.default_rng(0).integers(999_990, 1_000_000, (2, 300))
    seen, again = set(), []
    for pair in map(frozenset, zip(first.tolist(), second.tolist(), strict=True)):
        again.append(pair in seen)
        seen.add(pair)
    assert candidates.repeats(jnp.array(first), jnp.array(second)).tolist() == again


def test_few_places_give_the_same_pair_again() -> None:
    """What this file is about: with one episode to draw from, most candidates have a twin, many of them exchanged."""
    seen, pairs = of_one_episode(100)
    assert len(set(pairs)) == DIFFERENT and seen.again is not None
    assert int(seen.again.sum()) == 100 - DIFFERENT
    assert {pair for pair, again in zip(pairs, seen.again.tolist(), strict=True) if not again} == set(pairs)


@pytest.mark.parametrize("name", [*STRATEGIES, "mine"])
def test_no_strategy_asks_a_pair_twice_as_long_as_there_are_others(name: str, registry: None) -> None:
    if name == "mine":
        register("mine", ranked(disagreement))
    strategy = quick_jit(make_strategy(name), static_argnums=2)
    for seed in range(3):
        seen, pairs = of_one_episode(100, seed)
        for count in (6, DIFFERENT, DIFFERENT + 3):
            chosen = strategy(jax.random.key(seed), seen, count)
            asked = Counter(pairs[i] for i in chosen.index.tolist())
            assert len(asked) == min(count, DIFFERENT), (name, seed, count, asked)
            assert len(set(chosen.index.tolist())) == count and np.isfinite(chosen.score).all()


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_repeats_nothing_changes(name: str) -> None:
    rng = np.random.default_rng(3)
    both, features = (jnp.array(rng.normal(size=shape), jnp.float32) for shape in ((3, 31, 2), (31, 4)))
    seen = Candidates(both, features, jnp.zeros((5, 4)), jnp.zeros(5, bool))
    plain = make_strategy(name)(jax.random.key(1), seen, 6)
    told = make_strategy(name)(jax.random.key(1), seen._replace(again=jnp.zeros(31, bool)), 6)
    for one, other in zip(plain, told, strict=True):
        np.testing.assert_array_equal(one, other)
