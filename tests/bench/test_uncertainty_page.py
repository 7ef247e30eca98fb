"""docs/uncertainty.md has the tables that its raw file gives."""

from __future__ import annotations

import json

from tests.bench.scripts import load


def test_the_page_is_up_to_date_with_the_raw_file() -> None:
    script = load("plot_uncertainty")
    page = script.PAGE.read_text(encoding="utf-8")
    rows = json.loads(script.RESULTS.read_text(encoding="utf-8"))["tables"]["uncertainty"]
    assert script.render(page, rows) == page, "run: python benchmarks/plot_uncertainty.py"
    assert all(f"<!-- table:{name} -->" in page for name in script.tables(rows))
