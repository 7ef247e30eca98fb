"""Files of sweeps: what they become, and what a mistake in one is told as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.experiments.sweeps import TINY, write
from ubp2.config.files import overridden
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.errors import UserError
from ubp2.experiments import plans, resources, sweep_file
from ubp2.experiments.resources import Resources, Shape
from ubp2.terminal import cli


def planned(folder: Path, **changes: Any) -> plans.Plan:
    sweep = sweep_file.read(write(folder, **changes))
    return plans.plan(sweep.request(), sweep.how(quiet=True), folder / "out")


def test_a_grid_is_combined_with_every_method_task_and_seed(tmp_path: Path) -> None:
    grid = {"training.learning_rate": ["1e-3", 0.0001], "planner.horizon": [2, 3]}
    settings = {name: value for name, value in TINY["settings"].items() if name != "planner"}
    made = planned(tmp_path, grid=grid, seeds=3, together=2, tasks=["toy/reach", "gym/Pendulum-v1"], settings=settings)
    assert len(made.cells) == 2 * 2 * 4 and len(made.groups) == 2 * len(made.cells)
    names = [cell.method for cell in made.cells[:2]]
    assert names == ["ubp2+learning_rate=1e-3+horizon=2", "ubp2+learning_rate=1e-3+horizon=3"]
    config = made.cells[1].config
    assert (config.training.learning_rate, config.planner.horizon) == (1e-3, 3)
    assert {cell.config.agent for cell in made.cells} == {"ubp2", "mbp"}


def test_methods_have_settings_of_their_own(tmp_path: Path) -> None:
    methods = {"ubp2": None, "blind": {"agent": "ubp2", "ablation": "0111"}, "few": {"preferences": {"budget": 4}}}
    made = {cell.method: cell.config for cell in planned(tmp_path, methods=methods).cells}
    assert made["ubp2"].optimism.reward and not made["blind"].optimism.reward
    assert made["few"].preferences.budget == 4


def gentle(config: Any, obs_dim: int, action_dim: int) -> Any:
    """An agent of one's own, which no test makes."""


gentle.model_free = True  # type: ignore[attr-defined]
HERE = "tests.experiments.test_sweep_file"


