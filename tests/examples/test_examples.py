"""Every file of examples/ runs, made small by the configuration it is given, and is as short as it says."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubp2
from tests.training.helpers import keep_compilations, saved, table, tiny
from ubp2.config.schema import Config

FOLDER = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.usefixtures("registry")
WITHOUT = "import sys; sys.modules.update(jax=None, ubp2=None, gymnasium=None, scipy=None)\n"


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Examples of one size share their programs."""
    keep_compilations()


def small(**changes: Any) -> Config:
    """What stands for the preset: of the shapes that other tests have, too, so that programs are compiled once."""
    return tiny(steps=170, evaluation={"every": 0}, **changes)


def main(name: str) -> Any:
    """The function that an example runs, without running it."""
    return runpy.run_path(str(FOLDER / name))["main"]


def test_each_is_short_and_named_in_the_list() -> None:
    files = {path.name for path in FOLDER.iterdir() if path.suffix in (".py", ".ipynb")}
    listed = re.findall(r"^\| \[`([\w.]+)`\]\(\1\)", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(files)
    assert {name for name in files if len(lines_of(FOLDER / name)) >= 100} == set()


def lines_of(path: Path) -> list[str]:
    """Lines of code or text; of a notebook those of its cells."""
    if path.suffix == ".py":
        return path.read_text(encoding="utf-8").splitlines()
    return [line for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] for line in cell["source"]]


def test_an_environment_and_a_teacher_of_ones_own(tmp_path: Path, capsys: Any) -> None:
    result = main("custom_environment.py")(small(env="room"), str(tmp_path / "room"))
    assert result.finished and result.labels == 14
    assert table(result.folder / "labels.sqlite", "SELECT DISTINCT annotator FROM answers") == [("custom",)]
    assert capsys.readouterr().out.count("degrees off") == 2


def test_labels_are_used_again(tmp_path: Path) -> None:
    first, second = main("reuse_labels.py")(small(), str(tmp_path))
    assert first.labels == second.labels == 14
    assert not table(second.folder / "labels.sqlite", "SELECT id FROM queries WHERE session >= 0")


def test_a_query_strategy_of_ones_own(tmp_path: Path) -> None:
    own, other = main("new_acquisition.py")(small(), str(tmp_path))
    assert own.labels == other.labels == 14
    asked = table(own.folder / "labels.sqlite", "SELECT DISTINCT strategy FROM queries WHERE session = 1")
    assert asked == [("unsure-about-the-best",)]
    assert len(lines_of(FOLDER / "new_acquisition.py")) <= 50


def test_an_agent_of_ones_own_whose_policy_is_exported_and_used(tmp_path: Path) -> None:
    result = main("new_agent.py")(small(), str(tmp_path / "run"))
    assert result.finished and saved(result.folder).decision == 170
    assert len(lines_of(FOLDER / "new_agent.py")) <= 50
    code = f"{WITHOUT}import runpy; actions = runpy.run_path({str(FOLDER / 'use_exported_policy.py')!r})['main']"
    path = result.folder / "policy.npz"
    script = f"{code}(__import__('pathlib').Path({str(path)!r}))\nimport numpy; numpy.save('actions.npy', actions)"
    told = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "toy/reach: 4 numbers in, 2 out\nlearned by cautious in 170 decisions from 8 labels" in told.stdout
    original, actions = ubp2.load(result.folder), np.load(tmp_path / "actions.npy")
    observations = np.random.default_rng(0).normal(size=(1000, 4))
    np.testing.assert_allclose(actions, np.stack([original.act(obs) for obs in observations]), rtol=0, atol=1e-5)


def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(ubp2, "preset", lambda name, env: small(env=env))
    cells = json.loads((FOLDER / "first_hour.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")  # nobody's machine is in it
    namespace: dict[str, Any] = {}
    exec(compile("\n\n".join(code), "first_hour.ipynb", "exec"), namespace)
    assert namespace["result"].labels == 14 and namespace["taught"].finished
    assert set(namespace["scores"]) == {"policy", "planner"}
