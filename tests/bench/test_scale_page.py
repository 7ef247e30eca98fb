"""docs/scale.md tells what the cost model gives, and the model what was measured."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.bench.scripts import load


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("scale")


def test_the_page_is_up_to_date_with_the_raw_files(script: ModuleType) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.render(page) == page, "run: python benchmarks/scale.py"


def test_the_model_is_near_whole_runs(script: ModuleType) -> None:
    model = script.measured()
    for file in ("performance/gpu-train.json", "scale/train.json"):
        for row in script.rows(file, "parts of a decision"):
            own = (model.planning if row["phase"] == "planning" else model.policy)(row["seeds"])
            assert own == pytest.approx(row["mean_ms"], rel=0.2)


def test_a_line_goes_through_what_was_measured(script: ModuleType) -> None:
    line = script.Line.through([(1, 3.0), (4, 9.0), (16, 33.0)])
    assert line.at(10) == pytest.approx(21.0)
