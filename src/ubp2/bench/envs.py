"""ubp2 bench envs: what a decision costs without any agent, alone and in lock-step with others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ubp2.bench.options import Envs
from ubp2.bench.report import Report, Row
from ubp2.bench.timing import median_seconds
from ubp2.config.schema import EnvironmentConfig
from ubp2.envs.base import VectorEnv
from ubp2.envs.workers import make_vector

__all__ = ["measure"]

RESETS = 5  # that a median is taken over


def measure(options: Envs) -> Report:
    """A row for each environment, and one for each number of workers."""
    cores = os.cpu_count() or 1
    workers = options.workers or tuple(n for n in (1, 4, 16) if n <= 2 * cores)
    alone = [_alone(name, options.repetitions) for name in options.env]
    together = [_together(name, n, options.repetitions) for name in options.env for n in workers]
    report = Report("envs", {"one environment": alone, "workers in lock-step": together})
    report.notes.append(f"{cores} cores; a worker is a process, and a step of all is as slow as the slowest")
    return report


def _alone(name: str, repetitions: int) -> Row:
    times = {}
    for in_process in (True, False):
        envs = make_vector(name, EnvironmentConfig(in_process=in_process), 1)
        times[in_process] = median_seconds(_stepping(envs), repetitions)
        envs.close()
    return {
        "env": name,
        "inline_us": 1e6 * times[True],
        "worker_us": 1e6 * times[False],
        "worker_over_inline": times[False] / times[True],
    }


def _together(name: str, workers: int, repetitions: int) -> Row:
    envs = make_vector(name, EnvironmentConfig(), workers)
    seconds = median_seconds(_stepping(envs), repetitions)

    def one_by_one() -> None:
        for i in range(workers):
            envs.reset(i, i)

    def side_by_side() -> None:
        envs.send_resets({i: i for i in range(workers)})
        envs.receive_resets()

    apart, together = (median_seconds(run, RESETS) for run in (one_by_one, side_by_side))
    envs.close()
    return {
        "env": name,
        "workers": workers,
        "step_of_all_us": 1e6 * seconds,
        "steps_per_s": workers / seconds,
        "resets_one_by_one_ms": 1e3 * apart,
        "resets_side_by_side_ms": 1e3 * together,
        "resets_speed_up": apart / together,
    }


def _stepping(envs: VectorEnv) -> Callable[[], Any]:
    """Steps with random actions, each with the resets of those whose episode it ended; one that is over costs nothing.

    The median is that of a step alone, unless episodes end at every other.
    """
    random = np.random.default_rng(0)

    def reset(which: Iterable[int]) -> None:
        envs.send_resets({i: i for i in map(int, which)})
        envs.receive_resets()

    def step() -> None:
        envs.send(random.uniform(-1, 1, (envs.size, envs.spec.action_dim)).astype(np.float32))
        told = envs.receive()
        over = np.flatnonzero(told.terminated | told.truncated)
        if len(over):
            reset(over)

    reset(range(envs.size))
    return step
