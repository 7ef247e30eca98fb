"""What the machine says of itself, also where it says it otherwise."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ubp2 import system


@pytest.mark.parametrize(("platform", "held"), [("linux", 512_000), ("darwin", 512_000_000)])
def test_memory_without_proc_is_what_getrusage_says(monkeypatch: pytest.MonkeyPatch, platform: str, held: int) -> None:
    """In kilobytes, or on a Mac in bytes."""

    def missing(*_: Any, **__: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=held))
    assert system.resident_megabytes() == 512
