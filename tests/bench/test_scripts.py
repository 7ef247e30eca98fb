"""The scripts behind the numbers of the docs can be started: what they import is still there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.scripts import BENCHMARKS, load


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_a_script_finds_what_it_imports(name: str) -> None:
    load(name)


def test_a_single_seed_has_a_score_and_no_interval(tmp_path: Path) -> None:
    curves = load("curves")
    for seeds in (1, 2):
        rows = [{"seed": seed, "decision": 100, "labels": 5, "planner/success_any": 0.5} for seed in range(seeds)]
        curves.write(tmp_path / f"{seeds}.csv", rows)
    assert curves.table(tmp_path / "1.csv").endswith("| 100 (5), 1 | 0.50 |")
    assert curves.table(tmp_path / "2.csv").endswith("| 100 (5), 2 | 0.50 [0.50, 0.50] |")
