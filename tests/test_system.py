"""What the machine says of itself, also where it says it otherwise."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from tests.training.helpers import tiny
from ubp2 import api, system
from ubp2.errors import UserError
from ubp2.training.shared import shared_programs


@pytest.mark.parametrize(("platform", "held"), [("linux", 512_000), ("darwin", 512_000_000)])
def test_memory_without_proc_is_what_getrusage_says(monkeypatch: pytest.MonkeyPatch, platform: str, held: int) -> None:
    """In kilobytes, or on a Mac in bytes."""

    def missing(*_: Any, **__: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=held))
    assert system.resident_megabytes() == 512


def test_a_process_whose_jax_has_64_bits_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """Arrays would not have the types that programs were compiled for, and a run would end in the middle."""
    nothing: Any = None
    with jax.enable_x64(True):
        for act in (
            lambda: api.train(tiny(), out=tmp_path / "run", progress=False),
            lambda: shared_programs(nothing, nothing),  # of a run that goes on, is evaluated or loaded
        ):
            with pytest.raises(UserError, match="jax is set to 64"):
                act()
    assert not (tmp_path / "run").exists()
