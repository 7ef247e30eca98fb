"""The command line as its users meet it: fast help, exact messages, exit codes, and pure JSON."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ubp2
from tests.terminal.fake_api import Api
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.config.schema import TeacherConfig
from ubp2.storage.population import create
from ubp2.storage.runs import Metrics, Run
from ubp2.terminal.cli import COMMANDS, main

HEAVY = ("jax", "mujoco", "gymnasium", "metaworld", "matplotlib", "scipy")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    fake = Api()
    monkeypatch.setitem(sys.modules, "ubp2.api", fake)
    monkeypatch.setattr(ubp2, "api", fake, raising=False)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return fake


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with a few metric rows."""
    folder = tmp_path / "run"
    Run.create(folder, resolve(preset("cpu", "toy/reach"), 50)).close()
    with Metrics(folder, tensorboard=False) as metrics:
        metrics.write("labels", 500, {"labels/used": 20})
        metrics.write("eval", 2500, {"policy/success_any": 0.6})
    return folder


def test_help_and_mistakes_import_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from ubp2.terminal.cli import main\n"
        "for line in ('--help', 'train --help', 'train --preset paper --env metaworld/hammer --help', 'trian',\n"
        "             'train --preset papr', 'train --planner.horizont 3', 'train --config no.yaml', 'eval nowhere',\n"
        "             'bench --help', 'bench plan --help', 'bench plna', 'bench plan --seeds 0',\n"
        "             'lab --help', 'lab rewrad', 'lab reward --data nowhere',\n"
        "             'report --help', 'report nowhere', 'compare --help', 'compare a'):\n"
        "    main(line.split())\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.splitlines()[-1] == "[]"


def test_help_shows_the_values_of_the_preset(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--preset", "paper", "--env=metaworld/door-open", "--help"]) == 0
    shown = " ".join(capfd.readouterr().out.replace("│", "").split())
    assert "--planner.horizon INT Decisions looked ahead, H. (default: 11)" in shown
    assert "--steps INT Decisions in the run. (default: 1000000)" in shown
    assert main(["--help"]) == 0
    assert "ubp2 train --env toy/reach --steps 3000" in capfd.readouterr().out


MISTAKES = {
    "trian": (f"unknown command 'trian'. Did you mean train? Known: {', '.join(sorted(COMMANDS))}"),
    "train --preset papr": "unknown preset 'papr'. Did you mean paper? Known: best, cpu, demo, paper, pebble",
    "train --config none.yaml": "there is no configuration file none.yaml",
    "train --preset paper --env metaworld/hamer": (
        "the paper preset knows the paper's ten tasks and not 'metaworld/hamer'. Did you mean hammer? "
        "The ten: metaworld/door-close, metaworld/window-close, "
        "metaworld/handle-press, metaworld/coffee-button, metaworld/faucet-open, metaworld/door-open, "
        "metaworld/door-unlock, metaworld/sweep-into, metaworld/drawer-open, metaworld/hammer; "
        "for any other environment use --preset cpu"
    ),
    "train --resume nowhere --preset cpu": "--resume goes on with the configuration of the run; leave out --preset",
    "plot": "ubp2 plot needs at least one run folder: ubp2 plot RUN --out curve.png",
    "eval nowhere --episodes 0": "--episodes must be at least 1, got 0",
    "train --seeds 0": "--seeds must be at least 1, got 0",
    "train --seeds -3": "--seeds must be at least 1, got -3",
    "train --resume nowhere --seeds 2": "--resume goes on with the seeds in the folder; leave out --seeds",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_one_sentence_and_exit_with_2(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"ubp2: {MISTAKES[line]}\n")
    assert main([*line.split(), "--json"]) == 2
    out, err = capfd.readouterr()
    assert json.loads(out) == {"error": MISTAKES[line]}
    assert err == f"ubp2: {MISTAKES[line]}\n"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("train --planner.horizont 3", "unknown option --planner.horizont. Did you mean --planner.horizon? All"),
        ("train --horizon 3", "Did you mean --planner.horizon or --training.horizon? All options: ubp2 train --help"),
        ("bench plan --seed 3", "unknown option --seed. Did you mean --seeds? All options: ubp2 bench plan --help"),
        (
            "train --planner.optimizer cme",
            "--planner.optimizer has no choice 'cme'. Did you mean cem?",
        ),
        ("train --steps many", "--steps must be a whole number, got 'many'"),
        ("train --teacher nosy", "--teacher.name has no choice 'nosy'. Did you mean noisy"),
        ("train --teacher", "--teacher.name needs a value; ubp2 train --help says which"),
        ("train --teacher.mistake often", "--teacher.mistake must be a number, got 'often'"),
    ],
)
def test_wrong_flags_are_explained(line: str, part: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    out, err = capfd.readouterr()
    assert out == "" and part in err
    assert main([*line.split(), "--json"]) == 2
    assert part in json.loads(capfd.readouterr().out)["error"]


def test_train_composes_preset_file_and_flags(api: Api, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("env: metaworld/hammer\nsteps: 600000\nplanner: {samples: 100}\nseed: 3\n")
    line = f"train --preset paper --config {file} --seed 4 --optimism.no-value --out {tmp_path / 'out'} --quiet"
    assert main(line.split()) == 0
    ((name, config, options),) = api.calls
    assert (name, options) == (
        "train",
        {"seeds": 1, "labels": (), "out": tmp_path / "out", "progress": False, "minutes": None},
    )
    assert (config.env, config.preferences.per_session) == ("metaworld/hammer", 50)
    assert (config.steps, config.planner.samples, config.seed) == (600_000, 100, 4)
    assert (config.optimism.value, config.optimism.reward) == (False, True)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", TeacherConfig()),
        ("--teacher noisy --teacher.mistake 0.1", TeacherConfig("noisy", mistake=0.1)),
        ("--teacher.mistake 0.1 --teacher=noisy", TeacherConfig("noisy", mistake=0.1)),
        ("--teacher.name skip --teacher.beta inf", TeacherConfig("skip", beta=float("inf"))),
        ("--teacher equal --teacher.compat bpref-code", TeacherConfig("equal", compat="bpref-code")),
    ],
)
def test_a_teacher_by_its_name(api: Api, flags: str, expected: TeacherConfig) -> None:
    assert main(["train", *flags.split()]) == 0
    assert api.calls[0][1].teacher == expected


