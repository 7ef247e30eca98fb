"""Runs that earlier versions wrote, kept in tests/data as they were: each goes on with the code of today."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.training.helpers import agent_arrays, labels, rows, saved
from ubp2 import api
from ubp2.config.files import load_yaml
from ubp2.training import checkpoint

DATA = Path(__file__).parents[1] / "data"
RUNS = sorted(path.relative_to(DATA) for path in DATA.glob("format-*/*"))


def test_every_format_is_there() -> None:
    assert {path.parts[0] for path in RUNS} == {f"format-{number}" for number in range(1, checkpoint.FORMAT + 1)}


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_a_run_of_an_earlier_version_goes_on(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(DATA / run, folder)
    before, asked = saved(folder), labels(folder)
    known = rows(folder)
    assert before.decision == 130 and len(asked) == 16
    scores = api.evaluate(folder, episodes=1)
    assert scores["length"] == 20 and np.isfinite(scores["return"])
    result = api.resume(folder, progress=False)
    assert (result.decisions, result.labels, result.finished) == (200, 8, True)
    after = saved(folder)
    assert after.decision == 200 and after.arrays.keys() == before.arrays.keys()
    assert any(not np.array_equal(array, before.arrays[name]) for name, array in agent_arrays(folder).items())
    assert labels(folder) == asked and rows(folder)[: len(known)] == known
    assert [row["decision"] for row in rows(folder, "eval")] == [100, 200]
    assert not list((folder / "checkpoints").glob("*.damaged"))


def test_runs_of_before_keep_their_normaliser() -> None:
    """Their folder does not name the settings; a new run with the same file has those of today."""
    file = DATA / "format-1/ubp2/config.yaml"
    before, today = load_yaml(file, own_names=True).model, load_yaml(file).model
    assert (before.obs_floor, before.obs_limit, before.obs_tail) == (0.01, 10.0, 0.0)
    assert (today.obs_floor, today.obs_limit, today.obs_tail) == (0.01, 10.0, 1.0)
