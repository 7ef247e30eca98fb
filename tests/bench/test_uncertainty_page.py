"""docs/uncertainty.md has the tables that its raw file gives."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="a source distribution has no benchmarks")


def test_the_page_is_up_to_date_with_the_raw_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = importlib.import_module("plot_uncertainty")
    page = script.PAGE.read_text(encoding="utf-8")
    rows = json.loads(script.RESULTS.read_text(encoding="utf-8"))["tables"]["uncertainty"]
    assert script.render(page, rows) == page, "run: python benchmarks/plot_uncertainty.py"
    assert all(f"<!-- table:{name} -->" in page for name in script.tables(rows))
