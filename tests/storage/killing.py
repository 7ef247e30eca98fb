"""Writers that are killed at any moment, in a process without jax, which does not bear to be forked."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["killed", "run_alone"]


def run_alone(file: str, path: Path) -> None:
    """Run a test module as a script, with the path to write to."""
    search = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run([sys.executable, file, path], check=True, timeout=300, env={**os.environ, "PYTHONPATH": search})


def killed(work: Callable[[int], None]) -> list[int]:
    """Let `work` write in a child, which is killed soon after its first line; the numbers that it wrote."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(writer)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        acknowledged = stream.readline()
        time.sleep(random.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        acknowledged += stream.read()
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    return [int(line) for line in acknowledged.split()]
