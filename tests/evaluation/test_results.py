"""Run folders as series: what is read, what is left out with a sentence, how methods are called, what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.evaluation import made
from ubp2.errors import UserError
from ubp2.evaluation.results import read_runs
from ubp2.storage.population import create
from ubp2.storage.runs import Metrics, Run


def test_a_run_is_one_series(tmp_path: Path) -> None:
    folder = made.run(tmp_path / "a", seed=3, success=(0.0, 0.5, 1.0))
    (one,) = read_runs([folder]).series
    assert (one.task, one.method, one.seed, one.metric, one.steps) == (
        "metaworld/door-close",
        "ubp2",
        3,
        "success",
        4000,
    )
    assert one.decision.tolist() == [1000, 2000, 3000] and one.score.tolist() == [0, 0.5, 1]
    assert one.labels.tolist() == [20, 40, 40] and not one.finished and one.folder == folder
    assert one.protocol["preferences.budget"] == 40 and one.protocol["environment.protocol"] == "ubp2"


def test_what_acts_is_the_planner_while_labels_are_left_and_then_the_policy(tmp_path: Path) -> None:
    folder = made.run(tmp_path / "a", success=(0.1, 0.2, 0.3, 0.4), planner=(0.9, 0.8, 0.7, 0.6), budget=60)
    scores = {who: read_runs([folder], controller=who).series[0].score for who in ("acting", "planner", "policy")}
    np.testing.assert_allclose(scores["acting"], [0.9, 0.8, 0.3, 0.4])
    np.testing.assert_allclose(scores["planner"], [0.9, 0.8, 0.7, 0.6])
    np.testing.assert_allclose(scores["policy"], [0.1, 0.2, 0.3, 0.4])
    ceiling = made.run(tmp_path / "b", success=(0.1, 0.2), planner=(0.9, 0.8), budget=0, ceiling=True)
    assert read_runs([ceiling]).series[0].score.tolist() == [0.9, 0.8], "it plans to the end"
    alone = read_runs([made.run(tmp_path / "c")], controller="planner")
    assert not alone.series and alone.problems == (f"{tmp_path / 'c'} has no evaluation of its planner yet",)


def test_without_success_the_return_counts(tmp_path: Path) -> None:
    folder = made.run(tmp_path / "a", success=())
    with Metrics(folder, tensorboard=False) as metrics:
        metrics.write("eval", 1000, {"policy/return": 12.0})
    (one,) = read_runs([folder]).series
    assert (one.metric, one.score.tolist()) == ("return", [12.0])


def population(folder: Path, seeds: int = 3) -> Path:
    config = Run.open(made.run(folder.parent / "pattern")).config
    shutil.rmtree(folder.parent / "pattern")
    with contextlib.ExitStack() as stack:
        configs = {f"s{seed}": dataclasses.replace(config, seed=seed) for seed in range(seeds)}
        for run in create(stack, folder, configs):
            with Metrics(run.folder, tensorboard=False) as metrics:
                metrics.write("eval", 4000, {"policy/success_any": 0.5})
    return folder


def test_folders_are_searched_and_a_broken_run_is_a_sentence(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    population(root / "many")
    made.run(root / "deep" / "down" / "single", seed=7)
    (root / "many" / "s1" / "config.yaml").write_text("env: [")
    (root / "many" / "s2" / "metrics.jsonl").write_text('{"kind": "eval"\nnot json\n')
    (root / "deep" / "half").mkdir()
    (root / "deep" / "half" / "metrics.jsonl").touch()
    (root / "nothing").mkdir()
    found = read_runs([root, root / "many", root / "nothing"])
    assert sorted(one.seed for one in found.series) == [0, 7]
    assert found.missing("metaworld/door-close", "ubp2") == [1, 2]
    patterns = ("deep/half is not a run folder", "s1/config.yaml is not valid YAML", "metrics.jsonl has a damaged line")
    for pattern, problem in zip((*patterns, "nothing holds no run"), found.problems, strict=True):
        assert pattern in problem
    with pytest.raises(UserError, match="there is no folder .*nowhere; check the path"):
        read_runs([tmp_path / "nowhere"])


def test_a_member_that_is_gone_is_missing(tmp_path: Path) -> None:
    shutil.rmtree(population(tmp_path / "many") / "s2")
    found = read_runs([tmp_path / "many"])
    assert found.missing("metaworld/door-close", "ubp2") == [2] and "s2 is not a run folder" in found.problems[0]


def test_the_same_seed_twice_counts_once(tmp_path: Path) -> None:
    first, second = (made.run(tmp_path / name) for name in "ab")
    found = read_runs([first, second, first])
    assert [one.folder for one in found.series] == [first]
    assert found.problems == (
        f"seed 0 of ubp2 on metaworld/door-close is there twice; {first} counts and {second} does not",
    )


def test_of_the_same_seed_the_finished_run_counts_else_the_longest(tmp_path: Path) -> None:
    begun = made.run(tmp_path / "begun", success=(0.0, 0.5))
    longer = made.run(tmp_path / "longer", success=(0.0, 0.5, 0.5))
    assert [one.folder for one in read_runs([begun, longer]).series] == [longer]
    whole = made.run(tmp_path / "whole", steps=2000, success=(0.0, 1.0))
    found = read_runs([begun, longer, whole])
    assert [one.folder for one in found.series] == [whole], "it is shorter, and finished"
    start = f"seed 0 of ubp2 on metaworld/door-close is there 3 times; {whole} counts and"
    assert found.problems == (
        f"{start} {begun} (at 2,000 of 4,000) does not",
        f"{start} {longer} (at 3,000 of 4,000) does not",
    )


def test_methods_are_told_apart_by_what_differs_on_a_task(tmp_path: Path) -> None:
    made.run(tmp_path / "7", planner__horizon=7)
    made.run(tmp_path / "11", planner__horizon=11, evaluation__every=500, checkpoint__every=500, seed=1)
    made.run(tmp_path / "longer", planner__horizon=11, seed=2, steps=5000)
    made.run(tmp_path / "mbp", agent="mbp")
    made.run(tmp_path / "there", env="metaworld/window-close", planner__horizon=7, preferences__per_session=5)
    found = {str(one.folder)[len(str(tmp_path)) + 1 :]: one.method for one in read_runs([tmp_path]).series}
    assert found == {
        "7": "ubp2, planner.horizon 7",
        "11": "ubp2, planner.horizon 11",
        "longer": "ubp2, planner.horizon 11",
        "mbp": "mbp",
        "there": "ubp2, planner.horizon 7",
    }


def test_ablations_are_called_by_their_digits(tmp_path: Path) -> None:
    made.run(tmp_path / "a", ablation="1011")
    made.run(tmp_path / "b", preferences__strategy="optimistic")
    names = [one.method for one in read_runs([tmp_path]).series]
    assert names == ["ubp2, ablation 1011", "ubp2, ablation 1111"]


def test_a_run_and_its_own_ablation_are_one_method(tmp_path: Path) -> None:
    """All bonuses and random pairs are 1110, whether a run says so or not."""
    made.run(tmp_path / "a", preferences__strategy="uniform")
    made.run(tmp_path / "b", ablation="1110", seed=1)
    assert [one.method for one in read_runs([tmp_path]).series] == ["ubp2", "ubp2"]
    made.run(tmp_path / "c", ablation="0110", seed=2)
    with pytest.raises(UserError, match=r"both called 'ours', .* differ in ablation: 1110 and 0110"):
        read_runs([tmp_path], names={tmp_path: "ours"})


def test_names_are_given_by_folder_and_must_fit(tmp_path: Path) -> None:
    made.run(tmp_path / "x" / "a", planner__horizon=7)
    made.run(tmp_path / "y" / "b", planner__horizon=11)
    named = read_runs([tmp_path], names={tmp_path / "x": "short", tmp_path / "y" / "b": "long"})
    assert named.methods() == ["short", "long"]
    with pytest.raises(UserError, match=r"both called 'ours', .*x/a and .*y/b differ in planner.horizon: 7 and 11"):
        read_runs([tmp_path], names={tmp_path: "ours"})


PROTOCOLS = {
    "preferences.budget": (
        {"budget": 40},
        {"budget": 60},
        "preferences.budget is 40 in {a} and 60 in {b} on metaworld/door-close",
    ),
    "teacher.mistake": (
        {},
        {"teacher__mistake": 0.1},
        "teacher.mistake is none in {a} and 0.1 in {b} on metaworld/door-close",
    ),
    "ceiling": ({}, {"ceiling": True}, "ceiling is off in {a} and on in {b} on metaworld/door-close"),
    "evaluation.episodes": (
        {},
        {"evaluation__episodes": 9},
        "evaluation.episodes is 5 in {a} and 9 in {b} on metaworld/door-close",
    ),
    "environment.protocol": (
        {},
        {"env": "metaworld/window-close", "environment__protocol": "bpref"},
        "environment.protocol is ubp2 in {a} and bpref in {b}",
    ),
}


@pytest.mark.parametrize("setting", PROTOCOLS)
def test_different_protocols_are_refused_and_can_be_allowed(tmp_path: Path, setting: str) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    first, second, sentence = PROTOCOLS[setting]
    made.run(a, **first)
    made.run(b, **second, seed=1)
    said = f"these were made under different protocols: {sentence.format(a=a, b=b)}. "
    with pytest.raises(UserError, match=re.escape(f"{said}Report them apart, or allow it with --vary {setting}")):
        read_runs([a, b])
    assert len(read_runs([a, b], vary=[setting]).series) == 2


def test_what_a_run_leaves_to_its_environment_is_what_the_environment_had(tmp_path: Path) -> None:
    plain = made.run(tmp_path / "plain")
    made.run(tmp_path / "told", environment__episode_decisions=100, seed=1)
    with pytest.raises(UserError, match="environment.episode_decisions is none in .*plain and 100 in .*told"):
        read_runs([tmp_path])
    manifest = plain / "checkpoints" / "000004000" / "manifest.json"
    manifest.parent.mkdir()
    manifest.write_text(json.dumps({"meta": {"environment": {"action_repeat": 2, "episode_decisions": 100}}}))
    told = [one.protocol["environment.episode_decisions"] for one in read_runs([tmp_path]).series]
    assert told == [100, 100], "and both are one method"
    assert read_runs([tmp_path]).methods() == ["ubp2"]
    made.run(tmp_path / "shorter", environment__episode_decisions=50, seed=2)
    with pytest.raises(UserError, match="environment.episode_decisions is 100 in .*plain and 50 in .*shorter"):
        read_runs([plain, tmp_path / "shorter"])


def test_budgets_may_differ_between_tasks_and_allowed_settings_are_named(tmp_path: Path) -> None:
    made.run(tmp_path / "a", budget=40)
    made.run(tmp_path / "b", budget=60, env="metaworld/window-close")
    assert read_runs([tmp_path]).methods() == ["ubp2"]
    made.run(tmp_path / "c", budget=20, agent="mbp")
    names = [one.method for one in read_runs([tmp_path], vary=["preferences.budget"]).series]
    assert names == ["ubp2, preferences.budget 40", "ubp2, preferences.budget 60", "mbp, preferences.budget 20"]


def test_success_and_return_are_never_mixed(tmp_path: Path) -> None:
    made.run(tmp_path / "a")
    made.run(tmp_path / "b", env="gym/Pendulum-v1", success=())
    with Metrics(tmp_path / "b", tensorboard=False) as metrics:
        metrics.write("eval", 1000, {"policy/return": 12.0})
    with pytest.raises(UserError, match=r"metric is success in .*a and return in .*b\. Report them apart$"):
        read_runs([tmp_path])


def test_only_settings_of_the_protocol_may_vary(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown setting of the protocol 'budget'\. Did you mean"):
        read_runs([], vary=["budget"])


def asking(folder: Path, asked: tuple[float, ...]) -> Path:
    """A run with a budget of 60 whose evaluations say how many questions had been asked."""
    made.run(folder, success=(), budget=60)
    with Metrics(folder, tensorboard=False) as metrics:
        for i, count in enumerate(asked):
            metrics.write("labels", 1000 * (i + 1), {"labels/used": 30.0})
            row = {"policy/success_any": 0.1 * i, "planner/success_any": 0.5 + 0.1 * i, "labels/asked": count}
            metrics.write("eval", 1000 * (i + 1), row)
    return folder


def test_what_acts_goes_by_the_questions_as_training_does(tmp_path: Path) -> None:
    """Labels used stay at 30 of 60, as where half of the answers were skipped, and the policy acts from 60 asked on."""
    (one,) = read_runs([asking(tmp_path / "a", (30, 60, 60))]).series
    np.testing.assert_allclose(one.score, [0.5, 0.1, 0.2])
    (undone,) = read_runs([asking(tmp_path / "b", (30, 60, 40))]).series
    assert undone.decision.tolist() == [1000, 2000, 3000], "a person took answers back, and the planner acts again"
    np.testing.assert_allclose(undone.score, [0.5, 0.1, 0.7])


def test_where_people_were_asked_is_neither_protocol_nor_method(tmp_path: Path) -> None:
    made.run(tmp_path / "a", teacher__name="human", teacher__port=8642)
    made.run(tmp_path / "b", teacher__name="human", teacher__port=9000, teacher__browser=False, seed=1)
    assert read_runs([tmp_path]).methods() == ["ubp2"]


def test_a_folder_that_cannot_be_read_costs_no_run_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.run(tmp_path / "mine")
    (tmp_path / "another's").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    listed = Path.iterdir

    def refused(folder: Path) -> Iterator[Path]:
        if folder.name == "another's":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", refused)
    found = read_runs([tmp_path])
    assert [one.folder for one in found.series] == [tmp_path / "mine"]
    assert found.problems == (f"cannot read {tmp_path}/another's: Permission denied",)


def test_a_line_that_is_no_row_of_metrics_is_a_sentence(tmp_path: Path) -> None:
    with (made.run(tmp_path / "a") / "metrics.jsonl").open("a", encoding="utf-8") as stream:
        stream.write("[]\n")
    (problem,) = read_runs([tmp_path]).problems
    assert "metrics.jsonl has a damaged line (no row of metrics): b'[]'; remove that line" in problem


def test_a_configuration_that_is_cut_off_is_not_filled_up_with_defaults(tmp_path: Path) -> None:
    """Copying was interrupted: an empty file would be a run of toy/reach, and half of one another protocol."""
    for name, share in (("a", 0.0), ("b", 0.5), ("c", 0.98)):
        config = made.run(tmp_path / name) / "config.yaml"
        text = config.read_text(encoding="utf-8")
        config.write_text(text[: text.rfind("\n", 0, int(share * len(text))) + 1], encoding="utf-8")
    made.run(tmp_path / "d")
    (tmp_path / "d" / "info.json").write_text("[]", encoding="utf-8")
    found = read_runs([tmp_path])
    cut = "config.yaml is cut off before its end, which is 'keep' of 'checkpoint'; put a backup in its place"
    assert not found.series and found.problems[:3] == tuple(f"{tmp_path / name / cut}" for name in "abc")
    assert "d/info.json is damaged" in found.problems[3]
