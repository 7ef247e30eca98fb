"""ubp2 bench update: what one gradient step on everything costs, against the arithmetic in it."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from ubp2 import replay
from ubp2.agents.registry import make_agent
from ubp2.bench import flops, kernels
from ubp2.bench.options import Update
from ubp2.bench.report import Report
from ubp2.bench.subject import ACTION_DIM, OBS_DIM, Subject, sized, subject, with_model
from ubp2.bench.timing import compile_all, median_seconds, memory_megabytes, product_rate
from ubp2.config.schema import Config, given
from ubp2.models.networks import compute_type
from ubp2.preference import buffer
from ubp2.training.records import Memory

__all__ = ["measure", "operations"]


class _Learning:
    """A subject that learns: each call of the program takes the state over from the one before."""

    def __init__(self, own: Subject) -> None:
        self.own, self.state = own, own.state

    def __call__(self) -> Any:
        step = np.int32(0), np.int32(0)
        self.state, metrics, _ = self.own.programs.update(self.state, self.own.memory, *step)
        return metrics


def measure(options: Update) -> Report:
    """A row for each number of seeds; with --profile further tables."""
    config = sized(options)
    learning = {seeds: _Learning(subject(config, seeds)) for seeds in sorted(set(options.seeds))}
    first = next(iter(learning.values()))
    amount = operations(first.own)
    compiled = compile_all(learning)
    rate = product_rate(compute_type(config.model))
    rows = []
    for seeds, run in learning.items():
        seconds = median_seconds(run, options.repetitions)
        rows.append(_row(seeds, seconds, seeds * amount, rate) | {"compile_s": compiled[seeds][0]})
        rows[-1]["memory_mb"] = memory_megabytes()
    report = Report("update", {"update": rows})
    training = config.training
    report.notes.append(
        f"batch {training.batch_size}, horizon {training.horizon}, space {config.model.space}, products in "
        f"{compute_type(config.model).__name__}, large product {rate / 1e12:.3g} TFLOP/s"
    )
    if options.profile:
        kernels.profile(report, first)
    return report


def operations(own: Subject) -> int:
    """Operations of the matrix products of one gradient step of one seed, counted in its float32 version."""
    config = with_model(own.config, precision="float32")
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), (own.state, own.memory))
    return flops.traced(partial(_step, config), *one, jax.ShapeDtypeStruct((), jax.random.key(0).dtype))


def _step(config: Config, state: Any, memory: Memory, key: jax.Array) -> Any:
    batch = replay.sample(memory.replay, key, config.training.batch_size, given(config.training.horizon))
    pairs = buffer.sample(memory.preferences, key, config.preferences.batch_size)
    return make_agent(config, OBS_DIM, ACTION_DIM).update(state, batch, pairs, key)


def _row(seeds: int, seconds: float, operations: int, rate: float) -> dict[str, Any]:
    return {
        "seeds": seeds,
        "ms": 1e3 * seconds,
        "updates_per_s": seeds / seconds,
        "gflop_an_update": operations / seeds / 1e9,
        "tflop_per_s": operations / seconds / 1e12,
        "share_of_product_rate": operations / seconds / rate,
    }
