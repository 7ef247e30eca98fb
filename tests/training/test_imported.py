"""Labels of other runs: there from the first decision, outside the budget, and the same bits after any stop."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.training.helpers import assert_same_run, json_of, rows, saved, tiny, ubp2
from tests.training.test_resume import MOMENTS, command, stop_at
from ubp2 import api
from ubp2.config.files import save_yaml
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.labelling import files, transfer
from ubp2.preference.records import encode
from ubp2.preference.store import LabelStore
from ubp2.storage.runs import Run
from ubp2.training import loop
from ubp2.training.state import Counters, State

OWN = 14  # budget of `tiny`
PEBBLE = {"agent": "pebble", "preferences": {"first": 80}, "sac": {"reset_updates": 2, "neighbours": 16, "epochs": 2}}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 14 labels of a run with another seed."""
    folder = tmp_path_factory.mktemp("earlier")
    assert api.train(tiny(seed=5), out=folder / "run", progress=False).labels == OWN
    transfer.export(folder / "run", folder / "labels.jsonl.gz", anonymous=False, overwrite=False, intact=False)
    return folder / "labels.jsonl.gz"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, file: Path) -> Path:
    """An uninterrupted run that began with them."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    result = api.train(tiny(), labels=[file], out=folder, progress=False)
    assert (result.finished, result.labels) == (True, 2 * OWN), "they count as labels, and not against the budget"
    return folder


def memories(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any]]:
    """Decision and labels on the device at each decision of the runs of this test."""
    seen: list[tuple[int, Any]] = []
    real = loop._act

    def look(crew: Any, programs: Any, state: State) -> Any:
        told = real(crew, programs, state)
        state.device.wake(programs)
        seen.append((state.counters.decision, jax.device_get(state.device.memory.preferences)))
        return told

    monkeypatch.setattr(loop, "_act", look)
    return seen


def test_they_are_there_from_the_first_decision(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = memories(monkeypatch)
    api.train(tiny(steps=80, evaluation={"every": 0}), labels=[file], out=tmp_path / "run", progress=False)
    decision, first = seen[0]
    assert decision == 0 and first.count[0] == OWN and len(first.label[0]) == 2 * OWN, "and there is room for its own"
    _, labels = files.read(file)
    for i, label in enumerate(labels):
        assert np.array_equal(first.left_obs[0, i], label.query.left_obs)
        assert (first.label[0, i], first.weight[0, i]) == (label.label, label.weight)
    assert rows(tmp_path / "run", "labels")[0] == {"kind": "labels", "decision": 0, "labels/used": OWN}
    assert seen[-1][1].count[0] == OWN + 4 and saved(tmp_path / "run").meta["asked"] == 2 * 4
    assert Run.open(tmp_path / "run").config.preferences.imported == OWN


def test_stopped_in_every_phase(file: Path, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stop_at(33, signal.SIGTERM, lambda: api.train(tiny(), labels=[file], out=folder, progress=False))
    file_gone = file.rename(file.with_name("elsewhere.jsonl.gz"))
    try:  # the run stands alone
        for decisions in (0, 60, 47, 20):
            stop_at(decisions + 1, signal.SIGINT, lambda: api.resume(folder, progress=False))
        assert api.resume(folder, progress=False).labels == 2 * OWN
    finally:
        file_gone.rename(file)
    assert_same_run(folder, whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_again_and_again(file: Path, whole: Path, tmp_path: Path, seed: int) -> None:
    """SIGKILL, also before the first checkpoint; a kill while labels are copied is told, and mended by an import."""
    folder, draw, kills = tmp_path / "run", random.Random(seed), 0
    save_yaml(tiny(), tmp_path / "config.yaml")
    start = ["train", "--config", tmp_path / "config.yaml", "--labels", file, "--out", folder, "--quiet"]
    for n in range(4):
        moment = draw.choice(["decision", *MOMENTS])
        count = draw.randint(20, 110) if moment == "decision" else draw.randint(1, 3 if "point" in moment else 9)
        moment, count = ("before commit", 1 + draw.randint(0, 2)) if n == 0 else (moment, count)
        words = ["train", "--resume", folder, "--quiet"] if (folder / "config.yaml").exists() else start
        ended = command(words, moment, count, signal.SIGKILL)
        if ended.returncode == 2:
            assert "their copy was interrupted; put them there with: ubp2 labels import" in ended.stderr
            assert transfer.import_files(folder, [file])[0].labels == OWN
            continue
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        kills += ended.returncode == -signal.SIGKILL
    assert kills >= 2
    assert api.resume(folder, progress=False).finished
    assert_same_run(folder, whole)


@pytest.mark.slow
def test_a_run_that_stood_still_learns_from_what_was_added(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once and not at the next session, of which there may be none; and what it had asked is not lost."""
    folder, other = tmp_path / "run", tmp_path / "other"
    for each in (folder, other):
        stop_at(95, signal.SIGTERM, lambda each=each: api.train(tiny(), out=each, progress=False))
    save_yaml(tiny(), tmp_path / "config.yaml")
    # Killed after the session at 120, before the checkpoint of 140: answers beyond the checkpoint that it goes on from.
    assert command(["train", "--resume", folder, "--quiet"], "decision", 35, signal.SIGKILL).returncode < 0
    assert saved(folder).decision == 95
    for each in (folder, other):
        (added,) = transfer.import_files(each, [file])
        assert (added.added, added.labels) == (OWN, OWN)
    seen = memories(monkeypatch)
    assert api.resume(folder, progress=False).labels == 2 * OWN
    assert seen[0][0] == 95 and seen[0][1].count[0] == 8 + OWN
    assert seen[-1][1].count[0] == 2 * OWN
    assert api.resume(other, progress=False).labels == 2 * OWN
    with LabelStore(folder / "labels.sqlite") as store, LabelStore(other / "labels.sqlite") as same:
        assert (store.count().labels, len(store.imported())) == (OWN, OWN)
        a, b = ([encode(each.query)[0] for each in own.session(2)] for own in (store, same))
        assert a == b, "the session after the checkpoint is that of a run that was not killed"


