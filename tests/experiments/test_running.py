"""A plan around its groups: how it is stopped, what it makes up for, and which reports it writes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.experiments.sweeps import waited
from tests.experiments.test_cells import made as cells
from tests.experiments.test_execution import alone, group
from ubp2.evaluation.results import Results
from ubp2.experiments import running
from ubp2.experiments.catalogue import find
from ubp2.experiments.cells import groups
from ubp2.experiments.execution import Outcome, Workers
from ubp2.experiments.plans import How, Plan
from ubp2.storage import population
from ubp2.storage.runs import Metrics, Run


class Child:
    """A process that only remembers its signals."""

    def __init__(self, workers: Workers) -> None:
        self.heard: list[int] = []
        workers._children.add(self)  # type: ignore[arg-type]

    def send_signal(self, number: int) -> None:
        self.heard.append(number)


def test_a_file_and_ctrl_c_are_one_request_and_a_later_ctrl_c_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: now[0]))
    workers = Workers(jobs=1, retries=0, say=lambda _: None)
    child, hear = Child(workers), running.on_signal(workers)
    workers.stop()  # the file
    hear(signal.SIGINT)
    hear(signal.SIGTERM)
    assert child.heard == [signal.SIGTERM], "a checkpoint is being written"
    now[0] += 10
    hear(signal.SIGINT)
    assert child.heard == [signal.SIGTERM, signal.SIGKILL]


def test_a_folder_that_cannot_be_looked_at_for_once_can_still_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_EVERY", 0.01)
    looks: list[None] = []
    stopped = threading.Event()

    def look() -> None:
        looks.append(None)
        if len(looks) == 1:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with running.stopped_by_file(tmp_path, stopped.set, look):
        assert waited(lambda: len(looks) > 1, 30)
        (tmp_path / running.STOP).touch()
        assert stopped.wait(30)


def test_what_was_stopped_does_not_count_as_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = group(tmp_path)
    plan = Plan(find("table1"), (), [own.cell], [alone(own)], [], [], tmp_path)
    ended = [Outcome(own, "finished"), Outcome(own, "stopped"), Outcome(own, "finished")]
    workers = SimpleNamespace(run=lambda *_, **__: iter(ended), stop=print, kill=print, close=lambda: None)
    monkeypatch.setattr(running, "_workers", lambda *_: workers)
    told: list[str] = []
    monkeypatch.setattr(running.Progress, "note", lambda _, text: told.append(text))
    running._execute(plan, How(quiet=True), [alone(own)] * 3)
    assert [line[:5] for line in told] == ["[1/3]", "[1/3]", "[2/3]"] and told[1].endswith(": stopped")


def test_a_clip_that_was_interrupted_is_made_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = group(tmp_path)
    finished = replace(own, decision=own.cell.config.steps)
    plan = Plan(find("table1"), (), [own.cell], [alone(finished)], [], [], tmp_path)
    calls: list[str] = []

    def call(workers: Workers, arguments: list[str], log: Path) -> int:
        calls.append(arguments[0])
        if calls == ["train", "eval"]:
            workers.stop()
        return 0

    monkeypatch.setattr(Workers, "_call", call)
    monkeypatch.setattr(running, "_report", lambda *_: None)
    list(Workers(jobs=1, retries=0, say=lambda _: None).run([alone(own)], clips=True))
    for how, more in ((How(clips=False, quiet=True), []), (How(quiet=True), ["eval"]), (How(quiet=True), [])):
        before = len(calls)
        running.run(plan, how, print)
        assert calls[before:] == more, "without clips not; then once, though this machine cannot render"


def test_tasks_with_success_and_tasks_with_returns_have_a_report_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {"toy/reach": "policy/success_any", "gym/Pendulum-v1": "policy/return", "toy/double": ""}
    made = cells(out=tmp_path, preset="cpu", tasks=tuple(scores), methods=("ubp2",), seeds=1, steps=2000)
    experiment, own = find("table1"), [groups(cell)[0] for cell in made]
    for each in own[:2]:
        with Run.create(each.folder, each.cell.config, "a device"), Metrics(each.folder, tensorboard=False) as metrics:
            metrics.write("eval", 2000, {scores[each.cell.task]: 0.5})
    reported: dict[str, Results] = {}
    notes: list[str] = []

    def write(results: Results, out: Path, **options: Any) -> Path:
        reported[out.name] = results
        notes.append(options["notes"][-1])
        return out / "index.html"

    monkeypatch.setattr("ubp2.evaluation.report.write", write)
    plan = Plan(experiment, experiment.methods, made, [alone(each) for each in own], [], [], tmp_path)
    pages = running.run(plan, How(), pytest.fail, train=False).pages
    assert pages == [tmp_path / "report" / "index.html", tmp_path / "report-return" / "index.html"]
    tasks = {name: results.tasks() for name, results in reported.items()}
    assert tasks == {"report": ["toy/reach", "toy/double"], "report-return": ["gym/Pendulum-v1", "toy/double"]}
    assert notes == [
        "Tasks that are scored by return are in report-return/.",
        "Tasks that are scored by success are in report/.",
    ]
    plan = replace(plan, cells=made[1:], programs=plan.programs[1:])
    assert running.run(plan, How(), pytest.fail, train=False).pages == [tmp_path / "report" / "index.html"]


def test_a_damaged_seed_does_not_keep_the_others_out_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell,) = cells(out=tmp_path, preset="cpu", tasks=("toy/reach",), methods=("ubp2",), seeds=2, steps=2000)
    own, experiment = groups(cell)[0], find("table1")
    plan = Plan(experiment, experiment.methods, [cell], [alone(own)], [], [], tmp_path)
    reported: list[Results] = []
    monkeypatch.setattr("ubp2.evaluation.report.write", lambda results, out, **_: reported.append(results) or out)
    said: list[str] = []
    running.run(plan, How(), said.append, train=False)
    assert said == ["no run has been evaluated yet, so there is no report"] and not reported
    members = {f"s{seed}": replace(cell.config, seed=seed) for seed in range(2)}
    with contextlib.ExitStack() as stack:
        for run in population.create(stack, own.folder, members):
            with Metrics(run.folder, tensorboard=False) as metrics:
                metrics.write("eval", 2000, {"policy/success_any": 0.5})
    (own.folder / "s1" / "metrics.jsonl").write_text("no json\n", encoding="utf-8")
    running.run(plan, How(), said.append, train=False)
    (results,) = reported
    assert [one.seed for one in results.series] == [0] and results.missing("toy/reach", "UBP2") == [1]
    assert "metrics.jsonl has a damaged line" in results.problems[0]