def test_a_teacher_over_one_of_a_file(api: Api, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("teacher: {name: skip, mistake: 0.1}\n")
    assert main(["train", "--config", str(tmp_path / "mine.yaml"), "--teacher", "noisy"]) == 0
    assert api.calls[0][1].teacher == TeacherConfig("noisy", mistake=0.1)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("train --env toy/reach --steps 3000 --seed 0", ("toy/reach", 3000, 96)),
        ("train --env metaworld/door-close --preset cpu", ("metaworld/door-close", 20_000, 96)),
        ("train --env metaworld/door-close --preset paper", ("metaworld/door-close", 1_000_000, 512)),
        ("train --env gym/Pendulum-v1 --steps 2000", ("gym/Pendulum-v1", 2000, 96)),
    ],
)
def test_commands_of_the_readme_compose(api: Api, line: str, expected: tuple[str, int, int]) -> None:
    assert main(line.split()) == 0
    ((_, config, _),) = api.calls
    assert (config.env, config.steps, config.model.width) == expected


def test_train_answers_text_and_pure_json(api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--steps", "3000"]) == 0
    out = capfd.readouterr().out
    assert out.endswith("finished: 3000 decisions, 40 labels\n  policy/success_any  0.9\nrun folder: runs/a\n")
    assert out.count("lambda_reward stays at 1: the reward reads the state alone") == 1
    assert main(["train", "--steps", "3000", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out) == {
        "folder": "runs/a",
        "decisions": 3000,
        "labels": 40,
        "finished": True,
        "evaluation": {"policy/success_any": 0.9},
    }
    assert "a C library says hello" in err


def test_several_seeds_answer_text_and_json(api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--steps", "3000", "--seeds", "2"]) == 0
    out = capfd.readouterr().out
    assert out.endswith(
        "finished: 2 seeds, 3000 decisions, 80 labels in all\nmean over the seeds\n"
        "  policy/success_any  0.9\nrun folders: runs/a/s*\n"
    )
    assert main(["train", "--steps", "3000", "--seeds", "2", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["folder"], data["labels"]) == ("runs/a", 80)
    assert [run["folder"] for run in data["runs"]] == ["runs/a/s0", "runs/a/s1"]
    api.finished = False
    assert main(["train", "--steps", "3000", "--seeds", "2"]) == 75
    assert "stopped at decision 3000; go on with: ubp2 train --resume runs/a\n" in capfd.readouterr().out


@pytest.fixture
def population(tmp_path: Path) -> Path:
    """The folder of two seeds with a few metric rows each."""
    folder = tmp_path / "both"
    with contextlib.ExitStack() as stack:
        config = resolve(preset("cpu", "toy/reach"), 50)
        for run in create(stack, folder, {f"s{seed}": replace(config, seed=seed) for seed in range(2)}):
            with Metrics(run.folder, tensorboard=False) as metrics:
                metrics.write("labels", 500, {"labels/used": 20})
                metrics.write("eval", 2500, {"policy/success_any": 0.6})
    return folder


def test_commands_take_the_folder_of_several_seeds(
    api: Api, population: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    members = [str(population / name) for name in ("s0", "s1")]
    assert main(["plot", str(population), "--out", str(tmp_path / "curve.png"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["runs"] == members
    assert main(["info", str(population), "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["seeds"], data["labels"], data["config"]["env"]) == (2, 40, "toy/reach")
    assert len(data["notes"]) == 1  # once for all
    assert {name: own["decisions"] for name, own in data["members"].items()} == {"s0": 2500, "s1": 2500}
    assert main(["train", "--resume", str(population), "--steps", "30000"]) == 0
    assert api.calls[-1][:2] == ("resume", population)
    capfd.readouterr()
    assert main(["eval", str(population), "--video", "clip.mp4"]) == 2
    assert f"film a member of {population}: ubp2 eval {members[0]}" in capfd.readouterr().err
    (population / "population.json").write_text("{}")
    assert main(["info", str(population)]) == 2
    assert "population.json is damaged" in capfd.readouterr().err


def test_stopped_run_exits_with_75_and_says_how_to_go_on(api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    api.finished = False
    assert main(["train", "--steps", "3000"]) == 75
    assert "stopped at decision 3000; go on with: ubp2 train --resume runs/a" in capfd.readouterr().out


def test_interrupt_exits_with_130(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "train", interrupted, raising=False)
    assert main(["train"]) == 130


def test_resume_keeps_the_configuration(api: Api, run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", str(run), "--steps", "30000", "--env", "toy/reach"]) == 0
    ((name, folder, options),) = api.calls
    assert (name, folder, options["config"].steps) == ("resume", run, 30_000)
    capfd.readouterr()
    assert main(["train", "--resume", str(run), "--planner.horizon", "5", "--model.width", "64"]) == 2
    assert capfd.readouterr().err == (
        "ubp2: a run resumes with the configuration it began with, and these fields differ: model.width: 96 -> 64; "
        "planner.horizon: 3 -> 5. Leave them out, or start a new run\n"
    )
    assert main(["train", "--resume", str(run), "--out", "elsewhere"]) == 2


def test_eval_passes_its_options_and_answers_json(api: Api, run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--episodes", "20", "--controller", "planner", "--json"]) == 0
    assert api.calls == [("evaluate", run, {"episodes": 20, "controller": "planner", "seed": None, "video": None})]
    assert json.loads(capfd.readouterr().out) == {
        "run": str(run),
        "controller": "planner",
        "episodes": 20,
        "scores": {"success_any": 0.5, "return": None},
    }


def test_info_of_a_run_and_of_the_installation(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(run), "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["decisions"], data["of"], data["labels"]) == (2500, 20_000, 20)
    assert data["evaluation"]["policy/success_any"] == 0.6
    assert data["config"]["env"] == "toy/reach"
    assert data["notes"][0].startswith("lambda_reward stays at 1: the reward reads the state alone")
    assert main(["info", "--json"]) == 0
    assert {"ubp2", "python", "jax", "mujoco"} <= json.loads(capfd.readouterr().out)["versions"].keys()


def test_plot_writes_the_figure(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "curve.png"
    assert main(["plot", str(run), "--out", str(out), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"out": str(out), "runs": [str(run)]}
    assert out.stat().st_size > 10_000


def test_envs_lists_ids_by_suite(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "--suite", "metaworld", "--json"]) == 0
    ids = json.loads(capfd.readouterr().out)["envs"]
    assert "metaworld/door-close" in ids and all(name.startswith("metaworld/") for name in ids)
    assert main(["envs", "--suite", "metawrld"]) == 2
    assert "ubp2: unknown suite 'metawrld'. Did you mean metaworld or metaworld-visual?" in capfd.readouterr().err