def test_methods_and_strategies_may_be_functions_of_ones_own(tmp_path: Path) -> None:
    grid = {"preferences.strategy": ["uniform", "tests.training.test_own:good"]}
    made = planned(tmp_path, methods=["ubp2", f"{HERE}:gentle"], grid=grid, steps=2500)
    names = [cell.method for cell in made.cells]
    assert names[0] == "ubp2+strategy=uniform" and names[-1] == f"{HERE}-gentle+strategy=tests.training.test_own-good"
    config = made.cells[-1].config
    assert config.agent == f"{HERE}:gentle" and config.evaluation.controllers == ("policy",)
    plans.require_functions(made)
    with pytest.raises(UserError, match="agent tests.nowhere:gentle cannot be imported"):
        planned(tmp_path, methods=["tests.nowhere:gentle"])
    grid = {"preferences.strategy": [f"{HERE}:HERE"]}
    with pytest.raises(UserError, match=f"the query strategy {HERE}:HERE must be a function strategy"):
        plans.require_functions(planned(tmp_path, methods=["ubp2"], grid=grid))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"methods": ["pebble"], "grid": {"planner.temperature": [0.5, 1.0]}, "steps": 3000},
            r"pebble\+temperature=0.5 and pebble\+temperature=1.0 on toy/reach would train the same twice: they differ "
            "in planner.temperature alone, which pebble does not read; leave one of them out",
        ),
        (
            {"methods": {"one": {"agent": "ubp2"}, "other": {"agent": "ubp2", "training.horizon": 2}}},
            "one and other on toy/reach would train the same twice: their settings are equal",
        ),
    ],
)
def test_what_would_train_the_same_twice_is_refused(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        planned(tmp_path, **changes)
    for name in folders(changes):
        (tmp_path / "out" / "toy-reach" / name).mkdir(parents=True)
    assert len(planned(tmp_path, **changes).cells) == 2, "begun before, it goes on"


def folders(changes: dict[str, Any]) -> list[str]:
    """The folders of the two cells."""
    return [f"pebble+temperature={value}" for value in (0.5, 1.0)] if "grid" in changes else list(changes["methods"])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"grid": {"preferences.strategy": ["uniform", "entropy"]}},
            "mbp.strategy=entropy on toy/reach: agent mbp sets",
        ),
        ({"grid": {"preferences": [{"strategy": "entropy"}]}}, "agent mbp sets preferences.strategy to uniform"),
        (
            {"methods": {"mine": {"agent": "ubp2", "ablation": "1111", "preferences": {"strategy": "promising"}}}},
            "mine on toy/reach: ablation 1111 sets preferences.strategy to optimistic, and promising was asked for",
        ),
    ],
)
def test_a_setting_that_a_method_would_undo_is_refused(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        planned(tmp_path, **changes)


def test_the_folder_of_a_sweep_holds_the_sweep(tmp_path: Path) -> None:
    sweep = sweep_file.read(write(tmp_path, grid={"training.learning_rate": [1e-3]}, resources={"cpus": 3}, jobs=2))
    sweep_file.write(sweep, tmp_path)
    assert sweep_file.read(tmp_path / sweep_file.FILE) == sweep


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "key": ({"metods": ["ubp2"]}, r"tiny.yaml, line \d+: unknown key 'metods'. Did you mean methods"),
    "agent": ({"methods": ["ubp"]}, r"line \d+: unknown agent 'ubp'. Did you mean ubp2.*One of your own"),
    "setting": (
        {"methods": {"mine": {"planner": {"horizn": 3}}}},
        r"line \d+: unknown setting 'planner.horizn'. Did you mean horizon\?",
    ),
    "grid": ({"grid": {"training.learning_rat": [1]}}, r"line \d+: unknown setting 'training.learning_rat'"),
    "value": ({"grid": {"planner.horizon": [2, "x"]}}, r"line \d+: planner.horizon must be a whole number, got 'x'"),
    "list": ({"grid": {"optimism.reward": True}}, "grid.optimism.reward must be a list of values, got True"),
    "seeds": ({"seeds": 0}, "seeds must be a whole number, at least 1, got 0"),
    "seed": ({"settings": {"seed": 3}}, "seed is no setting of a sweep; it has seeds and tasks"),
    "twice": ({"grid": {"model.width": [16]}}, "model.width stands in settings and in grid; leave it in one of them"),
    "twice by its short name": (
        {"settings": {"teacher.name": "noisy"}, "methods": {"mine": {"agent": "ubp2", "teacher": "oracle"}}},
        "teacher.name stands in settings and in methods",
    ),
    "twice in a grid": (
        {"settings": {"teacher": "noisy"}, "grid": {"teacher.name": ["oracle", "skip"]}},
        "teacher.name stands in settings and in grid",
    ),
    "twice in a table": ({"grid": {"planner": [{"horizon": 3}]}}, "planner.horizon stands in settings and in grid"),
    "preset": ({"preset": "bset"}, r"tiny.yaml, line \d+: unknown preset of a sweep 'bset'. Did you mean best"),
    "steps twice": (
        {"settings": {"steps": 900}},
        r"tiny.yaml, line \d+: steps stands in the file itself and in settings; leave it in one of them",
    ),
    "environment": (
        {"grid": {"environment.action_repeat": [1, 2]}},
        r"line \d+: environment.action_repeat changes the task, which all methods share; it stands in settings",
    ),
    "one folder": (
        {"grid": {"training.learning_rate": ["1e-3", "1e-3"]}},
        r"tiny.yaml, line \d+: two combinations would have the same folder, ubp2\+learning_rate=1e-3",
    ),
    "name": ({"name": "a/b"}, "name must be fit for a folder"),
    "missing": ({"tasks": []}, "tasks is missing; a sweep has a name, tasks and methods"),
    "place": ({"on": "slrum"}, "unknown place to run on 'slrum'. Did you mean slurm"),
    "resource": ({"resources": {"gpu": 1}}, "unknown resource 'gpu'. Did you mean gpus"),
    "cores": ({"resources": {"cpus": 0}}, "resources.cpus must be a number, at least 1, got 0"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_place(name: str, tmp_path: Path) -> None:
    changes, message = MISTAKES[name]
    with pytest.raises(UserError, match=message):
        sweep_file.read(write(tmp_path, **changes))


def test_a_line_is_the_line_of_the_mistake(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: a\ntasks: [toy/reach]\nmethods:\n  mine:\n    planer.horizon: 3\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"s.yaml, line 5: unknown setting 'planer'. Did you mean planner"):
        sweep_file.read(path)
    path.write_text("name: [", encoding="utf-8")
    with pytest.raises(UserError, match=r"^\S+s.yaml is not valid YAML, line 1, column 8: expected the node content"):
        sweep_file.read(path)


COMMANDS = {
    "sweep nowhere.yaml": "cannot read the sweep nowhere.yaml: No such file or directory",
    "sweep staus nowhere": "one of status, stop, resume, cell and a folder, got 'staus nowhere'. Did you mean status",
    "sweep status": "ubp2 sweep status needs the folder of a sweep: ubp2 sweep status runs/NAME",
    "sweep resume nowhere": "nowhere holds no sweep (no sweep.yaml in it); start one with: ubp2 sweep FILE.yaml",
    "sweep resume DIR --out elsewhere": "is about the sweep in made, where it stays; leave out --out",
    "sweep FILE --fake-preempt 3": "--fake-preempt runs the script of --on slurm",
    "sweep FILE --jobs 0": "--jobs must be at least 1, got 0",
    "sweep FILE --retries -1": "--retries must not be negative, got -1",
}


@pytest.mark.parametrize("words", COMMANDS)
def test_a_mistake_in_a_command_is_one_sentence(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / sweep_file.FILE).write_bytes(file.read_bytes())
    staged = {"FILE": str(file), "DIR": "made"}
    assert cli.main([staged.get(word, word) for word in words.split()]) == 2
    assert COMMANDS[words] in capsys.readouterr().err


def test_a_task_that_does_not_exist_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sweep", str(write(tmp_path, tasks=["toy/raech"])), "--out", str(tmp_path / "out")]) == 2
    assert "unknown toy task" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_plan_shows_what_every_group_needs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, resources={"cpus": 3, "gpus": 0.5})
    assert cli.main(["sweep", str(file), "--out", str(tmp_path / "out"), "--dry-run", "--on", "ray"]) == 0
    assert "3 cores, 0.5 GPU" in capfd.readouterr().err
    assert not (tmp_path / "out").exists(), "a dry run writes nothing"


# ubp2 bench train on one H200, preset and seeds: MB that the device held (benchmarks/results/reproduce, performance);
# `best` with pairs at random, which need no judgement of the candidates.
MEASURED = {("best", 1): 170, ("best", 10): 890, ("paper", 1): 1550, ("paper", 10): 1764, ("paper", 16): 2824}


@pytest.mark.parametrize(("name", "seeds"), MEASURED)
def test_memory_that_is_asked_for_is_enough_and_not_far_too_much(name: str, seeds: int) -> None:
    asked = {"preferences.strategy": "optimistic" if name == "paper" else "uniform"}
    config = resolve(overridden(preset(name, "metaworld/door-close"), asked), 100)
    own = resources.needed(config, seeds, Shape(39, 4), gpu=True, device=80_000)
    replay = seeds * config.steps * 46 * 4 / 1e6
    assert MEASURED[name, seeds] < own.megabytes - replay < 3 * MEASURED[name, seeds] + 600


def test_resources_follow_the_configuration() -> None:
    small, large = (resolve(preset(name, "metaworld/door-close"), 100) for name in ("cpu", "paper"))
    assert resources.needed(small, 1, Shape(39, 4), gpu=False) == Resources(2)
    assert resources.needed(large, 16, Shape(39, 4), gpu=True, device=80_000).cpus == 5
    shares = [resources.needed(large, seeds, Shape(39, 4), gpu=True, device=16_000).gpus for seeds in (1, 16, 40)]
    assert shares[0] < shares[1] < shares[2] == 1.0
    assert resources.largest([Resources(2, 0.5), Resources(4, 0.25)]) == Resources(4, 0.5)


def test_what_a_cluster_job_is_called_by_its_number_stays_the_same(tmp_path: Path) -> None:
    """A group that begins before an earlier one must not change the numbers of the others."""
    before = [group.folder for group in planned(tmp_path, seeds=5, together=2).groups]
    before[1].mkdir(parents=True)
    assert [group.folder for group in planned(tmp_path, seeds=5, together=2).groups] == before


def test_the_example_of_the_page_is_a_sweep(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    example = page.partition("```yaml\n")[2].partition("```")[0]
    assert yaml.safe_load(example)
    path = tmp_path / "example.yaml"
    path.write_text(example, encoding="utf-8")
    assert cli.main(["sweep", str(path), "--dry-run", "--json", "--out", str(tmp_path / "out")]) == 0
