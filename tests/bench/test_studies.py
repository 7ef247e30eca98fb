"""The queue of studies is one that can run, and no result of a study is ever lost (`benchmarks/study.py`)."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.bench.scripts import BENCHMARKS, load
from ubp2.config.presets import PAPER_TASKS, preset
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.storage.runs import Metrics, Run

QUEUE = """\
# kept
defaults: {preset: best, seeds: 2, decisions: 2000, evaluation: {every: 1000, episodes: 1}, status: open}
studies:
  - name: first
    question: Does it?
    changes: A page.
    envs: [door-close]
    variants: {best: {}}

  - name: second  # a word about it
    question: Does the other?
    changes: A page.
    envs: [door-close, metaworld/door-open]
    variants:
      best: {}
      mbp: {agent: mbp}
      later: {needs: a switch}
"""


@pytest.fixture
def queue() -> ModuleType:
    return load("studies.queue")


@pytest.fixture
def packing() -> ModuleType:
    return load("studies.packing")


@pytest.fixture
def training() -> ModuleType:
    return load("studies.training")


@pytest.fixture
def collecting() -> ModuleType:
    return load("studies.collecting")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small queue."""
    path = tmp_path / "queue.yaml"
    path.write_text(QUEUE.replace("  # a word about it", ""), encoding="utf-8")
    return path


class Trainer:
    """Stands in for `ubp2.train`: every run gets evaluations up to `reach` decisions, without learning."""

    def __init__(self, reach: int, success: float = 0.5) -> None:
        self.reach, self.success, self.calls = reach, success, []

    def train(self, configs: Mapping[str, Config], *, out: Path, minutes: float) -> None:
        self.calls.append("train")
        for folder, config in configs.items():
            with contextlib.closing(Run.create(out / folder, config)):
                pass
            self._evaluate(out / folder, 0)

    def resume(self, out: Path, *, minutes: float) -> None:
        self.calls.append("resume")
        for config in sorted(out.glob("**/config.yaml")):
            rows = (config.parent / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            self._evaluate(config.parent, json.loads(rows[-1])["decision"] if rows else 0)

    def _evaluate(self, folder: Path, since: int) -> None:
        with Metrics(folder, tensorboard=False) as metrics:
            for decision in range(since + 1000, self.reach + 1, 1000):
                metrics.write("eval", decision, {"planner/success_any": self.success})


def test_the_queue_has_settings_that_exist_or_are_coming(queue: ModuleType, packing: ModuleType) -> None:
    studies = queue.load()
    coming = set(yaml.safe_load(queue.QUEUE.read_text(encoding="utf-8"))["coming"])
    for study in studies:
        assert set(queue.unknown_settings(study)) <= coming
        for cell in study.cells:
            if not coming & set(cell.settings):
                packing.program_key(study.config(cell, study.seeds[0]))  # resolves it, which checks every value
    first = studies[0]
    assert (first.name, first.decisions, len(list(first.runs()))) == ("ten-tasks", 40_000, 50)
    assert {cell.env for cell in first.cells} == set(PAPER_TASKS)


def test_a_setting_to_come_is_no_error_before_the_study_runs(queue: ModuleType, packing: ModuleType) -> None:
    text = QUEUE.replace("variants: {best: {}}", "variants: {best: {model.colour: blue}}").replace(
        "  # a word about it", ""
    )
    study = queue.load(_written(text))[0]
    assert queue.unknown_settings(study) == ["model.colour"]
    with pytest.raises(UserError, match="study first, best on metaworld/door-close: unknown setting 'model.colour'"):
        packing.plan_of([study])


_PLACES: list[Path] = []


@pytest.fixture(autouse=True)
def _place(tmp_path: Path) -> Any:
    _PLACES.append(tmp_path)
    yield
    _PLACES.pop()


def _written(text: str) -> Path:
    path = _PLACES[-1] / "other.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("question: Does it?", "questions: Does it?", "unknown key 'questions'. Did you mean question"),
        ("    changes: A page.\n", "", "study first lacks changes"),
        ("name: second", "name: first", "two studies called first"),
        ("variants: {best: {}}", "variants: {}", "study first has no cells"),
        ("variants: {best: {}}", "variants: {best: {steps: 3}}", "steps belongs to the study"),
        ("envs: [door-close]", "envs: all", "envs must be a list of environments, or the word paper"),
        ("status: open}", "status: opened}", "unknown status 'opened'. Did you mean open"),
        ("seeds: 2", "seeds: none", "seeds must be a count"),
        ("decisions: 2000", "decisions: 2e3", "must be whole numbers"),
        ("studies:", "study:", "must have a list 'studies'"),
        ("studies:", "studies: [", "is not valid YAML"),
    ],
)
def test_a_queue_with_a_mistake_is_told_in_a_sentence(queue: ModuleType, old: str, new: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("?", "\\?").replace("[", "\\[")):
        queue.load(_written(QUEUE.replace("  # a word about it", "").replace(old, new, 1)))


