"""The wheel with nothing but what pip fetches for it, and with each extra alone. Downloads hundreds of megabytes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

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


class Use(NamedTuple):
    """What an extra is for: the commands, given files and folders, of which the last one needs its package."""

    commands: tuple[str, ...]
    lacks: str = "pip install 'ubp2[{extra}]'"  # what the last one says without it
    refused: str = ""  # and with it, where no more can be tried here than that the package is there


WEIGHTS = ROOT / "tests" / "vision" / "data" / "plain.safetensors"  # of no size that has a name
USES = {
    "dmc": Use(("train --config {tiny} --env dmc/cartpole-balance --out {new}",)),
    "gym": Use(
        ("train --config {tiny} --env gym/Pendulum-v1 --out {new}", "eval {new} --episodes 1 --video {new}.gif"),
        lacks="pygame is not installed",
    ),
    "hub": Use(("push {run} ada/reach --out {new}",), refused="the Hub did not take ada/reach"),
    "onnx": Use(("export {run} --out {new}.onnx",)),
    "parquet": Use(("labels export {run} {new}.parquet",)),
    "ray": Use(("tune --env toy/reach --config {tiny} --trials 1 --steps 300 --address local --cpus 1 --out {new}",)),
    "visual": Use(
        ("train --config {tiny} --env toy-visual/reach --visual.weights {weights} --out {new}",),
        refused="has 64 features, 2 layers and 0 registers, and dinov2-small has 384, 12 and 0",
    ),
}


@pytest.mark.parametrize("extra", USES)
def test_an_extra_alone(
    extra: str, clean: Path, run: Path, built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clean installation, which refuses, is lent to an environment that adds this extra and nothing else."""
    if extra == "dmc" and sys.version_info >= (3, 13):
        pytest.skip("dm-control has no release for this Python")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody answers there
    monkeypatch.setenv("HF_TOKEN", "hf_nobody")
    use, places = USES[extra], {"run": run, "new": tmp_path / "new", "weights": WEIGHTS}
    lines = [line.format(tiny=run.parent / "tiny.yaml", **places).split() for line in use.commands]
    for line in lines[:-1]:
        json_in(clean, *line, cwd=tmp_path)
    without = run_in(clean, "ubp2", *lines[-1], cwd=tmp_path, code=2)
    assert use.lacks.format(extra=extra) in without.stderr
    folder = make_venv(tmp_path / "venv", lend=site_packages(clean))
    pip(folder, *CONSTRAINTS, f"ubp2[{extra}] @ {built.wheel.as_uri()}")
    if use.refused:
        assert use.refused in run_in(folder, "python", "-m", "ubp2", *lines[-1], cwd=tmp_path, code=2).stderr
    else:
        assert json_in(folder, *lines[-1], cwd=tmp_path)
    findings = {finding["check"]: finding for finding in json_in(folder, "doctor")["findings"]}
    assert findings[f"extra {extra}"]["state"] == "ok", findings[f"extra {extra}"]
