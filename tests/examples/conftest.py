"""What the tests of the examples share."""

from __future__ import annotations

from tests.preference.conftest import registry

__all__ = ["registry"]
