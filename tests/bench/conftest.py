"""The modules of `benchmarks/studies/`, and a small queue."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.bench.scripts import load
from tests.bench.studies import QUEUE


@pytest.fixture
def queue() -> ModuleType:
    return load("studies.queue")


@pytest.fixture
def packing() -> ModuleType:
    return load("studies.packing")


@pytest.fixture
def training() -> ModuleType:
    return load("studies.training")


@pytest.fixture
def collecting() -> ModuleType:
    return load("studies.collecting")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small queue."""
    path = tmp_path / "queue.yaml"
    path.write_text(QUEUE, encoding="utf-8")
    return path


@pytest.fixture
def study(collecting: ModuleType, training: ModuleType) -> ModuleType:
    """The command itself, once what it imports later is there."""
    return load("study")
