"""A search as its folder has it: what it goes on with, what it refuses, and by what trials are judged."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from ubp2.config.files import overridden, save_yaml
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.config.schema import EnvironmentConfig
from ubp2.errors import UserError
from ubp2.experiments.tuning import search, space, study
from ubp2.experiments.tuning.judging import judge
from ubp2.experiments.tuning.options import Tune
from ubp2.experiments.tuning.study import Score, Study
from ubp2.terminal.cli import main

CONFIG = overridden(preset("cpu", "toy/reach"), {"steps": 9000})


def asked(trials: int = 3, **changes: Any) -> Study:
    made = Study(CONFIG, space.default(CONFIG), trials, 1, 0, "success", 3.0, 1000, 50)
    return replace(made, **changes)


def test_more_trials_leave_the_first_what_they_were(tmp_path: Path) -> None:
    first = study.trials(study.settle(asked(3), tmp_path), tmp_path)
    more = study.trials(study.settle(asked(5), tmp_path), tmp_path)
    assert more[:3] == first and len(more) == 5
    assert len(study.trials(study.settle(asked(2), tmp_path), tmp_path)) == 5, "fewer are no reason to forget any"
    assert study.open_study(tmp_path) == asked(5)


def test_a_folder_with_another_search_is_refused(tmp_path: Path) -> None:
    study.settle(asked(), tmp_path)
    with pytest.raises(UserError, match=r"asked for otherwise \(seeds: 1 -> 2\); choose another folder with --out"):
        study.settle(asked(seeds=2), tmp_path)
    (tmp_path / "tune.yaml").unlink()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match="is not empty and holds no search"):
        study.settle(asked(), tmp_path)
    with pytest.raises(UserError, match="holds no search of ubp2 tune"):
        study.open_study(tmp_path)
    (tmp_path / "tune.yaml").write_text("trials: 3\n", encoding="utf-8")
    with pytest.raises(UserError, match="tune.yaml is damaged"):
        study.open_study(tmp_path)


def test_trials_share_labels_and_evaluations_and_the_best_settings_depend_on_no_length(tmp_path: Path) -> None:
    made = asked(12)
    found = study.trials(made, tmp_path)
    configs = [trial.group.cell.config for trial in found]
    assert len({config.preferences.budget for config in configs}) == 1
    assert {config.evaluation.every for config in configs} == {900}
    assert len({config.preferences.every for config in configs}) > 1
    best = study.best_config(made, found[3])
    assert best.preferences.budget is None and best.training.replay_capacity is None
    assert overridden(best, found[3].point) == best


def evaluated(trial: study.Trial, values: list[float]) -> None:
    """A run folder with these evaluations, each a thousand decisions after the one before."""
    folder = trial.group.folder
    folder.mkdir(parents=True)
    save_yaml(trial.group.cell.config, folder / "config.yaml")
    (folder / "info.json").write_text("{}", encoding="utf-8")
    rows = [
        {"kind": "eval", "decision": 1000 * (i + 1), "planner/success_any": value, "planner/return": -value}
        for i, value in enumerate(values)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def test_a_score_is_the_mean_of_the_last_evaluations(tmp_path: Path) -> None:
    trial = study.trials(asked(1), tmp_path)[0]
    assert study.last_score(trial.group, "success") is None
    evaluated(trial, [0.0, 0.3, 0.6, 0.9])
    decisions, scores = zip(*study.scores(trial.group, "success"), strict=True)
    assert decisions == (1000, 2000, 3000, 4000) and scores == pytest.approx((0.0, 0.15, 0.3, 0.6))
    last = study.last_score(trial.group, "return")
    assert last is not None and last == pytest.approx((4000, -0.6))
    assert not study.ended(trial, "success")
    study.end_early(trial.group.cell.folder, Score(4000, 0.6))
    assert study.ended(trial, "success")


def test_a_search_that_goes_on_judges_by_the_trials_that_have_ended(tmp_path: Path) -> None:
    pytest.importorskip("ray.tune")
    from ubp2.experiments.tuning.on_tune import _scheduler

    made = asked(4)
    *ended, new = study.trials(made, tmp_path)
    for trial, value in zip(ended, (0.2, 0.5, 0.8), strict=True):
        evaluated(trial, [value])
    for score, verdict in ((0.3, "STOP"), (0.9, "CONTINUE")):
        asha: Any = _scheduler(made, ended)
        one = SimpleNamespace(trial_id=new.name)
        asha.on_trial_add(None, one)
        assert asha.on_trial_result(None, one, {"decision": 1000, "score": score}) == verdict


class Silent(gymnasium.Env):
    """An environment for people to judge: no success, and a reward that is always 0."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, **_: Any) -> None:
        """Rendering is not asked for."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(2, np.float32), 0.0, False, False, {}


def test_an_environment_that_tells_nothing_is_refused_with_what_to_do() -> None:
    options = EnvironmentConfig(episode_decisions=20)
    gymnasium.register("Silent-v0", Silent)
    try:
        with pytest.raises(
            UserError, match="nothing says which trial is better: gym/Silent-v0 tells no success, and"
        ) as e:
            judge("gym/Silent-v0", options, "auto")
        assert "for evaluation and scripted teachers" in str(e.value) and "--score return" in str(e.value)
        with pytest.raises(UserError, match="--score success: gym/Silent-v0 tells no success"):
            judge("gym/Silent-v0", options, "success")
        assert judge("gym/Silent-v0", options, "return") == ("return", 20)
    finally:
        del gymnasium.registry["Silent-v0"]
    assert judge("gym/Pendulum-v1", options, "auto") == ("return", 20)
    assert judge("toy/reach", options, "auto") == ("success", 20)
    assert judge("toy/reach", options, "return") == ("return", 20)


def test_trials_are_first_stopped_when_labels_can_have_mattered() -> None:
    config = resolve(CONFIG, 50)
    assert search._grace(config, 3.0) == 2000, "twice the warm-up of 1000, which is after the first session"
    assert search._grace(replace(config, steps=90_000), 3.0) == 10_000, "a ninth of the run"
    assert search._grace(replace(config, steps=1500), 3.0) == 1500


def test_a_trial_gets_what_its_seeds_need_unless_told(tmp_path: Path) -> None:
    found, cluster = study.trials(asked(), tmp_path), [{"CPU": 8.0, "GPU": 1.0}]
    assert search._needs(Tune(), asked(), found, [{"CPU": 8.0}]) == (2, 0)
    assert search._needs(Tune(), asked(), found, [{"CPU": 1.0}]) == (1, 0), "on a smaller machine all of it"
    assert search._needs(Tune(), asked(), found, cluster) == (2, 0.25), "four share a GPU"
    assert search._needs(Tune(cpus=3.0, gpus=1.0), asked(), found, cluster) == (3, 1)
    with pytest.raises(
        UserError, match="a trial wants 9 CPU and no node of the cluster has more than 8 beside 0.25 GPU"
    ):
        search._needs(Tune(cpus=9.0), asked(), found, cluster)


def test_a_trial_gets_what_one_node_has_and_not_what_all_have_together(tmp_path: Path) -> None:
    found, small = study.trials(asked(), tmp_path), [{"CPU": 8.0}, {"CPU": 1.0, "GPU": 1.0}, {"CPU": 8.0}]
    assert search._needs(Tune(), asked(), found, small) == (1, 0.25), "the node with the GPU has one core"
    assert search._needs(Tune(cpus=8.0, gpus=0.0), asked(), found, small) == (8, 0)
    with pytest.raises(UserError, match="a trial wants 9 CPU and no node of the cluster has more than 8; lower --cpus"):
        search._needs(Tune(cpus=9.0, gpus=0.0), asked(), found, small)
    with pytest.raises(UserError, match="wants 8 CPU and no node of the cluster has more than 1 beside 0.25 GPU"):
        search._needs(Tune(cpus=8.0), asked(), found, small)
    with pytest.raises(UserError, match="a trial wants 2 GPU and no node of the cluster has more than 1; lower --gpus"):
        search._needs(Tune(gpus=2.0), asked(), found, small)


def test_trials_that_came_further_stand_first(tmp_path: Path) -> None:
    made = asked(4)
    found = study.trials(made, tmp_path)
    for trial, values in zip(found, ([0.9], [0.1] * 9, [0.4] * 9, [1.0] * 9), strict=True):
        evaluated(trial, values)
    study.end_early(found[0].group.cell.folder, Score(1000, 0.9))
    summary = search._summary(made, tmp_path, found, {"trial-003": "code 2; it diverged"})
    assert [each.trial.number for each in summary.ranked] == [2, 1, 0, 3]
    assert [each.state for each in summary.ranked] == ["finished", "finished", "stopped early", "failed"]
    text = search.as_text(summary)
    assert "trial-003 failed: code 2; it diverged" in text and "1 of 4 failed" in text
    assert f"ubp2 train --config {tmp_path / 'best.yaml'}" in text
    everything = {trial.name: "code 2; it diverged" for trial in found}
    assert search._summary(made, tmp_path, found, everything).best is None, "what failed is no advice"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "ubp2 tune needs an environment: --env toy/reach, or --resume DIR"),
        ("--env toy/raech", "unknown toy task 'raech'. Did you mean reach?"),
        ("--env toy/reach --preset papr", "unknown preset 'papr'. Did you mean paper?"),
        ("--env toy/reach --trials 0", "--trials must be at least 1, got 0"),
        ("--env toy/reach --gpus -1", "--gpus must not be negative, got -1"),
        ("--env toy/reach --reduction 1", "--reduction must be above 1, got 1"),
        ("--env toy/reach --grace 50000", "--grace 50000 is longer than a trial, which has 20000 decisions"),
        ("--env toy/reach --steps 300", "training.warmup is 1000 random decisions but the run has only 300"),
        ("--env toy/reach --set teacher:human", "--set expects 'dotted.field: value'"),
        ("--env toy/reach --set 'teacher: human'", "20 trials would ask people 20 times as much as one run"),
        ("--env toy/reach --set 'env: dmc/x'", "--env is toy/reach and the settings name dmc/x"),
        (
            "--env toy/reach --set 'agent: mbp' --set 'preferences.strategy: entropy'",
            "agent mbp sets preferences.strategy to uniform, and entropy was asked for; leave one of the two out",
        ),
        ("--env toy/reach --space none.yaml", "there is no file none.yaml"),
        ("--resume nowhere", "nowhere holds no search of ubp2 tune"),
        ("--resume nowhere --steps 5 --seed 3", "as it was asked for; leave out --steps, --seed"),
    ],
)
def test_mistakes(words: str, sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", *shlex.split(words)]) == 2
    assert sentence in capfd.readouterr().err


def test_a_dry_run_shows_the_trials_and_leaves_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["tune", "--env", "toy/reach", "--trials", "12", "--out", str(out), "--dry-run"]) == 0
    shown = capfd.readouterr().out
    assert "trial-000  to do" in shown and "as the preset" in shown and "and 2 more" in shown
    assert not out.exists()
