"""Clocks and gauges that the benches share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ubp2.system import resident_megabytes
from ubp2.training.compilation import GPU_OPTIONS, THREADS

__all__ = [
    "compile_all",
    "jit",
    "median_seconds",
    "medians",
    "memory_megabytes",
    "on_gpu",
    "product_rate",
    "worker_megabytes",
]

K = TypeVar("K")

WARM_UP = 3  # calls before the first that counts
LEAST, ENOUGH = 5, 4.0  # calls that are measured at least, and seconds after which no more follow


def on_gpu() -> bool:
    """Whether jax computes on a GPU."""
    return jax.default_backend() == "gpu"


def jit(function: Callable[..., Any]) -> Any:
    """`jax.jit` with the options that the programs of a run are compiled with."""
    return jax.jit(function, compiler_options=GPU_OPTIONS if on_gpu() else None)


def median_seconds(run: Callable[[], Any], repetitions: int) -> float:
    """Median wall time of `run`, waited for, after warm-up calls."""
    return medians([run], repetitions)[0]


def medians(
    runs: Sequence[Callable[[], Any]], repetitions: int, warm_up: int = WARM_UP, least: int = LEAST
) -> list[float]:
    """Median wall time of each, called in turn: whatever else the machine does meanwhile slows all of them down."""
    times: list[list[float]] = []
    for i in range(repetitions + warm_up):
        row = []
        for run in runs:
            start = time.perf_counter()
            jax.block_until_ready(run())
            row.append(time.perf_counter() - start)
        if i >= warm_up:
            times.append(row)
        if np.sum(times) > ENOUGH * len(runs) and len(times) >= least:
            break
    return np.median(times, axis=0).tolist()


def compile_all(work: Mapping[K, Callable[[], Any]]) -> dict[K, tuple[float, Any]]:
    """Compile side by side: each function compiles something and returns it; seconds and result by name."""

    def timed(function: Callable[[], Any]) -> tuple[float, Any]:
        start = time.perf_counter()
        result = jax.block_until_ready(function())
        return time.perf_counter() - start, result

    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(work, pool.map(timed, work.values()), strict=True))


def product_rate(dtype: jnp.dtype, size: int | None = None) -> float:
    """Operations a second of one large square product: what the device can do with factors of this type."""
    size = size or (8192 if on_gpu() else 1024)
    x = jnp.ones((size, size), dtype)
    multiply = jit(jnp.matmul)
    return 2 * size**3 / median_seconds(lambda: multiply(x, x), 10)


def memory_megabytes() -> float:
    """The most that the device has held so far, where its backend tells; else what this process holds now."""
    stats = jax.devices()[0].memory_stats() or {}
    return stats["peak_bytes_in_use"] / 1e6 if "peak_bytes_in_use" in stats else resident_megabytes()


def worker_megabytes() -> float:
    """Memory that the children of this process hold together; 0 where the system does not say."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(encoding="ascii", errors="replace")
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                total += int((folder / "statm").read_text(encoding="ascii").split()[1])
        except (OSError, IndexError, ValueError):  # it has ended meanwhile
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 1e6
