"""docs/theory.md tells what the raw files tell, and names functions and tests that there are."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path

from tests.bench.scripts import load
from ubp2.terminal.flags import words
from ubp2.theory.options import Report
from ubp2.theory.report import parts

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "theory.md"


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_page_is_up_to_date_with_the_raw_files() -> None:
    assert load("theory").render(page()) == page(), "run: python benchmarks/theory.py render"


def test_the_raw_files_are_those_of_the_report() -> None:
    for part in parts(Report()):
        raw = json.loads((ROOT / "benchmarks" / "results" / "theory" / f"{part.name}.json").read_text(encoding="utf-8"))
        assert raw["command"] == shlex.join(["ubp2", *words("theory", part.options)])


def test_every_test_that_the_page_names_is_there() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    names = set(re.findall(r"\b(test_\w+)`", page()))
    assert names and all(f"def {name}(" in sources for name in names)


def test_every_function_that_the_page_names_is_there() -> None:
    table = page().split("## Statement by statement")[1].split("## What cannot")[0]
    found = re.findall(r"`(\w+)\.(\w+)`", table)
    assert len(found) > 20
    for module, name in found:
        assert hasattr(importlib.import_module(f"ubp2.theory.{module}"), name), f"{module}.{name}"
