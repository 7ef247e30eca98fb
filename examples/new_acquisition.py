"""A query strategy of your own: which pairs of clips are worth a person's time?

This one asks about what members disagree on, weighted by how good the better clip may be: to be unsure about two bad
clips matters less than to be unsure about the best. Compare it with `promising` and `disagreement` in docs/queries.md.

    python examples/new_acquisition.py           # some minutes on two cores
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

import ubp2
from ubp2.preference.queries import ranked, register


def unsure_about_the_best(key: jax.Array, returns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Score [N] of pairs from what each reward member gives the two clips [E, N, 2]; and whether to exchange them."""
    del key  # a strategy that draws something would use it
    first_preferred = jax.nn.sigmoid(returns[..., 0] - returns[..., 1])
    unsure = jnp.std(first_preferred, axis=0)
    hoped = jnp.max(jnp.mean(returns, axis=0) + jnp.std(returns, axis=0), axis=1)  # of the better clip
    rank = jnp.argsort(jnp.argsort(hoped)) / hoped.shape[0]  # in (0, 1): returns have no unit of their own
    return unsure * rank, jnp.zeros(unsure.shape, bool)


def main(config: ubp2.Config | None = None, out: str = "runs/acquisition") -> list[ubp2.RunResult]:
    """The strategy against pairs at random, with everything else alike."""
    register("unsure-about-the-best", ranked(unsure_about_the_best))
    config, results = config or ubp2.preset("demo", env="toy/reach"), []
    for strategy in ("unsure-about-the-best", "uniform"):
        preferences = dataclasses.replace(config.preferences, strategy=strategy)
        results.append(ubp2.train(dataclasses.replace(config, preferences=preferences), out=f"{out}/{strategy}"))
    for strategy, result in zip(("unsure-about-the-best", "uniform"), results, strict=True):
        print(f"{strategy}: {result.evaluation}")
    print("one seed each proves nothing: give ubp2.train seeds=10, and look at both with ubp2 compare")
    return results


if __name__ == "__main__":
    main()