def test_studies_of_one_program_are_packed_while_the_minutes_last(
    queue: ModuleType, packing: ModuleType, path: Path
) -> None:
    studies = queue.load(path)
    alone = packing.plan_of(studies[:1]).seconds() / 60
    both = packing.plan_of(studies).seconds() / 60
    plan = packing.pack(studies, 1.01 * both / packing.MARGIN)
    assert [study.name for study in plan.studies] == ["first", "second"]
    assert len(plan.programs()) == 1
    assert len(plan.members) == 2 + 8
    assert len(plan.configs) == 8, "the runs that both ask for are trained once"
    plan = packing.pack(studies, 0.99 * both / packing.MARGIN)
    assert [study.name for study in plan.studies] == ["first"]
    assert plan.left_out[0][0] == "second"
    assert "minutes with first" in plan.left_out[0][1]
    with pytest.raises(UserError, match="no open study fits into .* minutes; the shortest is first"):
        packing.pack(studies, 0.99 * alone / packing.MARGIN)
    assert packing.pack(studies, 1e6, most=1).left_out[0][0] == "second"


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ("envs: [door-close]\n    decisions: 3000", None),
        ("envs: [door-close]\n    base: {model.width: 32}", None),
        ("envs: [door-close]\n    status: done", "is done"),
        ("envs: [door-close]\n    status: running", "is running"),
        ("envs: [door-close]\n    status: needs code", "needs code"),
        ("envs: [door-close]\n    base: {model.colour: 1}", "this checkout has no setting model.colour"),
    ],
)
def test_what_is_not_packed_says_why(
    queue: ModuleType, packing: ModuleType, path: Path, new: str, reason: str | None
) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace("envs: [door-close]", new, 1), encoding="utf-8")
    plan = packing.pack(queue.load(path), 1e6)
    if reason is None:  # it comes first, and the other does not share its program
        assert plan.left_out == [("second", "its sizes or its clock differ from first")]
    else:
        assert plan.left_out[0][0] == "first"
        assert plan.left_out[0][1].startswith(reason)


