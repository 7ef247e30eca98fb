"""Labels in files: every bit comes back, what is damaged or of another task is refused, stores are looked through."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ubp2.config.schema import Config, PreferenceConfig
from ubp2.envs.base import EnvSpec
from ubp2.errors import UserError
from ubp2.labelling import files, statistics, transfer
from ubp2.labelling.header import Header, require_same
from ubp2.preference.imported import Label
from ubp2.preference.store import LabelStore
from ubp2.preference.verification import verify
from ubp2.storage.runs import Run
from ubp2.terminal import cli
from ubp2.types import Query

CONFIG = Config(env="toy/reach", preferences=PreferenceConfig(segment_length=3))
SPEC = EnvSpec("toy/reach", 4, 2, 50, 1, 20, True, (-1.0, -1.0), (1.0, 1.0))
ENDINGS = ("jsonl", "jsonl.gz", "parquet")


def query(number: int, score: float = 0.25) -> Query:
    """Segments with numbers that decimal digits would not bring back."""
    rng = np.random.default_rng(number)
    left_obs, right_obs = rng.normal(size=(2, 3, 4)).astype(np.float32)
    left_action, right_action = rng.normal(size=(2, 3, 2)).astype(np.float32)
    left_obs[0, :3] = (-0.0, 1e-42, np.float32(1) / 3)
    return Query(left_obs, left_action, right_obs, right_action, number, 1, number + 1, 2, score)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """A function that makes the folder of a run with questions and answers of two people."""

    def make(name: str = "run", first: int = 0, answered: bool = True) -> Path:
        with Run.create(tmp_path / name, CONFIG) as run, LabelStore(run.labels) as store:
            store.note({"environment": SPEC._asdict()})
            a, b, c, d, _ = store.ask(40, 0, [query(first + n, math.nan if n else 0.1) for n in range(5)], "uniform")
            (e,) = store.ask(80, 1, [query(first + 9)], "optimistic")
            if answered:
                store.answer(a, 1.0, annotator="Zoë", seconds=2.5, key=f"{first} 1", swapped=True)
                store.answer(b, 0.5, annotator="Zoë", seconds=4.0, key=f"{first} 2")
                store.answer(a, 0.0, annotator="ben", seconds=0.1, key=f"{first} 3")
                store.answer(c, 0.5, 0.0, annotator="ben", key=f"{first} 4", reason="the clip would not play")
                store.answer(d, 1.0, annotator="ben", key=f"{first} 5")
                store.withdraw("ben", key=f"{first} 6")
                store.answer(e, 0.0, annotator="Zoë", key=f"{first} 7")
                store.answer(e, 1.0, 0.7, annotator="Zoë", seconds=1 / 3, key=f"{first} 8")
                store.check(a, 1.0, 1.0, "Zoë", 1.0, key=f"{first} 9", swapped=False)
                store.check(b, 1.0, 1.0, "Zoë", 1.0, key=f"{first} 10", swapped=False)
        return tmp_path / name

    return make


def labels_of(folder: Path) -> list[Label]:
    with LabelStore(folder / "labels.sqlite") as store:
        return list(store.labels(folder.name))


def as_bits(labels: list[Label]) -> list[tuple[Any, ...]]:
    return [
        (*(array.tobytes() for array in each.query[:4]), *each.query[4:8], repr(each.query.score), *each[1:])
        for each in labels
    ]


def ubp2(*words: Any) -> int:
    return cli.main(["labels", *map(str, words)])


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


def test_the_page_has_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "labels.md").read_text(encoding="utf-8")
    for name in (*files.FIELDS, *(field.name for field in dataclasses.fields(Header))):
        assert f"`{name}`" in page, name


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


def changed(file: Path, change: Callable[[dict[str, Any]], Any], line: int = 0) -> Path:
    lines = file.read_text().splitlines()
    content = json.loads(lines[line])
    lines[line] = json.dumps(change(content) or content)
    file.write_text("\n".join(lines) + "\n")
    return file


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


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut off": (lambda f: f.write_text("\n".join(f.read_text().splitlines()[:4]) + "\n"), "has 3 labels .* says 5: it"),
    "half a line": (lambda f: f.write_text(f.read_text()[:-30]), "line 6 is damaged"),
    "empty": (lambda f: f.write_text(""), "is not a label file"),
    "something else": (lambda f: f.write_bytes(b"\x80\x04\x95pickle"), "is not a label file"),
    "other JSON": (lambda f: f.write_text('{"a": 1}\n'), "does not begin with a header of format ubp2-labels"),
    "newer": (lambda f: changed(f, lambda h: h.update(version=2)), "has version 2 of the format and this ubp2 reads 1"),
    "header": (lambda f: changed(f, lambda h: h.pop("counts") and None), "the header lacks 'counts'"),
    "sizes": (lambda f: changed(f, lambda h: h.update(obs_dim="4")), "no whole numbers above 0"),
    "answer": (lambda f: changed(f, lambda r: r.update(label=0.0), 1), "label 1 does not match its checksum"),
    "reference": (lambda f: changed(f, lambda r: r.update(left_start=5), 2), "label 2 does not match its checksum"),
    "label": (lambda f: changed(f, lambda r: r.update(label=0.3), 1), "label 0.3 is not 0, 0.5 or 1"),
    "weight": (lambda f: changed(f, lambda r: r.update(weight=-1), 1), "weight -1.0 is below 0"),
    "type": (lambda f: changed(f, lambda r: r.update(decision=True), 1), "decision must be int, got 'True'"),
    "huge": (lambda f: changed(f, lambda r: r.update(session=2**70), 1), "session must be int, got '11805"),
    "text": (lambda f: changed(f, lambda r: r.update(annotator="\ud800"), 1), "annotator must be str"),
    "long text": (lambda f: changed(f, lambda r: r.update(annotator="a" * 5000), 1), "annotator must be str"),
    "missing": (lambda f: changed(f, lambda r: r.pop("seconds") and None, 1), "label 1 lacks seconds"),
    "base64": (lambda f: changed(f, lambda r: r.update(left_obs="?"), 3), "line 4: left_obs is missing or no base64"),
    "shape": (lambda f: changed(f, lambda r: r.update(left_obs="AAAA"), 1), "left_obs has 3 bytes, and \\[3, 4\\]"),
    "numbers": (
        lambda f: changed(f, lambda r: r.update(left_action=r["left_action"][:-8] + "AADAf///"[:8]), 1),
        "left_action has|no finite|checksum|base64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_refused_and_nothing_of_it_taken(
    made: Callable[..., Path], tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file, (damage, said) = tmp_path / "a.jsonl", DAMAGE[name]
    transfer.export(made(), file, anonymous=False, overwrite=False, intact=False)
    damage(file)
    other = made("other", first=100)
    before = as_bits(labels_of(other))
    with pytest.raises(UserError, match=said):
        transfer.import_files(other, [file])
    assert as_bits(labels_of(other)) == before
    assert Run.open(other).config.preferences.imported == 0
    assert ubp2("import", other, file) == 2 and "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("ending", ENDINGS[1:])
def test_a_compressed_file_that_was_cut_off(made: Callable[..., Path], tmp_path: Path, ending: str) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    file = tmp_path / f"a.{ending}"
    transfer.export(made(), file, anonymous=False, overwrite=False, intact=False)
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-4], b"", b"not compressed at all", whole[:50] + whole[51:]):
        file.write_bytes(content)
        with pytest.raises(UserError, match="copy it again|not a label file|damaged"):
            files.read(file)


def test_numbers_that_are_not_finite_are_refused(made: Callable[..., Path], tmp_path: Path) -> None:
    """They would spoil every gradient."""
    broken = query(0)
    broken.left_obs[1, 1] = np.nan
    label = next(each for each in labels_of(made()))
    _, header = (
        label,
        transfer.export(tmp_path / "run", tmp_path / "a.jsonl", anonymous=False, overwrite=False, intact=False),
    )
    one = dataclasses.replace(header.header, counts={"records": 1})
    files.write(tmp_path / "b.jsonl", one, [label._replace(query=broken)])
    with pytest.raises(UserError, match="label 1: left_obs has values that are no finite numbers"):
        files.read(tmp_path / "b.jsonl")


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


def sql(folder: Path, *statements: str) -> None:
    """Change a store behind its back."""
    with sqlite3.connect(folder / "labels.sqlite") as raw:
        for name in ("queries_stay", "answers_stay", "answers_last", "checks_stay"):
            raw.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            raw.execute(statement)
    raw.close()


VERIFY: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "bytes": (
        ("UPDATE queries SET left_obs = zeroblob(48) WHERE id = 2", "UPDATE queries SET left_start = 0 WHERE id = 6"),
        ["question 2 (session 0, position 1) does not match", "question 6 (session 1, position 0) does not match"],
    ),
    "gone": (("DELETE FROM answers WHERE id = 2",), ["1 rows of answers are gone, and none is ever deleted: 2"]),
    "orphans": (
        ("DELETE FROM queries WHERE id = 2",),
        ["1 answers to no question: 2", "1 checks of no question: 2", "1 rows of queries are gone"],
    ),
    "twice": (
        ("DROP INDEX current_query", "UPDATE queries SET position = 0, fingerprint = zeroblob(32) WHERE id = 2"),
        ["1 questions that are current twice: 2", "question 2 (session 0, position 0) does not"],
    ),
    "origin": (("UPDATE queries SET session = -1 WHERE id = 5",), ["1 imported questions without their origin: 5"]),
}  # fmt: skip


@pytest.mark.parametrize("name", VERIFY)
def test_verify_names_what_is_damaged(made: Callable[..., Path], name: str, capfd: pytest.CaptureFixture[str]) -> None:
    folder = made()
    assert ubp2("verify", folder) == 0
    assert (
        f"{folder}: whole; 6 questions, 6 current, 8 answers, 5 standing, 4 labels, 0 imported, 1 undone, 2 checks"
        in (capfd.readouterr().out)
    )
    statements, said = VERIFY[name]
    sql(folder, *statements)
    assert ubp2("verify", folder) == 1
    out = capfd.readouterr().out
    assert f"{folder}: DAMAGED" in out and "what to do: put a backup of labels.sqlite in its place" in out
    for sentence in said:
        assert sentence in out
    assert ubp2("verify", folder, "--json") == 1
    data = json.loads(capfd.readouterr().out)
    assert not data["whole"] and len(data["runs"][str(folder)]["problems"]) == len(said)


def test_verify_of_a_file_that_sqlite_cannot_read(made: Callable[..., Path]) -> None:
    folder = made()
    path = folder / "labels.sqlite"
    whole = path.read_bytes()
    for content, said in (
        (b"not a database at all" * 100, "cannot be read on: file is not a database"),
        (whole[: len(whole) // 2], "the file"),
        (whole[:4096] + bytes(4096) + whole[8192:], "the file"),
        (b"", "not a label store"),
    ):
        path.write_bytes(content)
        assert any(said in problem for problem in verify(path).problems), said
        assert path.read_bytes() == content, "nothing is changed"


def test_the_labels_that_are_whole_can_be_saved(made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made()
    whole = as_bits(labels_of(folder))
    sql(folder, "UPDATE queries SET left_obs = zeroblob(48) WHERE id = 1")
    with pytest.raises(UserError, match="does not match its checksum"):
        transfer.export(folder, tmp_path / "a.jsonl", anonymous=False, overwrite=False, intact=False)
    assert ubp2("export", folder, tmp_path / "a.jsonl", "--intact") == 0
    assert as_bits(files.read(tmp_path / "a.jsonl")[1]) == [whole[1], whole[3], whole[4]]


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
