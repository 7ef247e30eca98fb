"""What the tests of queries share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ubp2 import config_io
from ubp2.preference.queries import STRATEGIES


@pytest.fixture
def registry() -> Iterator[None]:
    """Forget what a test registers."""
    names = list(STRATEGIES)
    yield
    for name in set(STRATEGIES) - set(names):
        del STRATEGIES[name]
    config_io.FURTHER.clear()
