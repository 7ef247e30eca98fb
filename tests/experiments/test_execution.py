"""Groups that fail, that are stopped, and that go on: with processes, as a user has them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.sweeps import started, waited
from ubp2.config.files import overridden
from ubp2.config.presets import preset
from ubp2.experiments import execution, group_folders
from ubp2.experiments.catalogue import Acting
from ubp2.experiments.cells import Cell, Group
from ubp2.experiments.execution import Workers
from ubp2.experiments.programs import Program
from ubp2.storage import locks

SMALL = [
    "model.width: 16",
    "planner.samples: 16",
    "planner.elites: 4",
    "planner.policy_samples: 4",
    "planner.iterations: 1",
    "training.batch_size: 16",
    "training.warmup: 100",
    "preferences.every: 100",
    "evaluation.episodes: 1",
    "checkpoint.every: 100",
]
FLAGS = [
    "--tasks",
    "toy/reach",
    "--methods",
    "ubp2",
    "mbp",
    "--preset",
    "cpu",
    "--seeds",
    "2",
    "--steps",
    "600",
    "--together",
    "2",
]


def reproduce(out: Path, *extra: str) -> list[str]:
    settings = [part for line in SMALL for part in ("--set", line)]
    return [sys.executable, "-m", "ubp2", "reproduce", "table1", *FLAGS, *settings, "--out", str(out), *extra]


def checkpointed(folder: Path) -> bool:
    return len(list(folder.glob("s*/checkpoints/*/manifest.json"))) >= 2


@pytest.mark.slow
def test_a_table_that_is_killed_goes_on_and_is_finished_once(tmp_path: Path) -> None:
    """SIGKILL in the first cell, SIGTERM in the second, then the same command to the end; nothing is trained twice."""
    out = tmp_path / "out"
    first, second = (out / "toy-reach" / method / "seeds-0-1" for method in ("ubp2", "mbp"))
    with started(reproduce(out), stdout=subprocess.DEVNULL) as killed:
        assert waited(lambda: checkpointed(first))
        killed.kill()
        killed.communicate()
        assert waited(lambda: not locks.held(first / "s0"), 60), "the run outlived the command that started it"
    with started(reproduce(out)) as stopped:
        assert waited(lambda: checkpointed(second))
        resumed = json.loads((first / "s0" / "info.json").read_text(encoding="utf-8"))["resumed"]
        finished = (first / "s0" / "metrics.jsonl").read_bytes()
        stopped.terminate()
        text, _ = stopped.communicate(timeout=300)
    assert stopped.returncode == 75, text
    assert "the same command goes on" in text
    done = subprocess.run(reproduce(out, "--json"), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [group["state"] for group in answer["groups"]] == ["finished", "finished"]
    assert len(resumed) == 1, "the first cell goes on from its checkpoint"
    assert (first / "s0" / "metrics.jsonl").read_bytes() == finished, "what is finished is left alone"
    page = Path(answer["report"]).read_text(encoding="utf-8")
    assert "UBP2" in page and "MBP" in page and "toy" in page
    again = subprocess.run(reproduce(out, "--json"), capture_output=True, text=True, timeout=120)
    assert again.returncode == 0 and "nothing is missing" in again.stderr


def group(tmp_path: Path) -> Group:
    config = preset("cpu", "toy/reach")
    return Group(Cell("toy/reach", "ubp2", config, 1, tmp_path / "toy-reach" / "ubp2"), 0, 1)


def alone(own: Group) -> Program:
    return Program((own,))


def test_a_group_that_fails_is_tried_again_and_then_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "command", lambda group: ["train", "--env", "toy/raech"])
    said: list[str] = []
    (outcome,) = Workers(jobs=1, retries=2, say=said.append).run([alone(group(tmp_path))], clips=False)
    assert (outcome.state, outcome.attempts) == ("failed", 3)
    assert "Did you mean reach" in outcome.reason or "unknown toy task" in outcome.reason
    assert len(said) == 2 and "tried again (1 of 2)" in said[0]
    log = (tmp_path / "toy-reach" / "ubp2" / "seeds-0.log").read_text(encoding="utf-8")
    assert log.count("$ ubp2 train") == 3


def test_the_others_run_when_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = group(tmp_path / "good"), group(tmp_path / "bad")
    monkeypatch.setattr(execution, "command", lambda g: ["envs"] if g is good else ["nothing"])
    outcomes = list(Workers(jobs=2, retries=0, say=lambda _: None).run([alone(bad), alone(good)], clips=False))
    assert {outcome.group.folder: outcome.state for outcome in outcomes} == {
        bad.folder: "failed",
        good.folder: "finished",
    }


def test_what_ended_before_its_first_checkpoint_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = group(tmp_path)
    (own.folder / "checkpoints").mkdir(parents=True)
    (own.folder / "config.yaml").write_text("env: toy/reach\n", encoding="utf-8")
    calls: list[list[str]] = []
    workers = Workers(jobs=1, retries=0, say=lambda _: None)
    monkeypatch.setattr(workers, "_call", lambda arguments, log: calls.append(arguments) or 0)
    list(workers.run([alone(own)], clips=False))
    assert not own.folder.exists() and "--out" in calls[0] and "--resume" not in calls[0]


def test_what_people_have_answered_is_kept_without_a_checkpoint_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = group(tmp_path)
    own = replace(own, cell=replace(own.cell, config=overridden(own.cell.config, {"teacher": "human"})))
    own.folder.mkdir(parents=True)
    for name in ("config.yaml", "info.json", "labels.sqlite"):
        (own.folder / name).write_text("{}", encoding="utf-8")
    calls: list[list[str]] = []
    workers = Workers(jobs=1, retries=0, say=lambda _: None)
    monkeypatch.setattr(workers, "_call", lambda arguments, log: calls.append(arguments) or 0)
    list(workers.run([alone(own)], clips=False))
    assert calls == [["train", "--quiet", "--resume", str(own.folder)]] and (own.folder / "labels.sqlite").exists()


def test_a_clip_that_cannot_be_made_does_not_end_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(jobs=1, retries=0, say=lambda _: None)

    def call(arguments: list[str], log: Path) -> int:
        if arguments[0] == "eval":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return 0

    monkeypatch.setattr(workers, "_call", call)
    (outcome,) = workers.run([alone(group(tmp_path))], clips=True)
    assert outcome.state == "finished"


def test_a_folder_that_somebody_writes_to_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "_PATIENCE", 0.3)
    own = group(tmp_path)
    own.folder.mkdir(parents=True)
    lock = locks.take(own.folder)
    try:
        workers = Workers(jobs=1, retries=0, say=lambda _: None)
        monkeypatch.setattr(workers, "_call", lambda arguments, log: 2)
        (outcome,) = workers.run([alone(own)], clips=False)
        assert own.folder.exists() and outcome.state == "failed"
    finally:
        os.close(lock)


def test_two_commands_in_one_folder_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    lock = locks.take(out)
    try:
        second = subprocess.run(reproduce(out), capture_output=True, text=True, timeout=60)
    finally:
        os.close(lock)
    assert second.returncode == 2 and "is being written by process" in second.stderr


def test_a_child_leaves_when_its_parent_is_not_there(tmp_path: Path) -> None:
    environment = {**os.environ, "UBP2_PARENT": "1"}
    child = [sys.executable, "-m", "ubp2.experiments.child", "--version"]
    orphan = subprocess.run(child, env=environment, capture_output=True, timeout=60)
    assert orphan.returncode == 1 and not orphan.stdout


def test_how_far_a_group_is_comes_from_the_end_of_its_metrics(tmp_path: Path) -> None:
    own = group(tmp_path)
    assert group_folders.decision(own) == 0
    own.folder.mkdir(parents=True)
    rows = b'{"kind": "train", "decision": 100}\n{"kind": "train", "decision": 200}\n{"kind": "tr'
    (own.folder / "metrics.jsonl").write_bytes(rows)
    assert group_folders.decision(own) == 200


def pair(tmp_path: Path) -> Group:
    """Two seeds in one folder with a checkpoint each, as a killed command leaves them."""
    own = Group(Cell("toy/reach", "ubp2", preset("cpu", "toy/reach"), 2, tmp_path / "toy-reach" / "ubp2"), 0, 2)
    for seed in (0, 1):
        member = own.folder / f"s{seed}"
        (member / "checkpoints" / "000000100").mkdir(parents=True)
        for name in ("config.yaml", "info.json", "checkpoints/000000100/manifest.json"):
            (member / name).write_text("{}", encoding="utf-8")
    (own.folder / "population.json").write_text('{"seeds": [0, 1]}', encoding="utf-8")
    return own


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: shutil.rmtree(folder / "s1"), "s1 is no whole run folder while others here have checkpoints"),
        (lambda folder: (folder / "s1" / "config.yaml").unlink(), "s1 is no whole run folder"),
        (
            lambda folder: (folder / "population.json").unlink(),
            'population.json is gone or damaged; write {"seeds": [0, 1]}',
        ),
        (lambda folder: (folder / "population.json").write_text("{"), "population.json is gone or damaged"),
    ],
)
def test_a_damaged_seed_does_not_cost_the_others(
    damage: Callable[[Path], object], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = pair(tmp_path)
    damage(own.folder)
    there = sorted(own.folder.rglob("*"))
    workers = Workers(jobs=1, retries=2, say=lambda _: None)
    monkeypatch.setattr(workers, "_call", lambda arguments, log: pytest.fail(str(arguments)))
    (outcome,) = workers.run([alone(own)], clips=False)
    assert (outcome.state, outcome.attempts) == ("failed", 1) and sentence in outcome.reason
    assert sorted(own.folder.rglob("*")) == there, "nothing is removed"


def test_a_kill_in_the_middle_of_the_first_checkpoint_is_left_to_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = pair(tmp_path)
    shutil.rmtree(own.folder / "s1" / "checkpoints")
    calls: list[list[str]] = []
    workers = Workers(jobs=1, retries=0, say=lambda _: None)
    monkeypatch.setattr(workers, "_call", lambda arguments, log: calls.append(arguments) or 0)
    list(workers.run([alone(own)], clips=False))
    assert calls == [["train", "--quiet", "--resume", str(own.folder)]]


@pytest.mark.parametrize(("controller", "told"), [("acting", []), ("planner", ["--controller", "planner"])])
def test_the_clip_is_of_the_controller_whose_success_counts(
    controller: Acting, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = group(tmp_path)
    own = replace(own, cell=replace(own.cell, controller=controller))
    calls: list[list[str]] = []
    workers = Workers(jobs=1, retries=0, say=lambda _: None)
    monkeypatch.setattr(workers, "_call", lambda arguments, log: calls.append(arguments) or 0)
    list(workers.run([alone(own)], clips=True))
    clip = str(own.folder / "clip.mp4")
    assert calls[1] == ["eval", str(own.folder), "--episodes", "1", *told, "--video", clip]
