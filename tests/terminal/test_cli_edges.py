"""The command line where something is in its way: signals, paths, the folder it stands in, packages that are absent."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import ubp2.__main__ as program
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.storage.runs import Metrics, Run
from ubp2.terminal import cli, training
from ubp2.terminal.cli import main


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with an evaluation."""
    Run.create(tmp_path / "run", resolve(preset("cpu", "toy/reach"), 50)).close()
    with Metrics(tmp_path / "run", tensorboard=False) as metrics:
        metrics.write("eval", 2500, {"policy/success_any": 0.6})
    return tmp_path / "run"


def test_told_to_stop_with_nothing_to_save_is_json_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def told(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr(training, "_trained", told)
    assert main(["train", "--json"]) == 75
    printed = capfd.readouterr()
    assert json.loads(printed.out)["error"].startswith(
        "told to stop where no checkpoint was being written: go on with "
    )


def test_a_path_that_cannot_be_written_to_is_one_sentence(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for out in (run, run / "config.yaml" / "curve.png", run / ("x" * 300 + ".png")):
        assert main(["plot", str(run), "--out", str(out)]) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith("ubp2: ")


def test_a_module_in_the_folder_is_found_by_the_installed_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_encoder.py").write_text("CODE = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setattr(cli, "main", lambda: importlib.import_module("my_own_encoder").CODE)
    with pytest.raises(SystemExit) as left:
        program.run()
    assert left.value.code == 7 and sys.path[-1] == str(tmp_path)


def test_dm_control_that_is_absent_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dm_control" else find(name))
    assert main(["envs", "--suite", "dmc"]) == 2
    assert "the package dm_control is not installed; run: pip install 'ubp2[dmc]'" in capfd.readouterr().err
    assert main(["envs"]) == 0
    printed = capfd.readouterr()
    assert "toy/reach" in printed.out.splitlines() and "dm_control is not installed" in printed.err
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    assert main(["envs", "--suite", "dmc-visual"]) == 2
    assert "with Python 3.12" in capfd.readouterr().err
