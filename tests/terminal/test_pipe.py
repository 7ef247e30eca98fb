"""Commands in a pipe, and where there is none: whoever reads may stop at any time, or never have been there."""

from __future__ import annotations

import os
import shlex
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


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- --json"])
def test_streams_that_were_closed(closed: str) -> None:
    """As some schedulers start programs."""
    command = f"exec {shlex.quote(sys.executable)} -m ubp2 version {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_an_answer_that_does_not_fit_on_the_disk_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ubp2", "version", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "ubp2: cannot write: no space left on device\n"
