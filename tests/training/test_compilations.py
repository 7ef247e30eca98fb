"""A run in its steady state compiles nothing and grows by nothing."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from tests.training.helpers import rows, tiny, trim
from ubp2 import api
from ubp2.config.schema import Config
from ubp2.system import resident_megabytes
from ubp2.training import loop


class Size(NamedTuple):
    """What a process holds."""

    arrays: int  # on the device
    objects: int  # that Python's collector knows
    megabytes: float


def watch(config: Config, folder: Path, leak: bool = False) -> dict[int, Size]:
    """Train, and measure at each training row; `leak` keeps one array a decision, to see that the check sees it."""
    sizes: dict[int, Size] = {}
    kept: list[Any] = []
    write_rows, act = loop._write_rows, loop._act

    def measure(crew: Any, state: Any, *rest: Any) -> None:
        write_rows(crew, state, *rest)
        t = state.counters.decision
        if state.counters.last_row[0] == t:
            gc.collect()
            sizes[t] = Size(len(jax.live_arrays()), len(gc.get_objects()), resident_megabytes())

    def hoard(*arguments: Any) -> Any:
        kept.append([jnp.zeros(3)])
        return act(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_write_rows", measure)
        if leak:
            patch.setattr(loop, "_act", hoard)
        assert api.train(config, out=folder, progress=False).finished
    return sizes


def grown(sizes: dict[int, Size], first: int) -> list[str]:
    """What grew from the row at `first` to the last one, by more than noise."""
    before, after = sizes[first], sizes[max(sizes)]
    decisions = max(sizes) - first
    return [
        name
        for name, grew in {
            "arrays": after.arrays > before.arrays + 20,
            "objects": after.objects > before.objects + decisions // 10,
            "megabytes": after.megabytes > before.megabytes + 50,
        }.items()
        if grew
    ]


# The first evaluation is at 100 and the first session at 200; the budget is spent, and the policy takes over, at 800.
STEADY: dict[str, Any] = {"preferences": {"every": 200}, "evaluation": {"every": 100}, "checkpoint": {"every": 100}}


@pytest.mark.parametrize("ceiling", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_is_compiled_after_the_warm_up_and_nothing_grows(tmp_path: Path, ceiling: bool) -> None:
    sizes = watch(tiny(steps=1000, ceiling=ceiling, **STEADY), tmp_path / "run")
    counts = {row["decision"]: row["time/compiled"] for row in rows(tmp_path / "run", "train")}
    assert len(counts) == 10 and 0 < counts[100] <= counts[300]
    assert {t: count for t, count in counts.items() if t > 200} == dict.fromkeys(range(300, 1001, 100), counts[300])
    assert grown(sizes, 300) == []


@pytest.mark.slow
def test_the_check_sees_a_leak(tmp_path: Path) -> None:
    sizes = watch(tiny(steps=500, ceiling=True, **STEADY), tmp_path / "run", leak=True)
    assert set(grown(sizes, 300)) >= {"arrays", "objects"}


def test_programs_that_tests_have_compiled_are_forgotten_once_they_are_many(tmp_path: Path) -> None:
    for age in range(4):
        (tmp_path / str(age)).write_bytes(bytes(10))
        os.utime(tmp_path / str(age), (1e9 - age, 1e9 - age))
    trim(tmp_path, most=40)
    assert len(list(tmp_path.iterdir())) == 4
    trim(tmp_path, most=39)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}
