"""The scripts behind the numbers of the docs can be started: what they import is still there."""

from __future__ import annotations

import pytest

from tests.bench.scripts import BENCHMARKS, load


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_a_script_finds_what_it_imports(name: str) -> None:
    load(name)
