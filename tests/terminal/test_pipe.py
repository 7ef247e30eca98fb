"""Commands in a pipe: whoever reads may stop at any time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_a_reader_that_has_seen_enough_is_no_error(flags: list[str]) -> None:
    """As in `ubp2 envs | head -1`: the pipe is closed before anything is printed."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ubp2", "envs", *flags]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
