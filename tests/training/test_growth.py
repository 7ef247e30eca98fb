"""The memory of a run does not grow with its length: `benchmarks/growth.py`, short and whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.training.helpers import ROOT, environment


@pytest.mark.slow
@pytest.mark.parametrize("decisions", [2_000, 50_000])
def test_a_run_does_not_grow(decisions: int) -> None:
    """In a process of its own, whose memory is that of the run alone."""
    command = [sys.executable, ROOT / "benchmarks" / "growth.py", "--decisions", str(decisions)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=3600)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    assert "growth from" in ended.stdout
