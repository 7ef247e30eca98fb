"""The wheel with nothing but what pip fetches for it, and with each extra alone. Downloads hundreds of megabytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.release.conftest import ROOT, Built
from tests.release.venvs import json_in, make_venv, pip, run_in, site_packages
from tests.training.helpers import tiny
from ubp2.config.files import save_yaml

pytestmark = pytest.mark.slow

CONSTRAINTS = ("--constraint", ROOT / "constraints.txt")


@pytest.fixture(scope="module")
def clean(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and its requirements in an environment of their own."""
    folder = make_venv(tmp_path_factory.mktemp("clean") / "venv")
    pip(folder, *CONSTRAINTS, built.wheel)
    return folder


@pytest.fixture(scope="module")
def run(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run that the clean installation trained, beside the file of its configuration."""
    folder = tmp_path_factory.mktemp("work")
    save_yaml(tiny(), folder / "tiny.yaml")
    assert json_in(clean, "train", "--config", "tiny.yaml", "--out", "run", cwd=folder)["finished"]
    return folder / "run"


def test_a_clean_installation_is_whole(clean: Path, run: Path) -> None:
    """pip finds nothing missing, the doctor finds nothing broken, and what was trained can be looked at."""
    run_in(clean, "python", "-m", "pip", "check")
    findings = json_in(clean, "doctor")["findings"]
    assert [line for line in findings if line["state"] == "problem"] == []
    assert {line["state"] for line in findings if line["check"].startswith("extra ")} <= {"note", "ok"}
    assert json_in(clean, "eval", run, "--episodes", "1")["scores"]
    run_in(clean, "ubp2", "plot", run, "--out", run / "curve.png")


# What each extra is for, done once: the command, given the run folder.
USES = {
    "dmc": "train --config {tiny} --env dmc/cartpole-balance --out {new}",
    "gym": "train --config {tiny} --env gym/Pendulum-v1 --out {new}",
    "hub": "push {run} ada/reach --dry-run --out {new}",
    "onnx": "export {run} --out {new}.onnx",
    "parquet": "labels export {run} {new}.parquet",
    "ray": "tune --env toy/reach --dry-run --out {new}",
    "visual": "encoder train --env toy-visual/reach --frames 200 --updates 2 --out {new}.npz",
}


@pytest.mark.parametrize("extra", USES)
def test_an_extra_alone(extra: str, clean: Path, run: Path, built: Built, tmp_path: Path) -> None:
    """The clean installation is lent to an environment that adds this extra and nothing else."""
    folder = make_venv(tmp_path / "venv", lend=site_packages(clean))
    pip(folder, *CONSTRAINTS, f"ubp2[{extra}] @ {built.wheel.as_uri()}")
    line = USES[extra].format(run=run, new=tmp_path / "new", tiny=run.parent / "tiny.yaml")
    assert json_in(folder, *line.split(), cwd=tmp_path)
    findings = {finding["check"]: finding for finding in json_in(folder, "doctor")["findings"]}
    assert findings[f"extra {extra}"]["state"] == "ok", findings[f"extra {extra}"]