@pytest.mark.slow
def test_killed_after_labels_were_added(file: Path, tmp_path: Path) -> None:
    """Before and after the next checkpoint: the same bits."""
    ends = []
    for name, stops in (("a", ()), ("b", (10, 30, 60)), ("c", (50,))):
        folder = tmp_path / name
        stop_at(95, signal.SIGTERM, lambda folder=folder: api.train(tiny(), out=folder, progress=False))
        transfer.import_files(folder, [file])
        for count in stops:
            ended = command(["train", "--resume", folder, "--quiet"], "decision", count, signal.SIGKILL)
            assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert api.resume(folder, progress=False).finished
        ends.append(folder)
    assert_same_run(ends[1], ends[0])
    assert_same_run(ends[2], ends[0])


@pytest.mark.slow
def test_a_second_answer_to_the_same_pair_is_not_a_second_label(file: Path, tmp_path: Path) -> None:
    """Of several people the mean, also where the second comes in a later file, and after any restart."""
    folder, more = tmp_path / "run", tmp_path / "second.jsonl"
    header, labels = files.read(file)
    files.write(more, header, [each._replace(annotator="ben", label=0.5) for each in labels])
    stop_at(95, signal.SIGTERM, lambda: api.train(tiny(), labels=[file], out=folder, progress=False))
    (added,) = transfer.import_files(folder, [more])
    assert (added.added, added.labels) == (OWN, OWN)
    assert api.resume(folder, progress=False).labels == 2 * OWN


