"""Which pairs to ask about: the query strategies, one function each (docs/queries.md).

strategy(key, candidates, count) -> index [K], flip [K], score [K]: the pairs to ask, with the two segments exchanged
where `flip` says so, and what the strategy thinks of each. Most rank the pairs one by one: they are a function
score(key, returns [E, N, 2]) -> score [N], flip [N], of which `ranked` makes a strategy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import entr

from ubp2.config import files as config_files
from ubp2.config import own
from ubp2.errors import UserError, unknown_name
from ubp2.preference.bradley_terry import probability

__all__ = ["STRATEGIES", "Candidates", "Chosen", "Score", "Strategy", "make_strategy", "ranked", "register"]

PROMISING = 0.2  # share of the segments that counts as the best
BLOCK = 256  # candidates whose distances to all labelled pairs are held at once


class Candidates(NamedTuple):
    """The pairs of a session. What a strategy does not read is not computed: jit drops it."""

    returns: Array
    """[E, N, 2]: what each reward member gives the two segments."""
    features: Array
    """[N, F]: where the pair lies, the normalised observations of both segments, less their mean."""
    labelled: Array
    """[P, F]: the same of the pairs that were answered so far."""
    mask: Array
    """[P] bool: which of those rows are filled."""
    again: Array | None = None
    """[N] bool: which pairs are the same two segments as an earlier one, in either order; None: none of them."""


class Chosen(NamedTuple):
    """The pairs to ask."""

    index: Array
    """[K]: which of the candidates."""
    flip: Array
    """[K] bool: the second segment is asked first."""
    score: Array
    """[K]: what the strategy thinks of each."""


Score = Callable[[Array, Array], tuple[Array, Array]]
Strategy = Callable[[Array, Candidates, int], Chosen]


def ranked(score: Score) -> Strategy:
    """The strategy that asks the pairs with the best scores, best first; a pair that came before counts as the last."""

    def strategy(key: Array, candidates: Candidates, count: int) -> Chosen:
        scores, flip = score(key, candidates.returns)
        index = _best(candidates, scores, count)
        return Chosen(index, flip[index], scores[index])

    return strategy


def _best(candidates: Candidates, scores: Array, count: int) -> Array:
    """The pairs [K] with the best of these scores [N]; no pair twice as long as there are others."""
    return jax.lax.top_k(jnp.where(_again(candidates), -jnp.inf, scores), count)[1]


def _again(candidates: Candidates) -> Array:
    return jnp.zeros(candidates.returns.shape[1], bool) if candidates.again is None else candidates.again


def optimistic(key: Array, returns: Array) -> tuple[Array, Array]:
    """Algorithm 2: mean plus standard deviation over members of P(first preferred).

    The score depends on which segment is called first, so both orders of every pair are candidates and the better
    one stands for the pair.
    """
    del key
    first = probability(returns[..., 0], returns[..., 1])  # [E, N]
    std = jnp.std(first, axis=0)  # the same for both orders
    forward, backward = jnp.mean(first, axis=0) + std, jnp.mean(1.0 - first, axis=0) + std
    return jnp.maximum(forward, backward), backward > forward


def promising(key: Array, returns: Array) -> tuple[Array, Array]:
    """Half of the pairs at random, half between segments that may both be among the best.

    The best are the upper fifth by mean plus deviation of their return. Chance teaches what is good at all, contests
    among the best what is better still: pairs drawn at random hardly ever compare two good segments.

    Returns count as the members give them, in other units than in plans: a member with a wide scale weighs more in the
    mean, and in the deviation what members differ in by level and scale alone counts like disagreement.
    `preferences.center` keeps levels small. Every measurement of the preset `best` was made so.
    """
    hoped = jnp.mean(returns, axis=0) + jnp.std(returns, axis=0)  # [N, 2]
    contest = jnp.all(hoped >= jnp.percentile(hoped, 100 * (1 - PROMISING)), axis=1)
    score, flip = uniform(key, returns)
    share = jnp.mean(contest)  # contests are few; their scores crowd at the top as densely as those of all pairs
    return jnp.where(contest, 1.0 - (1.0 - score) * share, score), flip


def uniform(key: Array, returns: Array) -> tuple[Array, Array]:
    """Every candidate pair is as good as any other."""
    return _as_it_is(jax.random.uniform(key, returns.shape[1:2]))


def disagreement(key: Array, returns: Array) -> tuple[Array, Array]:
    """The pairs about which members differ most: standard deviation of P(first preferred) (B-Pref, Lee et al. 2021)."""
    del key
    return _as_it_is(jnp.std(probability(returns[..., 0], returns[..., 1]), axis=0))


def entropy(key: Array, returns: Array) -> tuple[Array, Array]:
    """The pairs nearest to a tie for each member: mean entropy of its answer, in nats (B-Pref, Lee et al. 2021)."""
    del key
    return _as_it_is(jnp.mean(_entropy(probability(returns[..., 0], returns[..., 1])), axis=0))


def information_gain(key: Array, returns: Array) -> tuple[Array, Array]:
    """What the answer tells about which member is right: their mutual information, in nats (BALD, Houlsby et al. 2011).

    Entropy of the mean less mean entropy: high where members are sure of different answers, zero where all are unsure.
    """
    del key
    first = probability(returns[..., 0], returns[..., 1])  # [E, N]
    return _as_it_is(_entropy(jnp.mean(first, axis=0)) - jnp.mean(_entropy(first), axis=0))


def _entropy(p: Array) -> Array:
    return entr(p) + entr(1.0 - p)


def _as_it_is(score: Array) -> tuple[Array, Array]:
    return score, jnp.zeros(score.shape, bool)


def thompson(key: Array, candidates: Candidates, count: int) -> Chosen:
    """Duelling posterior sampling (Novoseller et al. 2020): each question is a contest of two members' favourites.

    Every question has two members i, j drawn at random and a share of the distinct pairs of its own, so that no pair
    comes twice. It asks for the pair, in the order, with the highest u_i(first) + u_j(second). Units and levels of
    members are arbitrary: u is the return less the member's mean over its standard deviation. The score is that sum.
    """
    members, pairs, _ = candidates.returns.shape
    again = _again(candidates)
    distinct_first = jnp.argsort(again, stable=True)
    share = jnp.maximum(pairs - jnp.sum(again), count) // count  # pairs that have come before: only to fill up
    k_first, k_other = jax.random.split(key)
    first = jax.random.randint(k_first, (count,), 0, members)
    other = (first + 1 + jax.random.randint(k_other, (count,), 0, max(members - 1, 1))) % members
    level, spread = (f(candidates.returns, axis=(1, 2), keepdims=True) for f in (jnp.mean, jnp.std))
    units = (candidates.returns - level) / jnp.maximum(spread, 1e-6)
    place = jnp.arange(pairs // count)  # in a share, the largest there can be
    own = distinct_first[jnp.arange(count)[:, None] * share + place]  # [K, share]
    mine, theirs = units[first[:, None], own], units[other[:, None], own]  # [K, share, 2]
    hopes = jnp.where((place < share)[:, None], mine + theirs[..., ::-1], -jnp.inf)  # each pair in both orders
    hopes = hopes.reshape(count, -1)
    best = jnp.argmax(hopes, axis=1)
    return Chosen(own[jnp.arange(count), best // 2], best % 2 == 1, jnp.max(hopes, axis=1))


def kcenter(key: Array, candidates: Candidates, count: int) -> Chosen:
    """Pairs unlike those labelled and unlike each other: greedy k-center, farthest first (B-Pref, Lee et al. 2021).

    The centres are all labelled pairs, before the first label the mean of the candidates, and each pair once it is
    chosen. The score is the distance to the nearest centre when the pair was chosen, 0 for a pair that came before.
    """
    del key
    features = candidates.features

    def choose(nearest: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        farthest = jnp.argmax(nearest)
        distance = jnp.sum((features - features[farthest][None]) ** 2, axis=1)
        return jnp.minimum(nearest, distance).at[farthest].set(-jnp.inf), (farthest, nearest[farthest])

    nearest = _nearest(features, candidates.labelled, candidates.mask)
    nearest = jnp.where(_again(candidates), -1.0, nearest)  # exchanged, a pair lies elsewhere and is the same question
    _, (index, squared) = jax.lax.scan(choose, nearest, length=count)
    return Chosen(index, jnp.zeros(count, bool), jnp.sqrt(jnp.maximum(squared, 0.0)))


def _nearest(features: Array, labelled: Array, mask: Array) -> Array:
    """Squared distance [N] of each row to the nearest of the labelled ones, or to zero where there is none.

    |a - b|^2 = |a|^2 + |b|^2 - 2ab, a block of rows at a time: no array has candidates, labels and features.
    """
    own, other = (jnp.sum(x**2, axis=1) for x in (features, labelled))

    def beyond(row: Array) -> Array:  # less the row's own square; full precision, for the terms nearly cancel
        product = jnp.dot(labelled, row, precision=jax.lax.Precision.HIGHEST)
        return jnp.min(jnp.where(mask, other - 2.0 * product, jnp.inf))

    squared = own + jax.lax.map(beyond, features, batch_size=BLOCK)
    return jnp.where(jnp.any(mask), jnp.maximum(squared, 0.0), own)


def kcenter_among(score: Score) -> Strategy:
    """`kcenter` among the better half of the candidates by another score (B-Pref's hybrids)."""

    def strategy(key: Array, candidates: Candidates, count: int) -> Chosen:
        scores, _ = score(key, candidates.returns)
        kept = _best(candidates, scores, max(scores.shape[0] // 2, count))
        among = candidates._replace(features=candidates.features[kept], again=_again(candidates)[kept])
        chosen = kcenter(key, among, count)
        return chosen._replace(index=kept[chosen.index])

    return strategy


STRATEGIES: dict[str, Strategy] = {
    "optimistic": ranked(optimistic),
    "promising": ranked(promising),
    "uniform": ranked(uniform),
    "disagreement": ranked(disagreement),
    "entropy": ranked(entropy),
    "information-gain": ranked(information_gain),
    "thompson": thompson,
    "kcenter": kcenter,
    "kcenter-disagreement": kcenter_among(disagreement),
    "kcenter-entropy": kcenter_among(entropy),
}


def make_strategy(name: str) -> Strategy:
    """Look a strategy up by name, or import it as `module:function`."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    if own.is_named(name):
        return own.function("preferences.strategy", name)
    raise UserError(f"{unknown_name('query strategy', name, STRATEGIES)}. {own.remedy('preferences.strategy')}")


def register(name: str, strategy: Strategy) -> None:
    """Add a strategy of your own. Call it in every program that trains or resumes such a run.

    Args:
        name: What `preferences.strategy` calls it.
        strategy: strategy(key, candidates, count) -> Chosen; `ranked` makes one of a score.
    """
    added = config_files.FURTHER.setdefault("preferences.strategy", [])
    if name in STRATEGIES and name not in added:
        raise UserError(f"'{name}' is a query strategy of ubp2 itself; give yours another name")
    STRATEGIES[name] = strategy
    if name not in added:
        added.append(name)
