"""The scripts behind the numbers of the docs can be started: what they import is still there."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.bench.scripts import BENCHMARKS, load
from ubp2.config.presets import preset
from ubp2.storage.population import create
from ubp2.storage.runs import Metrics


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_a_script_finds_what_it_imports(name: str) -> None:
    load(name)


@pytest.mark.parametrize("seeds", [1, 2])
def test_what_was_trained_together_is_collected_from_one_seed_on(
    seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curves = load("curves")

    def train(folder: Path, own: list[int], flags: list[str]) -> int:
        with contextlib.ExitStack() as stack:
            configs = {f"s{seed}" if len(own) > 1 else "": preset("cpu", "toy/reach", seed=seed) for seed in own}
            for run in create(stack, folder, configs):
                with Metrics(run.folder, tensorboard=False) as metrics:
                    metrics.write("eval", 100, {"planner/success_any": 0.5})
        return 0

    monkeypatch.setattr(curves, "train", train)
    words = ["name", "--together", "--runs", str(tmp_path), "--results", str(tmp_path), "--seeds"]
    monkeypatch.setattr("sys.argv", ["curves.py", *words, *map(str, range(seeds))])
    assert curves.main() == 0
    assert [row["seed"] for row in curves.read(tmp_path / "name.csv")] == [str(seed) for seed in range(seeds)]


def test_a_single_seed_has_a_score_and_no_interval(tmp_path: Path) -> None:
    curves = load("curves")
    for seeds in (1, 2):
        rows = [{"seed": seed, "decision": 100, "labels": 5, "planner/success_any": 0.5} for seed in range(seeds)]
        curves.write(tmp_path / f"{seeds}.csv", rows)
    assert curves.table(tmp_path / "1.csv").endswith("| 100 (5), 1 | 0.50 |")
    assert curves.table(tmp_path / "2.csv").endswith("| 100 (5), 2 | 0.50 [0.50, 0.50] |")
