"""Labels in files: every bit comes back, what is damaged or of another task is refused, stores are looked through."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.labelling.stored import CONFIG, ENDINGS, SPEC, as_bits, changed, labels_of, query, ubp2
from ubp2.envs.base import EnvSpec
from ubp2.errors import UserError
from ubp2.labelling import files, statistics, transfer
from ubp2.labelling.header import Header, require_same
from ubp2.preference.store import LabelStore
from ubp2.preference.verification import verify
from ubp2.storage.runs import Run
from ubp2.terminal import cli


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_round_trip_is_exact(made: Callable[..., Path], tmp_path: Path, ending: str) -> None:
    """Store to file to store to file: the same labels in the same order, skips and ties and all that was noted."""
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    folder, file, again = made("first"), tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    before = labels_of(folder)
    assert [(e.annotator, e.label, e.weight) for e in before] == [
        ("Zoë", 1.0, 1.0),
        ("Zoë", 0.5, 1.0),
        ("ben", 0.0, 1.0),
        ("ben", 0.5, 0.0),
        ("Zoë", 1.0, 0.7),
    ], "what was undone or changed is not a label"
    assert ubp2("export", folder, file) == 0
    header, read = files.read(file)
    assert as_bits(read) == as_bits(before)
    assert header.counts == {"records": 5, "labels": 4, "ties": 1, "skips": 1, "questions": 4, "annotators": 2}
    assert (header.env, header.segment_length, header.obs_dim, header.action_dim) == ("toy/reach", 3, 4, 2)
    assert header.spec is not None and EnvSpec.from_dict(header.spec) == SPEC
    other = made("second", first=100, answered=False)
    assert ubp2("import", other, file) == 0
    assert as_bits(labels_of(other)) == as_bits(before), "also where each was asked, in which run"
    assert ubp2("export", other, again) == 0
    assert as_bits(files.read(again)[1]) == as_bits(before)
    if ending == "jsonl":
        assert file.read_text().splitlines()[1:] == again.read_text().splitlines()[1:]


def test_files_need_nothing_of_ubp2(made: Callable[..., Path], tmp_path: Path) -> None:
    """Three lines, as docs/labels.md has them."""
    import base64

    transfer.export(made(), tmp_path / "a.jsonl.gz", anonymous=False, overwrite=False, intact=False)
    with gzip.open(tmp_path / "a.jsonl.gz", "rt") as lines:
        header, *records = map(json.loads, lines)
    obs = np.frombuffer(base64.b64decode(records[0]["left_obs"]), "<f4").reshape(header["segment_length"], -1)
    assert np.array_equal(obs, query(0).left_obs)
    assert list(records[0]) == list(files.FIELDS) and header["format"] == "ubp2-labels"


def test_the_page_has_every_field_and_its_commands_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "labels.md").read_text(encoding="utf-8")
    for name in (*files.FIELDS, *(field.name for field in dataclasses.fields(Header))):
        assert f"`{name}`" in page, name
    lines = [line.split("#")[0].split()[1:] for line in page.splitlines() if line.startswith("ubp2 ")]
    parsed = []
    monkeypatch.setattr(cli.Command, "run", lambda _, words: parsed.append(words))
    for words in lines:
        cli._run(words)
    assert len(parsed) == len(lines) == 6
    assert [type(each.what).__name__ for each in parsed if hasattr(each, "what")] == [
        "Export",
        "Export",
        "Import",
        "Verify",
        "Stats",
    ]


def test_importing_again_changes_nothing(made: Callable[..., Path], tmp_path: Path) -> None:
    """Neither the same file, nor the same labels without names, nor a run's own."""
    folder, other = made("first"), made("second", first=100)
    plain, nameless = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for file, anonymous in ((plain, False), (nameless, True)):
        transfer.export(folder, file, anonymous=anonymous, overwrite=False, intact=False)
    assert [tuple(own)[1:] for own in transfer.import_files(folder, [plain, nameless])] == [(0, 5, 0)]
    (first,) = transfer.import_files(other, [plain])
    (second,) = transfer.import_files(other, [plain, nameless])
    assert (first.added, first.known, first.labels) == (5, 0, 3), "two answers to one question are one label"
    assert (second.added, second.known, second.labels) == (0, 5, 3)
    assert Run.open(other).config.preferences.imported == 3
    assert len(labels_of(other)) == 10 and verify(other / "labels.sqlite").problems == []


