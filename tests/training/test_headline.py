"""What a run says first: what is trained, how long, and where; and that it begins again where it had no checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.training.helpers import tiny
from ubp2 import api


def test_a_run_says_what_it_trains_and_where(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config, out = tiny(), tmp_path / "run"
    api.train(config, out=out)
    lines = capfd.readouterr().err.splitlines()
    budget = config.preferences.budget
    assert lines[0] == f"toy/reach, ubp2: {config.steps:,} decisions, {budget} labels, in {out}"
    shutil.rmtree(out / "checkpoints")
    (out / "checkpoints").mkdir()
    api.resume(out)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "there is no checkpoint yet: the run begins again at decision 0"
    assert lines[1].endswith(f"in {out}")
