"""Label files and stores that were cut off or changed: refused, and said what is lost."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.labelling.stored import ENDINGS, as_bits, changed, labels_of, query, ubp2
from ubp2.errors import UserError
from ubp2.labelling import files, transfer
from ubp2.preference import verification
from ubp2.preference.verification import verify
from ubp2.storage.runs import Run

DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut off": (lambda f: f.write_text("\n".join(f.read_text().splitlines()[:4]) + "\n"), "has 3 labels .* says 5: it"),
    "half a line": (lambda f: f.write_text(f.read_text()[:-30]), "line 6 is damaged"),
    "empty": (lambda f: f.write_text(""), "is not a label file"),
    "something else": (lambda f: f.write_bytes(b"\x80\x04\x95pickle"), "is not a label file"),
    "other JSON": (lambda f: f.write_text('{"a": 1}\n'), "does not begin with a header of format ubp2-labels"),
    "newer": (lambda f: changed(f, lambda h: h.update(version=2)), "has version 2 of the format and this ubp2 reads 1"),
    "header": (lambda f: changed(f, lambda h: h.pop("counts") and None), "the header lacks 'counts'"),
    "sizes": (lambda f: changed(f, lambda h: h.update(obs_dim="4")), "no whole numbers above 0"),
    "environment": (lambda f: changed(f, lambda h: h.update(env=7, spec=5)), "env, spec of the header is not what was"),
    "bounds": (lambda f: changed(f, lambda h: h.update(spec={"action_low": 5})), "bounds of actions that are no num"),
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


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(UserError, match="is a folder; name a label file"):
        files.read(tmp_path / "folder.jsonl")
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError(13, "Permission denied")))  # root may read all
    with pytest.raises(UserError, match="a.jsonl: permission denied; make it readable"):
        files.read(tmp_path / "a.jsonl")


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


def sql(folder: Path, *statements: str) -> None:
    """Change a store behind its back."""
    with sqlite3.connect(folder / "labels.sqlite") as raw:
        for name in ("queries_stay", "queries_last", "answers_stay", "answers_last", "checks_stay"):
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


def test_a_store_that_is_locked_or_cannot_be_opened_is_not_called_damaged(
    made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = made()
    monkeypatch.setattr(verification, "BUSY_SECONDS", 0.01)
    with closing(sqlite3.connect(folder / "labels.sqlite")) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert ubp2("verify", folder) == 2
        assert "another process kept it locked" in capfd.readouterr().err
    monkeypatch.setattr(verification.sqlite3, "connect", Mock(side_effect=_cannot_open()))  # root may open any file
    assert ubp2("verify", folder) == 2
    assert "labels.sqlite: it cannot be opened; " in capfd.readouterr().err


def _cannot_open() -> sqlite3.OperationalError:
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect("/nowhere/at/all.sqlite")
    return caught.value


def test_the_labels_that_are_whole_can_be_saved(made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made()
    whole = as_bits(labels_of(folder))
    sql(folder, "UPDATE queries SET left_obs = zeroblob(48) WHERE id = 1")
    with pytest.raises(UserError, match="does not match its checksum"):
        transfer.export(folder, tmp_path / "a.jsonl", anonymous=False, overwrite=False, intact=False)
    assert ubp2("export", folder, tmp_path / "a.jsonl", "--intact") == 0
    assert as_bits(files.read(tmp_path / "a.jsonl")[1]) == [whole[1], whole[3], whole[4]]
