"""What the tests of queries share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ubp2.config import files as config_files
from ubp2.preference.queries import STRATEGIES


@pytest.fixture
def registry() -> Iterator[None]:
    """Forget what a test registers."""
    names = list(STRATEGIES)
    yield
    for name in set(STRATEGIES) - set(names):
        del STRATEGIES[name]
    config_files.FURTHER.clear()