@pytest.mark.parametrize("fallback", [True, False])
def test_members_that_may_differ_share_a_program(
    packing: ModuleType, fallback: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fallback:
        monkeypatch.setattr(packing, "_key", packing._fallback_key)
    base = packing.program_key(preset("best", "metaworld/door-close"))
    alike: list[dict[str, Any]] = [{"seed": 3}, {"agent": "mbp"}, {"ablation": "1011"}, {"training": {"rho": 0.5}}]
    alike += [{"preferences": {"strategy": "entropy", "per_session": 5, "budget": 40}}, {"teacher": "noisy"}]
    for settings in alike:
        assert packing.program_key(preset("best", "metaworld/hammer", **settings)) == base
    other: list[dict[str, Any]] = [{"model": {"width": 32}}, {"steps": 2000}, {"planner": {"horizon": 3}}]
    for settings in other:
        assert packing.program_key(preset("best", "metaworld/hammer", **settings)) != base
    assert packing.program_key(preset("best", "toy/reach")) != base


def test_times_are_corrected_by_what_was_measured(packing: ModuleType) -> None:
    assert packing.measured([{"timing": None}]) == 1.0
    told = [{"timing": {"seconds": seconds, "estimated": 100.0}} for seconds in (110, 150, 400)]
    assert packing.measured(told) == 1.5


def test_a_call_goes_on_where_the_last_one_was_stopped(
    queue: ModuleType, packing: ModuleType, training: ModuleType, collecting: ModuleType, path: Path, tmp_path: Path
) -> None:
    plan, out = packing.plan_of(queue.load(path)), tmp_path / "out"
    results = tmp_path / "collected"
    trainer = Trainer(1000)
    written = training.train(plan, out, out / "results", 5.0, trainer, "a command", 60.0)
    assert sorted(each.name for each in written) == ["first.csv", "first.json", "second.csv", "second.json"]
    assert training.standing(out).endswith("second: 0 of 8 runs evaluated at 2,000 decisions\nthe same command goes on")
    told = collecting.collect(out, results, path)
    assert told[0].startswith("first: partial, 0 of 2 runs evaluated at 2,000 decisions, the least 1,000")
    assert [study.status for study in queue.load(path)] == ["partial", "partial"]

    trainer.reach = 2000
    for _ in range(2):  # what is finished is left alone
        training.train(plan, out, out / "results", 5.0, trainer, "a command", 60.0)
    assert trainer.calls == ["train", "resume"]
    assert collecting.collect(out / "results", results, path)[1].startswith("second: done, 8 of 8 runs")
    assert [study.status for study in queue.load(path)] == ["done", "done"]
    assert not list(results.glob("*earlier*")), "a run that went on replaces itself"
    rows = _rows(results / "second.csv")
    assert {(row["env"], row["method"], row["seed"]) for row in rows} == {
        (f"metaworld/{task}", method, seed)
        for task in ("door-close", "door-open")
        for method in ("best", "mbp")
        for seed in "01"
    }
    about = json.loads((results / "second.json").read_text(encoding="utf-8"))
    assert {"settings", "preset", "evaluated", "source"} <= set(about["runs"][0])
    assert about["timing"] is None, "what was stopped in between tells no rate"


def test_an_error_in_training_leaves_raw_scores(
    queue: ModuleType, packing: ModuleType, training: ModuleType, path: Path, tmp_path: Path
) -> None:
    class Failing(Trainer):
        def train(self, configs: Mapping[str, Config], *, out: Path, minutes: float) -> None:
            super().train(configs, out=out, minutes=minutes)
            raise OSError("disk full")

    plan = packing.plan_of(queue.load(path)[:1])
    with pytest.raises(OSError, match="disk full"):
        training.train(plan, tmp_path / "out", tmp_path / "results", 5.0, Failing(1000), "a command", 60.0)
    assert len(_rows(tmp_path / "results" / "first.csv")) == 2


def test_collecting_never_loses_a_score(
    queue: ModuleType, packing: ModuleType, training: ModuleType, collecting: ModuleType, path: Path, tmp_path: Path
) -> None:
    results, study = tmp_path / "collected", queue.load(path)[0]

    def again(name: str, reach: int, success: float) -> str:
        out = tmp_path / name
        training.train(packing.plan_of([study]), out, out / "results", 5.0, Trainer(reach, success), "a command", 60.0)
        (told,) = collecting.collect(out, results, path)
        return told

    again("long", 2000, 0.25)
    assert again("short", 1000, 0.75).startswith("first: done")
    assert {row["planner/success_any"] for row in _rows(results / "first.csv")} == {"0.25"}
    assert "now first-earlier-1.csv" in again("second-long", 2000, 0.5)
    assert {row["planner/success_any"] for row in _rows(results / "first.csv")} == {"0.5"}
    assert {row["planner/success_any"] for row in _rows(results / "first-earlier-1.csv")} == {"0.25"}
    assert (results / "first-earlier-1.json").exists()


def test_runs_under_other_settings_than_the_queue_has_do_not_count(
    queue: ModuleType, packing: ModuleType, training: ModuleType, collecting: ModuleType, path: Path, tmp_path: Path
) -> None:
    plan, out = packing.plan_of(queue.load(path)[:1]), tmp_path / "out"
    training.train(plan, out, out / "results", 5.0, Trainer(2000), "a command", 60.0)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("variants: {best: {}}", "variants: {best: {training.rho: 0.5}}"), encoding="utf-8")
    assert collecting.collect(out, tmp_path / "collected", path)[0].startswith("first: partial, 0 of 2")


