"""Checkpoints: whole or absent, verified, and never the last one lost."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.storage.killing import killed, run_alone
from ubp2.errors import UserError
from ubp2.training import checkpoint
from ubp2.training.checkpoint import load_latest, save


def arrays(decision: int, size: int = 50) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(decision)
    return {
        ".model.layers[0].weight": rng.normal(size=(size, 3)).astype(np.float32),
        "['file']": np.array(decision),  # savez could not name it so
        "file": rng.random(2) < 0.5,
        "empty": np.zeros((0, 4), np.int32),
        "fortran": np.asfortranarray(rng.normal(size=(3, 2))),
    }


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return list(a) == list(b) and all(a[k].dtype == b[k].dtype and np.array_equal(a[k], b[k]) for k in a)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints"


def test_round_trip_and_rotation(folder: Path):
    assert load_latest(folder) is None
    for decision in (100, 200, 300, 400):
        path = save(folder, decision, arrays(decision), {"episodes": decision // 100, "pair": (1, 2)}, keep=3)
        assert path == folder / f"{decision:09d}"
    assert names(folder) == ["000000200", "000000300", "000000400"]
    found = load_latest(folder)
    assert found is not None and same(found.arrays, arrays(400))
    assert (found.decision, found.meta, found.path) == (400, {"episodes": 4, "pair": [1, 2]}, folder / "000000400")
    save(folder, 500, arrays(500), {}, keep=0)
    assert names(folder) == ["000000400", "000000500"]  # never fewer than two


def test_numpy_reads_the_arrays_without_us(folder: Path):
    path = save(folder, 1, arrays(1), {}, keep=2)
    with np.load(path / "state.npz", allow_pickle=False) as state:
        assert same(dict(state), arrays(1))


def test_pickle_and_types_without_a_name_are_refused(folder: Path):
    import ml_dtypes  # what jax calls bfloat16

    for bad in (np.array([object()]), np.zeros(2, ml_dtypes.bfloat16)):
        with pytest.raises((ValueError, TypeError), match=r"allow_pickle|cannot name"):
            save(folder, 1, {"bad": bad}, {}, keep=2)
    assert names(folder) == []


def test_the_same_decision_twice(folder: Path):
    save(folder, 100, arrays(1), {"n": 1}, keep=2)
    save(folder, 100, arrays(2), {"n": 2}, keep=2)
    assert names(folder) == ["000000100"]
    found = load_latest(folder)
    assert found is not None and found.meta == {"n": 2} and same(found.arrays, arrays(2))


def test_a_kill_between_the_two_renames_of_a_replacement(folder: Path):
    save(folder, 100, arrays(1), {}, keep=2)
    (folder / "000000100").rename(folder / "000000100.replaced")
    found = load_latest(folder)
    assert found is not None and found.decision == 100 and same(found.arrays, arrays(1))
    save(folder, 100, arrays(2), {}, keep=2)
    assert names(folder) == ["000000100"]


def test_leftovers_of_a_kill_are_ignored_and_removed(folder: Path):
    save(folder, 100, arrays(1), {}, keep=2)
    (folder / ".tmp-000000200").mkdir()
    (folder / ".tmp-000000200" / "state.npz").write_bytes(b"half")
    found = load_latest(folder)
    assert found is not None and found.decision == 100
    save(folder, 300, arrays(3), {}, keep=2)
    assert names(folder) == ["000000100", "000000300"]


def test_a_leftover_that_cannot_be_deleted_is_in_nobodys_way(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """NFS keeps a file that somebody still reads under another name, and with it the folder."""

    def busy(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    save(folder, 100, arrays(1), {}, keep=2)
    (folder / ".tmp-000000200").mkdir()
    (folder / ".tmp-000000200" / ".nfs01").touch()
    monkeypatch.setattr(checkpoint.shutil, "rmtree", busy)
    for decision in (200, 300):
        save(folder, decision, arrays(decision), {}, keep=2)
    found = load_latest(folder)
    assert found is not None and found.decision == 300
    assert checkpoint.drop_after(folder, 200)
    found = load_latest(folder)
    assert found is not None and found.decision == 200 and same(found.arrays, arrays(200))


@pytest.mark.parametrize("file", ["state.npz", "manifest.json"])
def test_every_flipped_bit_is_noticed(folder: Path, file: str):
    save(folder, 100, arrays(1, size=5), {"n": 1}, keep=2)
    path = save(folder, 200, arrays(2, size=5), {"n": 2}, keep=2) / file
    good = path.read_bytes()
    bits = random.Random(0).sample(range(8 * len(good)), 200)
    for bit in bits:
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(bad)
        try:
            found = checkpoint._read(path.parent)
        except checkpoint._Damage:
            continue
        # white space between the tokens of the manifest may change; nothing that is read does
        assert file == "manifest.json" and found.meta == {"n": 2} and same(found.arrays, arrays(2, size=5))


@pytest.mark.parametrize("damage", ["flip", "truncate", "no state", "no manifest", "empty manifest", "a file"])
def test_a_damaged_one_is_set_aside_and_the_one_before_is_used(
    folder: Path, damage: str, caplog: pytest.LogCaptureFixture
):
    save(folder, 100, arrays(1), {"n": 1}, keep=2)
    path = save(folder, 200, arrays(2), {"n": 2}, keep=2)
    state, manifest = path / "state.npz", path / "manifest.json"
    content = state.read_bytes()
    if damage == "flip":
        state.write_bytes(content[:300] + bytes([content[300] ^ 4]) + content[301:])
    elif damage == "truncate":
        state.write_bytes(content[:-1])
    elif damage == "no state":
        state.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "empty manifest":
        manifest.write_bytes(b"")
    else:
        path.rename(folder / "moved")
        path.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        found = load_latest(folder)
    assert found is not None and found.decision == 100 and found.meta == {"n": 1}
    assert "000000200 is damaged" in caplog.text
    assert (folder / "000000200.damaged").exists()
    save(folder, 200, arrays(2), {"n": 2}, keep=2)
    found = load_latest(folder)
    assert found is not None and found.decision == 200 and (folder / "000000200.damaged").exists()


def test_all_damaged_is_an_error_each_time(folder: Path):
    for decision in (100, 200):
        (save(folder, decision, arrays(1), {}, keep=2) / "state.npz").write_bytes(b"")
    for _ in range(2):  # the second time they already carry the other name: it must not look like a fresh run
        with pytest.raises(UserError, match=r"every checkpoint in .* is damaged"):
            load_latest(folder)


def test_damage_on_a_read_only_disk_still_falls_back(folder: Path, monkeypatch: pytest.MonkeyPatch):
    save(folder, 100, arrays(1), {}, keep=2)
    (save(folder, 200, arrays(2), {}, keep=2) / "state.npz").write_bytes(b"")

    def refuse(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)
    found = load_latest(folder)
    assert found is not None and found.decision == 100


def test_a_newer_format_names_both_versions(folder: Path):
    path = save(folder, 100, arrays(1), {}, keep=2) / "manifest.json"
    body = json.loads(path.read_text())
    del body["sha256"]
    body |= {"format": 2, "ubp2": "7.8.9"}
    path.write_text(json.dumps({"sha256": checkpoint._manifest_hash(body), **body}))
    with pytest.raises(UserError, match=rf"format 2, written by ubp2 7\.8\.9, and this is .* {checkpoint.__version__}"):
        load_latest(folder)
    assert names(folder) == ["000000100"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("where", ["write_array", "fsync", "rename"])
def test_a_failing_disk_leaves_the_old_ones(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, where: str):
    for decision in (100, 200):
        save(folder, decision, arrays(decision), {}, keep=2)

    def fail(*arguments: Any, **_: Any) -> None:
        if where == "write_array":
            arguments[0].write(b"half of it")
        raise OSError(code, os.strerror(code))

    owner = {"write_array": np.lib.format, "fsync": os, "rename": Path}[where]
    with monkeypatch.context() as patch:
        patch.setattr(owner, where, fail)
        with pytest.raises(UserError, match=r"000000300: .*nothing written so far is lost: .* --resume .*run"):
            save(folder, 300, arrays(300), {}, keep=2)
    assert names(folder) == ["000000100", "000000200"]
    found = load_latest(folder)
    assert found is not None and found.decision == 200
    save(folder, 300, arrays(300), {}, keep=2)


def test_nothing_acknowledged_is_lost_to_a_kill(tmp_path: Path):
    run_alone(__file__, tmp_path)


def test_pytrees_there_and_back():
    import equinox as eqx
    import jax

    tree = {
        "net": eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0)),
        "count": jax.numpy.int32(3),
        "host": np.arange(3.0),
        "number": 0.5,
        "nothing": None,
    }
    blank = {**tree, "net": eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(1)), "host": np.zeros(3), "number": 0.0}
    flat = checkpoint.flatten(tree)
    assert all(isinstance(array, np.ndarray) for array in flat.values())
    assert "['net'].layers[0].weight" in flat
    back = checkpoint.unflatten(blank, flat)
    assert eqx.tree_equal(back, tree)
    shapes = eqx.filter_eval_shape(lambda: tree["net"])
    assert eqx.tree_equal(checkpoint.unflatten(shapes, checkpoint.flatten(tree["net"])), tree["net"])


def test_a_tree_that_does_not_fit_is_told_with_the_first_difference():
    tree = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.int32)}
    flat = checkpoint.flatten(tree)
    cases = {
        r"it has no array \['c'\]": {**tree, "c": np.zeros(1)},
        r"its array \['b'\] has no place": {"a": tree["a"]},
        r"array \['a'\] has shape \(2, 3\) and the agent expects \(2, 4\)": {**tree, "a": np.zeros((2, 4), np.float32)},
        r"array \['b'\] has type int32 and the agent expects float32": {**tree, "b": np.zeros(2, np.float32)},
    }
    for message, like in cases.items():
        with pytest.raises(UserError, match=f"{message}.*configuration or the version"):
            checkpoint.unflatten(like, flat)


def _save_for_ever(folder: Path, decision: int, acknowledge: int) -> None:
    while True:
        decision += 1
        for _ in range(2):
            save(folder, decision, arrays(decision, size=20_000), {"n": decision}, keep=2)
            os.write(acknowledge, f"{decision}\n".encode())


def _kill_many(folder: Path, kills: int = 24) -> None:
    """Kill a saving child again and again, and load what it had acknowledged."""
    last = 0
    for _ in range(kills):
        acknowledged = killed(partial(_save_for_ever, folder, last))
        found = load_latest(folder)
        assert found is not None and found.decision - acknowledged[-1] in (0, 1)  # perhaps one in flight
        assert found.meta == {"n": found.decision} and same(found.arrays, arrays(found.decision, size=20_000))
        last = found.decision
    assert not list(folder.glob("*.damaged*"))


if __name__ == "__main__":
    _kill_many(Path(sys.argv[1]))
