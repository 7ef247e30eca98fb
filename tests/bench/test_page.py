"""docs/performance.md tells what the raw files tell, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.bench.scripts import load
from ubp2.bench.options import Bench
from ubp2.terminal.cli import _parse


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("performance")


def test_the_page_is_up_to_date_with_the_raw_files(script: ModuleType) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.render(page, script.RESULTS) == page, "run: python benchmarks/performance.py render"


def test_every_table_of_the_page_has_a_command_that_measures_it(script: ModuleType) -> None:
    names = re.findall(r"<!-- table:(.+?) -->", script.PAGE.read_text(encoding="utf-8"))
    files = {name.partition("/")[0] for name in names} | {target.file for target in script._targets()}
    benches = {name for commands in script.BENCHES.values() for name in commands}
    assert files - {"targets", "memory"} <= benches  # one that nobody has run yet has no table
    for commands in script.BENCHES.values():
        for line in commands.values():
            assert isinstance(_parse("bench", line.split()), Bench)


def test_targets_and_tables_are_filled_from_raw_files(script: ModuleType, tmp_path: Path) -> None:
    """A met target, a missed one, and one without a file."""
    rows = [{"seeds": 1, "ms": 1.5, "plans_per_s": 666.6}, {"seeds": 16, "ms": 20.0, "plans_per_s": 800.0}]
    about = {"command": "ubp2 bench plan", "device": "H", "cores": 2, "date": "2025-01-02T", "source": None}
    (tmp_path / "gpu-plan-latent.json").write_text(json.dumps({"tables": {"plan": rows}, **about}))
    page = "a\n<!-- table:targets -->\nstale\n<!-- end -->\n<!-- table:gpu-plan-latent/plan -->\n<!-- end -->\nb"
    text = script.render(page, tmp_path)
    assert "latent of 512, 1 seed | ≤ 2 ms | 1.5 ms | yes |" in text
    assert "latent of 512, 16 seeds | ≥ 1000 plans/s | 800 plans/s | **no** |" in text
    assert "| host memory after 1M decisions, 1 seed | ≤ 2000 MB | not measured yet |" in text
    assert "| 16 | 20 | 800 |\n\n`ubp2 bench plan` on H, 2 cores, 2025-01-02, commit unknown\n<!-- end -->\nb" in text
    assert "stale" not in text and script.render(text, tmp_path) == text