def test_the_commit_is_that_of_the_same_source(
    queue: ModuleType, packing: ModuleType, training: ModuleType, collecting: ModuleType, path: Path, tmp_path: Path
) -> None:
    plan, out = packing.plan_of(queue.load(path)[:1]), tmp_path / "out"
    training.train(plan, out, out / "results", 5.0, Trainer(2000), "a command", 60.0)
    told = out / "results" / "first.json"
    about = json.loads(told.read_text(encoding="utf-8"))
    about["source"] = about["runs"][0]["source"] = None  # as on a machine without git
    told.write_text(json.dumps({**about, "digest": "another"}), encoding="utf-8")
    collecting.collect(out, tmp_path / "unknown", path)
    told.write_text(json.dumps(about), encoding="utf-8")
    collecting.collect(out, tmp_path / "known", path)
    found = [json.loads((tmp_path / name / "first.json").read_text("utf-8")) for name in ("unknown", "known")]
    assert found[0]["source"] is None
    assert found[1]["runs"][0]["source"] == found[1]["runs"][1]["source"]


def test_a_mark_changes_two_lines_and_no_other(queue: ModuleType, path: Path) -> None:
    before = path.read_text(encoding="utf-8").splitlines()
    for status in ("partial", "done"):  # a second mark takes the place of the first
        queue.mark(path, "first", status, {"date": "2026-11-19"})
    after = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in after if line not in before] == ["    status: done", '    record: {"date": "2026-11-19"}']
    assert [line for line in after if line in before] == before
    with pytest.raises(UserError, match="has no line '  - name: third'"):
        queue.mark(path, "third", "done", {})


def test_bad_input_is_told_in_a_sentence(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = load("study")
    out = ["--out", str(tmp_path / "out"), "--queue", str(path)]
    assert study.main(["run", "frist", *out]) == 2
    assert "unknown study 'frist'. Did you mean first?" in capsys.readouterr().err
    assert study.main(["collect", str(tmp_path), "--queue", str(path)]) == 2
    assert "has no results of a study" in capsys.readouterr().err
    assert study.main(["next", "--minutes", "1", *out]) == 2
    assert "the shortest is first" in capsys.readouterr().err
    assert study.main(["next", "--minutes", "1000", "--dry-run", *out]) == 0
    assert "programs: 1; members: 8 of 2,000 decisions" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    assert study.main(["list", "--queue", str(path)]) == 0
    assert "later needs a switch" in capsys.readouterr().out


def test_the_command_trains_what_fits(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study, trainer = load("study"), Trainer(2000)
    monkeypatch.setattr(study, "_Ubp2", lambda: trainer)
    monkeypatch.setattr("ubp2.system.seconds_since_start", lambda: 30.0)
    words = ["--queue", str(path), "--out", str(tmp_path / "out"), "--results", str(tmp_path / "here")]
    assert study.main(["run", "first", *words]) == 0
    assert "first: 2 of 2 runs evaluated at 2,000 decisions" in capsys.readouterr().out
    assert sorted(each.name for each in (tmp_path / "here").iterdir()) == ["first.csv", "first.json"]
    assert study.main(["run", "second", *words]) == 2
    assert "has begun first" in capsys.readouterr().err
    assert study.main(["next", "--minutes", "0.6", *words]) == 2
    assert "leaves no time to train" in capsys.readouterr().err


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_file_of_the_queue_is_where_the_script_looks(queue: ModuleType) -> None:
    assert queue.QUEUE == BENCHMARKS / "studies" / "queue.yaml"
