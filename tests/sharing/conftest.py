"""What the tests of sharing have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sharing.made import trained


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run that was trained."""
    return trained("observation", tmp_path_factory.mktemp("finished") / "run", "toy/reach")
