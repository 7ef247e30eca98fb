"""`ubp2 train` with several environments and within minutes: what it asks for, what it answers, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import ubp2
from tests.experiments.sweeps import SETTINGS, twins
from tests.terminal.fake_api import Api
from ubp2.errors import UserError
from ubp2.terminal.cli import main


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    fake = Api()
    monkeypatch.setitem(sys.modules, "ubp2.api", fake)
    monkeypatch.setattr(ubp2, "api", fake, raising=False)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return fake


TWO = ["train", "--preset", "paper", "--env", "metaworld/door-close", "--env=metaworld/hammer", "--seeds", "3"]


def test_each_environment_has_its_own_column_of_the_preset(api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*TWO, "--planner.samples", "100", "--minutes", "27", "--json"]) == 0
    ((name, configs, options),) = api.calls
    assert (name, options["seeds"], options["minutes"]) == ("train", 3, pytest.approx(27.0, abs=26.9))
    assert [config.env for config in configs] == ["metaworld/door-close", "metaworld/hammer"]
    assert [config.preferences.budget for config in configs] == [500, 10_000]
    assert {config.planner.samples for config in configs} == {100}
    data = json.loads(capfd.readouterr().out)
    assert [run["name"] for run in data["runs"]] == ["metaworld-door-close/ubp2/s0", "metaworld-hammer/ubp2/s0"]
    assert main(TWO) == 0
    text = capfd.readouterr().out
    assert "finished: 2 runs, " in text and "run folders: runs/a/*/*/s*" in text
    assert "  metaworld-door-close/ubp2/s0  policy/success_any 0.9\n" in text and "mean" not in text


def test_one_environment_is_a_run_as_ever(api: Api) -> None:
    assert main(["train", "--env", "toy/reach", "--steps", "30"]) == 0
    ((_, config, _),) = api.calls
    assert config.env == "toy/reach"


def test_a_run_that_failed_is_named_with_its_error(api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    api.error = UserError("the disk is full")
    assert main(TWO) == 1
    text = capfd.readouterr().out
    assert "metaworld-door-close/ubp2/s0: failed (the disk is full), at decision" in text
    assert "metaworld-hammer/ubp2/s0: finished" in text
    assert "1 of 2 runs failed; go on with: ubp2 train --resume runs/a" in text
    assert main([*TWO, "--json"]) == 1
    data = json.loads(capfd.readouterr().out)
    assert [run.get("error") for run in data["runs"]] == ["the disk is full", None]


def test_the_end_of_the_time_is_told(api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    api.finished = False
    assert main(["train", "--steps", "30", "--minutes", "2.5"]) == 75
    told = capfd.readouterr().out
    assert "stopped at decision 30 because the time (2.5 min) is over; go on with: ubp2 train --resume runs/a" in told
    assert main([*TWO, "--minutes", "3"]) == 75
    assert "2 of 2 runs stopped because the time (3 min) is over; go on with" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("train --env toy/reach --env toy/reach", "--env toy/reach stands there twice; for more runs of it there is"),
        ("train --minutes 0", "--minutes must be more than 0, got 0; leave it out for no limit"),
        ("train --minutes nan", "--minutes must be more than 0, got nan"),
        ("sweep status nowhere --minutes 0", "--minutes must be more than 0, got 0"),
        ("reproduce table1 --minutes -1", "--minutes must be more than 0, got -1"),
        ("train --population x.json --seeds 2", "--population goes by the file, which names configurations; leave out"),
        ("train --population nowhere.json", "cannot read the program nowhere.json: No such file or directory"),
        ("train --env toy/reach --env", "--env needs a value"),
        ("train --preset paper --env metaworld/hammer --env toy/reach", "the paper preset knows the paper's ten tasks"),
    ],
)
def test_mistakes_are_told(line: str, sentence: str, api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert sentence in capfd.readouterr().err and not api.calls


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ubp2", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def settings(folder: Path, **changes: Any) -> str:
    nested: dict[str, Any] = {}
    for name, value in {**SETTINGS, **changes}.items():
        section, _, own = name.partition(".")
        if own:
            nested.setdefault(section, {})[own] = value
        else:
            nested[name] = value
    (folder / "tiny.yaml").write_text(yaml.safe_dump(nested), encoding="utf-8")
    return "tiny.yaml"


@pytest.mark.slow
def test_tasks_of_one_size_share_a_program_and_every_command_takes_the_folder(tmp_path: Path) -> None:
    """Two tasks of one size, and a third with longer observations, which has a program of its own."""
    twins(tmp_path)
    envs = [word for env in ("toy/reach", "gym/twins:Slow-v0", "gym/twins:Wide-v0") for word in ("--env", env)]
    done = ran(tmp_path, "train", "--config", settings(tmp_path, steps=300), *envs, "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    names = ["toy-reach/ubp2/s0", "gym-twins-Slow-v0/ubp2/s0", "gym-twins-Wide-v0/ubp2/s0"]
    assert [run["name"] for run in json.loads(done.stdout)["runs"]] == names
    programs = json.loads((tmp_path / "out" / "population.json").read_text(encoding="utf-8"))["programs"]
    assert programs == [names[:2], names[2:]]
    told = json.loads(ran(tmp_path, "info", "out", "--json").stdout)
    assert (told["runs"], told["tasks"], list(told["members"])) == (3, 3, names)
    assert [own["differs"] for own in told["members"].values()] == [
        {"env": "toy/reach"},
        {"env": "gym/twins:Slow-v0"},
        {"env": "gym/twins:Wide-v0"},
    ]
    assert "env" not in told["config"] and told["config"]["steps"] == 300
    scored = json.loads(ran(tmp_path, "eval", "out", "--episodes", "1", "--json").stdout)
    assert list(scored["members"]) == names
    page = ran(tmp_path, "report", "out", "--out", "page")
    assert page.returncode == 0 and "Slow" in page.stdout and "1 seed for each method and task" in page.stdout
    assert ran(tmp_path, "plot", "out", "--out", "curve.png").returncode == 0


@pytest.mark.slow
def test_a_run_ends_in_its_minutes_and_goes_on(tmp_path: Path) -> None:
    file = settings(tmp_path, steps=8000)
    began = time.monotonic()
    stopped = ran(tmp_path, "train", "--env", "toy/reach", "--config", file, "--out", "out", "--minutes", "0.75")
    assert time.monotonic() - began < 45
    assert stopped.returncode == 75 and "because the time (0.75 min) is over" in stopped.stdout, stopped.stderr
    rows = (tmp_path / "out" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert any(json.loads(row)["kind"] == "eval" for row in rows)
    done = ran(tmp_path, "train", "--resume", "out", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["decisions"] == 8000
