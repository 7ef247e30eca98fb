"""The scripts of benchmarks/ as modules, for the tests that hold their pages."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

__all__ = ["BENCHMARKS", "load"]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    """A script, which may import others beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return importlib.import_module(name)