@pytest.mark.slow
def test_several_seeds_begin_with_them(file: Path, tmp_path: Path) -> None:
    result = api.train(tiny(), seeds=2, labels=[file], out=tmp_path / "both", progress=False)
    assert result.labels == 4 * OWN
    for member in ("s0", "s1"):
        assert Run.open(tmp_path / "both" / member).config.preferences.imported == OWN
        assert rows(tmp_path / "both" / member, "labels")[0]["labels/used"] == OWN
    transfer.export(tmp_path / "both", tmp_path / "all.jsonl", anonymous=False, overwrite=False, intact=False)
    found = transfer.gather([tmp_path / "all.jsonl"], tiny())
    assert len(found.labels) == 3 * OWN, "those that both began with are the same labels"
    assert sorted(found.headers[0][1].runs) == ["run", "s0", "s1"]


@pytest.mark.slow
def test_pebble_learns_its_reward_before_the_first_session(file: Path, tmp_path: Path) -> None:
    config = tiny(**PEBBLE)
    folder, other = tmp_path / "run", tmp_path / "whole"
    assert api.train(config, labels=[file], out=other, progress=False).labels == 2 * OWN
    warmup = config.training.warmup
    assert [row["decision"] for row in rows(other, "fit")][:2] == [warmup, 80]
    stop_at(50, signal.SIGTERM, lambda: api.train(config, labels=[file], out=folder, progress=False))
    stop_at(30, signal.SIGTERM, lambda: api.resume(folder, progress=False))
    assert api.resume(folder, progress=False).finished
    assert_same_run(folder, other)


def test_labels_alone_can_be_enough(file: Path, tmp_path: Path) -> None:
    """A budget of 0 asks nothing; without labels it is refused."""
    config = tiny(preferences={"budget": 0}, steps=120)
    result = api.train(config, labels=[file], out=tmp_path / "run", progress=False)
    assert (result.finished, result.labels) == (True, OWN)
    with LabelStore(tmp_path / "run" / "labels.sqlite") as store:
        assert store.count().asked == 0
    with pytest.raises(UserError, match="the label budget is 0"):
        api.train(config, out=tmp_path / "none", progress=False)


REFUSED: dict[str, tuple[Callable[[Path], list[Any]], dict[str, Any], str]] = {
    "another length": (
        lambda f: ["--labels", f],
        {"preferences": {"segment_length": 7}},
        "preferences.segment_length is 5 in the file and 7 here; train with --preferences.segment-length 5",
    ),
    "another environment": (
        lambda f: ["--labels", f],
        {"env": "gym/Pendulum-v1"},
        "the environment is toy/reach in the file and gym/Pendulum-v1 here",
    ),
    "ceiling": (lambda f: ["--labels", f], {"ceiling": True}, "--ceiling learns from the true reward and from no"),
    "no file": (lambda f: ["--labels", f.with_name("b.jsonl")], {}, "there is no label file"),
    "no labels": (lambda f: [], {"preferences": {"imported": 3}}, "has 0 labels of other runs, and its configuration"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(file: Path, tmp_path: Path, name: str) -> None:
    words, changes, said = REFUSED[name]
    config: Config = tiny(**changes)
    save_yaml(config, tmp_path / "config.yaml")
    ended = ubp2("train", "--config", tmp_path / "config.yaml", "--out", tmp_path / "run", "--quiet", *words(file))
    assert ended.returncode == 2 and said in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr
    assert name == "no labels" or not (tmp_path / "run").exists(), "nothing is left behind"


def test_a_resumed_run_takes_labels_by_import(whole: Path, file: Path) -> None:
    ended = ubp2("train", "--resume", whole, "--labels", file)
    assert ended.returncode == 2 and f"add more with: ubp2 labels import {whole} FILE" in ended.stderr
    told = json_of(ubp2("labels", "stats", whole, "--json"))["runs"][0]
    assert (told["labels"], told["imported"], told["asked"]) == (2 * OWN, OWN, OWN)


def test_counters_know_nothing_of_imports() -> None:
    """Checkpoints of runs without imported labels are what they were."""
    assert set(Counters.start(1).of(0)) == {
        "decision", "episode", "sessions", "asked", "labels", "cursor", "last_row", "broken", "restarts", "evaluated"
    }  # fmt: skip
