"""Which kernels of a GPU the time of a program goes into, from a trace of jax's profiler."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

from ubp2.bench.report import Report, Row
from ubp2.bench.timing import on_gpu

__all__ = ["grouped", "largest", "profile", "read_trace"]

CALLS = 10
PRODUCTS = ("nvjet", "gemm", "cublas", "cutlass")
FUSED = ("norm_mish",)
SHOWN = 10


def profile(report: Report, run: Callable[[], Any]) -> None:
    """Add tables of device time to a report; on a CPU a sentence."""
    if not on_gpu():
        report.notes.append("--profile needs a GPU: on a CPU there are no kernels to tell apart")
        return
    jax.block_until_ready(run())
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # a trace has room for a limited number of events
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            for _ in range(CALLS):
                jax.block_until_ready(run())
        kernels = read_trace(Path(folder))
    report.tables["device time of a call"] = grouped(kernels)
    report.tables["largest kernels"] = largest(kernels)


def read_trace(folder: Path) -> list[tuple[str, float]]:
    """Name and microseconds of everything that ran on a stream of the GPU."""
    found: list[tuple[str, float]] = []
    for path in sorted(folder.rglob("*.trace.json.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            events = json.load(stream)["traceEvents"]
        names = {
            (event["name"], event["pid"], event.get("tid")): event["args"]["name"]
            for event in events
            if event.get("ph") == "M" and event["name"] in ("process_name", "thread_name")
        }
        processes = {pid: name for (kind, pid, _), name in names.items() if kind == "process_name"}
        streams = {
            (pid, thread)
            for (kind, pid, thread), name in names.items()
            if kind == "thread_name" and "Stream" in name and "GPU" in processes.get(pid, "")
        }
        found += [
            (event["name"], float(event["dur"]))
            for event in events
            if event.get("ph") == "X" and (event["pid"], event["tid"]) in streams
        ]
    return found


def grouped(kernels: Iterable[tuple[str, float]], calls: int = CALLS) -> list[Row]:
    """Products, fused kernels and everything else: milliseconds and kernels of one call, and the share of the time."""
    time: dict[str, float] = dict.fromkeys(("products", "norm_mish", "everything else"), 0.0)
    count = dict.fromkeys(time, 0)
    for name, microseconds in kernels:
        lower = name.lower()
        group = "norm_mish" if any(part in lower for part in FUSED) else "everything else"
        group = "products" if any(part in lower for part in PRODUCTS) else group
        time[group] += microseconds
        count[group] += 1
    total = sum(time.values()) or 1.0
    rows = [_row(name, time[name] / calls, count[name] / calls, time[name] / total) for name in time]
    return [*rows, _row("all", sum(time.values()) / calls, sum(count.values()) / calls, 1.0)]


def largest(kernels: Iterable[tuple[str, float]], calls: int = CALLS) -> list[Row]:
    """The kernels that take the most time."""
    time: dict[str, list[float]] = defaultdict(list)
    for name, microseconds in kernels:
        time[name].append(microseconds)
    total = sum(map(sum, time.values())) or 1.0
    names = sorted(time, key=lambda name: -sum(time[name]))[:SHOWN]
    return [_row(n[:70], sum(time[n]) / calls, len(time[n]) / calls, sum(time[n]) / total) for n in names]


def _row(name: str, microseconds: float, kernels: float, share: float) -> Row:
    return {"what": name, "ms": microseconds / 1e3, "kernels": kernels, "share": share}
