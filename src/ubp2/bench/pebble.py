"""ubp2 bench pebble: the fit of the reward, the rewards of a whole replay and a step of SAC, against loops.

The loops are those of the published code (`ubp2.bench.loops`); the table `agreement` says that they compute the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from ubp2.agents import pebble, sac
from ubp2.bench import flops, pebble_subject
from ubp2.bench.options import Pebble
from ubp2.bench.pebble_subject import Work
from ubp2.bench.report import Report, Row
from ubp2.bench.subject import ACTION_DIM, OBS_DIM
from ubp2.bench.timing import compile_all, jit, medians
from ubp2.config.schema import Config, given
from ubp2.models.networks import compute_type

__all__ = ["measure", "operations"]

PRODUCT, PRODUCTS = 1024, 20  # rows and columns of a large product, and how many: one is too short for a busy machine
BETWEEN = 5000  # updates from one session to the next in B-Pref's scripts for Meta-World
LONG = {"fit": (0, 3)}  # warm-up calls after the first, and calls at least that are measured, of what takes seconds


def measure(options: Pebble) -> Report:
    """A row for each of the three and each number of seeds."""
    config = pebble_subject.sized(options)
    works = {seeds: pebble_subject.work(config, seeds) for seeds in sorted({1, *options.seeds})}
    loop = pebble_subject.loop(config)
    same = pebble_subject.agreement(config)
    compile_all({(s, name): getattr(work, name) for s, work in works.items() for name in work._fields})
    compile_all({name: getattr(loop, name) for name in loop._fields})
    rows = [
        _row(config, name, seeds, works, loop, options.repetitions)
        for name in Work._fields
        for seeds in sorted(set(options.seeds))
    ]
    report = Report("pebble", {"pebble": rows, "rewards of an update": [_spread(config, works[1], rows, options)]})
    report.tables["agreement"] = [same]
    report.notes += _notes(config)
    return report


def _row(config: Config, name: str, seeds: int, works: dict[int, Work], loop: Work, repetitions: int) -> Row:
    """Ours for some seeds, ours for one seed, the loop for one and large products, called in turn."""
    size, multiply = PRODUCT, jit(jnp.matmul)
    x, count = jnp.ones((size, size)), PRODUCTS
    ours, alone, looped = (getattr(own, name) for own in (works[seeds], works[1], loop))
    runs: list[Callable[[], Any]] = [
        ours,
        looped,
        lambda: [multiply(x, x) for _ in range(count)],
        *([alone] if seeds > 1 else []),
    ]
    seconds, slow, product, *one = medians(runs, repetitions, *LONG.get(name, ()))
    amount, rate = operations(config, name), count * 2 * size**3 / product
    return {
        "what": name,
        "seeds": seeds,
        "ms": 1e3 * seconds,
        "loop_ms": 1e3 * seeds * slow,
        "speed_up": seeds * slow / seconds,
        "over_seed_by_seed": seeds * one[0] / seconds if one else 1.0,
        "gflop": seeds * amount / 1e9,
        "share_of_product_rate": seeds * amount / seconds / rate,
        "speed_up_of_products_alone": slow * rate / amount,
    }


def operations(config: Config, name: str) -> int:
    """Operations of the matrix products of one call for one seed."""
    hidden = [config.model.width] * config.model.depth
    members, batch = config.model.reward_members, config.training.batch_size
    critic, policy = flops.network(OBS_DIM + ACTION_DIM, *hidden, 1), flops.network(OBS_DIM, *hidden, 2 * ACTION_DIM)
    reward = flops.network(OBS_DIM + ACTION_DIM, *hidden, 1)
    inputs = flops.network(OBS_DIM + ACTION_DIM, hidden[0])  # whose own gradient nobody asks for
    labelled = 2 * given(config.preferences.budget) * config.preferences.segment_length
    if name == "fit":
        return config.sac.epochs * labelled * members * (3 * reward - inputs)
    if name == "relabel":
        return given(config.training.replay_capacity) * members * reward
    learned = sac.CRITICS * (critic + 3 * critic - inputs + 2 * critic)  # asked as targets, fitted, asked by the policy
    return batch * (learned + policy + 3 * policy - flops.network(OBS_DIM, hidden[0]))


def _spread(config: Config, work: Work, rows: list[Row], options: Pebble) -> Row:
    """What an update pays for asking the present reward, and what it would pay for a replay that is relabelled."""
    state, batch = pebble_subject.minibatch(config)
    ask = jit(partial(pebble.predict_reward, config))
    again, update = medians([lambda: ask(state, batch.obs[0], batch.action[0]), work.sac], options.repetitions)
    relabel = next(row["ms"] for row in rows if row["what"] == "relabel" and row["seeds"] == min(options.seeds))
    return {
        "asked_again_ms": 1e3 * again,
        "share_of_the_sac_update": again / update,
        "relabelling_over_updates_ms": relabel / min(options.seeds) / BETWEEN,
    }


def _notes(config: Config) -> list[str]:
    model, labels = config.model, given(config.preferences.budget)
    return [
        f"{model.depth} layers of {model.width}, {model.reward_members} members, {labels} labels on segments of "
        f"{config.preferences.segment_length} in minibatches of {config.preferences.batch_size}, {config.sac.epochs} "
        f"epochs; replay of {given(config.training.replay_capacity)}; batch {config.training.batch_size}, SAC's "
        f"products in {compute_type(model).__name__}",
        "loop: every network called for itself, compiled, minibatch by minibatch from arrays of the host, in chunks of "
        "200 for the replay; of several seeds, that of one times their number",
        "speed up of products alone: of a version that were nothing but products, at the rate of a large one",
        f"relabelling over updates: of one seed, with {BETWEEN} updates between sessions",
        "agreement: largest difference of what ours and the loop end with, in standard deviations of how far it moved",
    ]
