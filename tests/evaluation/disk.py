"""An ffmpeg whose disk is full while a test wants it to be."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ubp2.evaluation.video import find_ffmpeg

__all__ = ["disk_of_ffmpeg", "needs_dev_full"]

needs_dev_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def disk_of_ffmpeg(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have clips written by an ffmpeg that finds the disk full as long as the file exists that is returned."""
    program, full = folder / "ffmpeg", folder / "full"
    program.write_text(
        f'#!/usr/bin/env bash\nargs=("$@")\n[ -e {shlex.quote(str(full))} ] && args[-1]=/dev/full\n'
        f'exec {shlex.quote(find_ffmpeg())} "${{args[@]}}"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("FFMPEG", str(program))
    return full
