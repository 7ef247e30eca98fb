"""Studies are trained, go on, and are collected without losing a score (`benchmarks/study.py`)."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from tests.bench.scripts import load
from tests.bench.studies import Trainer
from ubp2.config.schema import Config
from ubp2.errors import UserError


def test_results_are_a_table(
    queue: ModuleType, packing: ModuleType, training: ModuleType, tmp_path: Path, path: Path
) -> None:
    out = tmp_path / "out"
    training.train(packing.plan_of(queue.load(path)[:1]), out, out / "results", 5.0, Trainer(2000), "a command", 60.0)
    tables = load("studies.tables")
    told = tables.table(out / "results" / "first.csv").splitlines()
    assert told[0] == "| first | seeds | planner, 2,000 |"
    assert told[2] == "| metaworld/door-close, best | 2 | 0.50 [0.50, 0.50] |"
    with pytest.raises(UserError, match="no results of third in .*; studies with results: first"):
        tables.table(out / "results" / "third.csv")


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


def test_the_command_trains_what_fits(
    study: ModuleType,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trainer = Trainer(2000)
    monkeypatch.setattr(study, "_Ubp2", lambda: trainer)
    monkeypatch.setattr("ubp2.system.seconds_since_start", lambda: 30.0)
    words = ["--queue", str(path), "--out", str(tmp_path / "out"), "--results", str(tmp_path / "here")]
    assert study.main(["run", "first", *words]) == 0
    assert "first: 2 of 2 runs evaluated at 2,000 decisions" in capsys.readouterr().out
    assert sorted(each.name for each in (tmp_path / "here").iterdir()) == ["first.csv", "first.json"]
    assert study.main(["next", *words]) == 0, "what has begun goes on, and is already done"
    assert trainer.calls == ["train"]
    about = json.loads((tmp_path / "here" / "first.json").read_text(encoding="utf-8"))
    assert about["timing"]["estimated"] > 60
    assert study.main(["run", "second", *words]) == 2
    assert "has begun first" in capsys.readouterr().err
    assert study.main(["next", "--minutes", "0.6", *words]) == 2
    assert "leaves no time to train" in capsys.readouterr().err


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))