def test_imported_labels_are_learned_from_and_never_asked(made: Callable[..., Path], tmp_path: Path) -> None:
    """Their episodes are in another archive: no page shows them, and nobody can undo them by accident."""
    transfer.export(made("first"), tmp_path / "a.jsonl", anonymous=False, overwrite=False, intact=False)
    other = made("second", first=100)
    with LabelStore(other / "labels.sqlite") as store:
        before = (store.pending(overlap=3), store.given(), store.checks(), store.count(), store.waiting())
        known = len(store.answers(up_to_decision=0))
        own = len(store.given("Zoë"))
    transfer.import_files(other, [tmp_path / "a.jsonl"])
    with LabelStore(other / "labels.sqlite") as store:
        assert len(store.answers(up_to_decision=0)) == known + 5
        assert [len(store.pending(overlap=3)), store.waiting()] == [len(before[0]), before[4]]
        assert [g._replace(id=0) for g in store.given()] == [g._replace(id=0) for g in before[1]]
        assert (store.checks(), store.count()) == before[2:4]
        last = store.answers(up_to_decision=0)[-1].id
        assert all(g.id > last for g in store.given()), "a trainer that has taken the imported ones is not past these"
        assert [each.id for each in store.session(0)] == store.ask(40, 0, [query(100 + n) for n in range(5)], "uniform")
        assert len(store.given()) == len(before[1])
        for n in range(own + 1):
            assert (store.withdraw("Zoë", key=f"undo {n}") is None) == (n == own)
        assert len(store.answers(up_to_decision=0)) == known + 5


