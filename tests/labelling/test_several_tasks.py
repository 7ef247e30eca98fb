"""Folders of runs on several tasks: labels belong to one of them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.errors import UserError
from ubp2.labelling import transfer
from ubp2.storage import population
from ubp2.storage.database import going_on


@pytest.fixture
def both(tmp_path: Path) -> Path:
    config = resolve(preset("cpu", "toy/reach"), 50)
    configs = {"toy-reach/ubp2/s0": config, "other/ubp2/s0": replace(config, env="gym/Pendulum-v1")}
    with contextlib.ExitStack() as stack:
        population.create(stack, tmp_path / "both", configs)
    return tmp_path / "both"


def test_labels_of_two_tasks_go_neither_into_one_file_nor_out_of_it(both: Path, tmp_path: Path) -> None:
    sentence = r"several environments \(toy/reach, gym/Pendulum-v1\), and labels belong to one; name the run"
    with pytest.raises(UserError, match=sentence):
        transfer.import_files(both, [tmp_path / "labels.jsonl"])
    for run in population.members(both):
        (run / "labels.sqlite").touch()
    with pytest.raises(UserError, match=sentence):
        transfer.export(both, tmp_path / "labels.jsonl", anonymous=False, overwrite=False, intact=False)


def test_whoever_goes_on_goes_on_with_all_of_them(both: Path) -> None:
    assert going_on(both / "toy-reach" / "ubp2" / "s0") == f"ubp2 train --resume {both}"
    assert going_on(both / "alone" / "ubp2" / "s0").endswith("alone/ubp2/s0")