def test_names_can_be_left_out(made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made("alice-study")
    assert ubp2("export", folder, tmp_path / "a.jsonl", "--anonymous") == 0
    text = (tmp_path / "a.jsonl").read_text()
    assert not any(name in text for name in ("Zo", "ben", "alice", "would not play"))
    _, labels = files.read(tmp_path / "a.jsonl")
    assert len({each.annotator for each in labels}) == 2, "who said what with whom is still to be seen"
    assert [each.id for each in labels] == [each.id for each in labels_of(folder)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"env": "toy/other"}, "the environment is toy/other in the file and toy/reach here"),
        ({"obs_dim": 5}, "the size of observations is 5 in the file and 4 here"),
        ({"action_dim": 7}, "the size of actions is 7 in the file and 2 here"),
        (
            {"segment_length": 9},
            "segment_length is 9 in the file and 3 here; train with --preferences.segment-length 9",
        ),
        ({"spec": SPEC._replace(action_repeat=2)._asdict()}, "the action repeat is 2 in the file and 1 here"),
        ({"spec": SPEC._replace(action_low=(0, 0))._asdict()}, r"the bounds of actions is \[\[0.0, 0.0\], .* in the"),
    ],
)
def test_labels_of_another_task_are_refused(
    made: Callable[..., Path], tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    transfer.export(made(), tmp_path / "a.jsonl", anonymous=False, overwrite=False, intact=False)
    header = files.read_header(tmp_path / "a.jsonl")
    require_same(Path("a"), header, CONFIG, SPEC._asdict())
    require_same(Path("a"), dataclasses.replace(header, spec=None), CONFIG, None)
    with pytest.raises(UserError, match=said):
        require_same(Path("a"), dataclasses.replace(header, **change), CONFIG, SPEC._asdict())
    before = as_bits(labels_of(folder := made("other", first=100)))
    with pytest.raises(UserError, match="do not fit this run"):
        transfer.import_files(folder, [changed(tmp_path / "a.jsonl", lambda own: own.update(change))])
    assert as_bits(labels_of(folder)) == before


def test_only_metaworld_has_protocols(made: Callable[..., Path], tmp_path: Path) -> None:
    transfer.export(made(), tmp_path / "a.jsonl", anonymous=False, overwrite=False, intact=False)
    header = files.read_header(tmp_path / "a.jsonl")
    theirs = {**header.environment, "protocol": "bpref"}
    require_same(Path("a"), dataclasses.replace(header, environment=theirs), CONFIG, None)
    door = dataclasses.replace(CONFIG, env="metaworld/door-close")
    with pytest.raises(UserError, match="environment.protocol is bpref in the file and ubp2 here"):
        require_same(Path("a"), dataclasses.replace(header, env=door.env, environment=theirs), door, None)


def test_what_is_asked_of_the_command_line(
    made: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = made(), tmp_path / "a.jsonl"
    silent = tmp_path / "silent"
    Run.create(silent, CONFIG).close()
    cases = {
        ("export", folder, tmp_path / "a.csv"): "ends with .jsonl, .jsonl.gz, .parquet, got a.csv",
        ("export", tmp_path, file): "is not a run folder",
        ("export", silent, file): "has no labels.sqlite",
        ("verify", silent): "has no labels.sqlite",
        ("stats", silent): "has no labels.sqlite",
        ("import", folder): "The following arguments are required|needs at least one file|required",
        ("import", folder, file): "there is no label file",
        ("show", folder): "unknown work on labels 'show'",
        (): "needs what to do, before any option: export, import, verify, stats",
        ("export", made("quiet", 7, answered=False), file): "nobody has answered a question",
    }  # fmt: skip
    for words, said in cases.items():
        assert ubp2(*words) == 2
        error = capfd.readouterr().err
        assert any(part in error for part in said.split("|")), (words, error)
    assert not (silent / "labels.sqlite").exists()
    assert ubp2("export", folder, file) == 0 and "4 labels and 1 skips of 2 annotators" in capfd.readouterr().out
    assert ubp2("export", folder, file) == 2 and "replace it with --overwrite" in capfd.readouterr().err
    assert ubp2("export", folder, file, "--overwrite", "--json") == 0
    assert json.loads(capfd.readouterr().out)["counts"]["records"] == 5
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith("tmp")] == []
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert ubp2("export", folder, tmp_path / "a.parquet") == 2
    assert "pip install 'ubp2[parquet]'" in capfd.readouterr().err


def test_a_run_that_is_being_written_gets_no_labels(made: Callable[..., Path], tmp_path: Path) -> None:
    folder, file = made(), tmp_path / "a.jsonl"
    transfer.export(folder, file, anonymous=False, overwrite=False, intact=False)
    with Run.open(folder, write=True), pytest.raises(UserError, match="is being written by process"):
        transfer.import_files(folder, [file])


def test_statistics(made: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = made()
    data = statistics.describe(folder)
    assert {name: data[name] for name in ("asked", "labels", "imported", "ties", "skips", "sessions")} == {
        "asked": 6, "labels": 4, "imported": 0, "ties": 1, "skips": 1, "sessions": 2
    }  # fmt: skip
    assert data["seconds"]["median"] == pytest.approx((1 / 3 + 2.5) / 2)
    zoe, ben = data["annotators"]["Zoë"], data["annotators"]["ben"]
    assert (zoe["answers"], zoe["ties"], zoe["skips"], zoe["sittings"]) == (3, 1, 0, 1)
    assert zoe["seconds"] == {"median": 2.5, "p90": pytest.approx(3.7)}
    assert (zoe["asked_again"], zoe["same_again"]) == (2, 0.5)
    assert (ben["answers"], ben["skips"], ben["seconds"]["median"]) == (2, 1, 0.1)
    assert data["agreement"]["shared"] == 1 and data["agreement"]["pairs"][0]["agree"] == 0
    assert ubp2("stats", folder) == 0
    assert "Zoë and ben: 1 pairs, 0% the same" in capfd.readouterr().out
    assert ubp2("stats", folder, "--json") == 0
    assert json.loads(capfd.readouterr().out)["runs"][0]["labels"] == 4


def test_people_who_answered_the_same_pairs_elsewhere_are_compared(made: Callable[..., Path], tmp_path: Path) -> None:
    """The same question in the run and in a file is one pair."""
    here, there = made("here", answered=False), made("there", answered=False)
    for folder, who, said in ((here, "ann", (1.0, 1.0, 0.0, 0.5, 0.0)), (there, "bob", (1.0, 1.0, 0.0, 0.5, 1.0))):
        with LabelStore(folder / "labels.sqlite") as store:
            for pending, label in zip(store.session(0), said, strict=True):
                store.answer(pending.id, label, annotator=who)
    transfer.export(there, tmp_path / "b.jsonl", anonymous=False, overwrite=False, intact=False)
    transfer.import_files(here, [tmp_path / "b.jsonl"])
    agreement = statistics.describe(here)["agreement"]
    assert agreement["shared"] == 5 and agreement["pairs"][0]["agree"] == 4
