"""The run folder: one writer, rows that survive a kill, and disk errors in a sentence."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ubp2.config.files import load_yaml
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.storage import runs
from ubp2.storage.database import Database
from ubp2.storage.runs import Metrics, Run, read_metrics

CONFIG = Config(env="metaworld/door-close", seed=3)


def failing(code: int):
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


def test_create_and_open(tmp_path: Path):
    with Run.create(tmp_path / "run", CONFIG, device="cpu") as run:
        assert run.config == CONFIG and run.folder == tmp_path / "run"
        info = run.info()
    assert {"ubp2", "python", "platform", "jax", "numpy", "mujoco", "metaworld"} <= info["versions"].keys()
    assert info["device"] == "cpu" and info["command"] and info["started"].endswith("+00:00")
    assert info["source"] is None or re.fullmatch("[0-9a-f]{40}", info["source"]["commit"])
    assert Run.open(tmp_path / "run").config == CONFIG
    with Run.open(tmp_path / "run", write=True, device="gpu") as run:
        assert [resumed["device"] for resumed in run.info()["resumed"]] == ["gpu"]
        assert run.info()["device"] == "cpu"


@pytest.mark.parametrize("said", [("--token", "s3cret x"), ("--token=s3cret x",)])
def test_no_secret_is_written_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: tuple[str, ...]):
    monkeypatch.setattr(sys, "argv", ["ubp2", "label", "a run", "--dataset", *said, "--port", "1"])
    with Run.create(tmp_path / "run", CONFIG) as run:
        command = run.info()["command"]
    assert command.replace("=", " ") == "ubp2 label 'a run' --dataset --token ... --port 1"


def test_default_folders_are_named_and_unique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with Run.create(None, CONFIG) as first, Run.create(None, CONFIG) as second:
        assert re.fullmatch(r"runs/metaworld-door-close/ubp2-s3-\d{8}-\d{6}", str(first.folder))
        assert first.folder != second.folder


@pytest.mark.parametrize("broken", ["runs", "runs/metaworld-door-close"])
@pytest.mark.parametrize("link", [True, False])
def test_what_is_in_the_place_of_the_folder_of_runs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, link: bool
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs.itertools, "count", lambda first: range(first, 5))  # it tried for ever
    Path(broken).parent.mkdir(exist_ok=True)
    Path(broken).symlink_to("nowhere") if link else Path(broken).touch()
    with pytest.raises(UserError, match=r"^cannot write runs/metaworld-door-close: .*; move away .* with --out"):
        Run.create(None, CONFIG)


def test_an_empty_folder_is_used_and_a_full_one_is_not(tmp_path: Path):
    Run.create(tmp_path, CONFIG).close()
    with pytest.raises(UserError, match=r"is not empty; choose another folder with --out, .* --resume"):
        Run.create(tmp_path, CONFIG)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file"):
        Run.create(tmp_path / "file", CONFIG)


def test_other_folders_are_not_runs(tmp_path: Path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="is not a run folder"):
            Run.open(folder)


def test_a_second_writer_is_refused_and_readers_are_not(tmp_path: Path):
    run = Run.create(tmp_path / "run", CONFIG)
    with pytest.raises(UserError, match=f"is being written by process {os.getpid()} on "):
        Run.open(run.folder, write=True)
    assert Run.open(run.folder).config == CONFIG
    run.close()
    run.close()
    Run.open(tmp_path / "run", write=True).close()


def test_a_killed_writer_leaves_no_lock(tmp_path: Path):
    script = (
        "import sys, time; from pathlib import Path; from ubp2 import Config; from ubp2.storage.runs import Run\n"
        "run = Run.create(Path(sys.argv[1]), Config()); print('ready', flush=True); time.sleep(60)"
    )
    folder = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        with pytest.raises(UserError, match=f"process {child.pid}"):
            Run.open(folder, write=True)
        child.kill()
    Run.open(folder, write=True).close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_fails_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int):
    with monkeypatch.context() as patch:
        patch.setattr(runs.os, "fsync", failing(code))
        with pytest.raises(UserError, match=f"cannot write {tmp_path}/run: .*--out"):
            Run.create(tmp_path / "run", CONFIG)
    assert list((tmp_path / "run").iterdir()) == []
    Run.create(tmp_path / "run", CONFIG).close()  # the same command works once the disk does
    monkeypatch.setattr(Path, "mkdir", failing(code))
    with pytest.raises(UserError, match="cannot write"):
        Run.create(None, CONFIG)


def test_a_disk_error_of_a_seed_names_the_folder_of_all_seeds(tmp_path: Path):
    """Whoever went on with that seed alone could never go on with all of them again."""
    folder, member = tmp_path / "two seeds", tmp_path / "two seeds" / "s1"
    Run.create(member, CONFIG).close()
    (member / "labels.sqlite").mkdir()
    for whole in (False, True):
        if whole:
            (folder / "population.json").write_text('{"seeds": [0, 1]}')
        with pytest.raises(UserError) as error:
            Database(member / "labels.sqlite", 1, [])
        with pytest.raises(UserError) as again:
            Run.create(member, CONFIG)
        for told in (error, again):
            assert f"ubp2 train --resume '{folder if whole else member}'" in str(told.value)


def test_rows_are_written_and_read(tmp_path: Path):
    with Metrics(tmp_path) as metrics:
        metrics.write("train", 10, {"loss": 1 / 3, "time/update": 2})
        metrics.write("eval", 20, {"return": math.nan, "best": -math.inf})
        metrics.write("eval", 30, {"return": math.nan})
        with pytest.raises(ValueError, match="cannot be called"):
            metrics.write("train", 1, {"kind": 1.0})
        assert len(read_metrics(tmp_path)) == 3  # while the writer is open
    assert read_metrics(tmp_path) == [
        {"kind": "train", "decision": 10, "loss": 1 / 3, "time/update": 2.0},
        {"kind": "eval", "decision": 20, "return": None, "best": None},
        {"kind": "eval", "decision": 30, "return": None},
    ]
    assert read_metrics(tmp_path / "nowhere") == []


def test_truncate_goes_back_to_the_checkpoint(tmp_path: Path):
    with Metrics(tmp_path, tensorboard=False) as metrics:
        metrics.write("train", 1, {"a": 1.0})
        position = metrics.position()
        metrics.write("train", 2, {"a": 2.0})
    with Metrics(tmp_path, tensorboard=False) as metrics:
        metrics.truncate(position)
        assert metrics.position() == position
        metrics.write("train", 2, {"a": 3.0})
    assert [row["a"] for row in read_metrics(tmp_path)] == [1.0, 3.0]
    with Metrics(tmp_path, tensorboard=False) as metrics:
        metrics.truncate(0)
    assert read_metrics(tmp_path) == []


def test_a_half_written_line_is_left_out_and_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"kind": "train", "decision": 1}\n{"kind": "tra')
    assert [row["decision"] for row in read_metrics(tmp_path)] == [1]
    with Metrics(tmp_path, tensorboard=False) as metrics:
        metrics.write("train", 2, {})
        assert [row["decision"] for row in read_metrics(tmp_path)] == [1, 2]
        metrics.truncate(10_000)
        assert "lost" in caplog.text
        metrics.truncate(metrics.position() - 1)  # inside the last line
    assert [row["decision"] for row in read_metrics(tmp_path)] == [1]


def test_a_damaged_line_is_not_passed_over(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"kind": "train"\n{"kind": "train", "decision": 1}\n')
    with pytest.raises(UserError, match="damaged line"):
        read_metrics(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_metrics(tmp_path: Path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    metrics = Metrics(tmp_path, tensorboard=False)
    with pytest.raises(UserError, match=r"metrics.jsonl: no space left on device; nothing .* is lost: free .*--resume"):
        metrics.write("train", 1, {"a": 1.0})


def test_a_row_cut_short_by_a_full_disk_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    metrics = Metrics(tmp_path, tensorboard=False)
    metrics.write("train", 1, {"a": 1.0})
    write, calls = os.write, iter(range(2))

    def half(file: int, data: bytes) -> int:
        if next(calls) == 0:
            return write(file, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(runs.os, "write", half)
        with pytest.raises(UserError, match="no space left"):
            metrics.write("train", 2, {"a": 1.0})
    metrics.write("train", 3, {"a": 1.0})
    assert [row["decision"] for row in read_metrics(tmp_path)] == [1, 3]


def events(folder: Path) -> list[Any]:
    """Read the event files back: records of length, checksum, data, checksum."""
    from tensorboardX.proto import event_pb2

    found = []
    for path in sorted((folder / "tensorboard").iterdir(), key=lambda path: path.stat().st_mtime_ns):
        content = path.read_bytes()
        while content:
            size = int.from_bytes(content[:8], "little")
            found.append(event_pb2.Event.FromString(content[12 : 12 + size]))  # type: ignore[attr-defined]
            content = content[16 + size :]
    return found


def test_tensorboard_has_the_finite_values(tmp_path: Path):
    with Metrics(tmp_path) as metrics:
        metrics.write("train", 5, {"loss": 0.5, "bad": math.nan})
    _, event = events(tmp_path)
    assert event.step == 5 and [(v.tag, v.simple_value) for v in event.summary.value] == [("train/loss", 0.5)]


def test_tensorboard_forgets_what_a_resumed_run_makes_again(tmp_path: Path):
    row = json.dumps({"kind": "train", "decision": 7}).encode() + b"\n"
    (tmp_path / "metrics.jsonl").write_bytes(row * 2)
    with Metrics(tmp_path) as metrics:
        metrics.truncate(len(row))
        metrics.write("train", 8, {"loss": 0.5})
    _, purge, event = events(tmp_path)
    assert purge.step == 8 and purge.HasField("session_log") and event.step == 8


def test_a_full_disk_under_tensorboard_reaches_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Metrics(tmp_path) as metrics:
        metrics.write("train", 1, {"loss": 0.5})
        assert metrics._events is not None
        with monkeypatch.context() as patch:
            patch.setattr(metrics._events._writer, "flush", failing(errno.ENOSPC))
            with pytest.raises(UserError, match="tensorboard: no space left"):
                metrics.position()


def test_importing_it_loads_neither_jax_nor_tensorboard():
    code = (
        "import sys, ubp2.storage.archive, ubp2.storage.runs, ubp2.preference.store, ubp2.preference.teachers\n"
        "import ubp2.training.checkpoint\n"
        "sys.exit(bool({'jax', 'tensorboardX', 'yaml'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_creation_that_was_killed_can_be_repeated(tmp_path: Path) -> None:
    """What stands before config.yaml is written is no run yet; anything more is refused."""
    Run.create(tmp_path / "run", Config()).close()
    (tmp_path / "run" / "config.yaml").unlink()
    Run.create(tmp_path / "run", Config()).close()
    (tmp_path / "run" / "config.yaml").unlink()
    (tmp_path / "run" / "checkpoints" / "000000100").mkdir()
    with pytest.raises(UserError, match="not empty"):
        Run.create(tmp_path / "run", Config())


def test_a_run_with_a_strategy_of_ones_own_can_be_looked_at(tmp_path: Path) -> None:
    """Another program had registered its name; what is wrong in a file that somebody wrote is still refused."""
    Run.create(tmp_path / "run", Config(), device="cpu").close()
    file = tmp_path / "run" / "config.yaml"
    own = file.read_text(encoding="utf-8").replace("strategy: uniform", "strategy: mine")
    file.write_text(own.replace("strategy: optimistic", "strategy: mine"), encoding="utf-8")
    assert Run.open(tmp_path / "run").config.preferences.strategy == "mine"
    with pytest.raises(UserError, match="preferences.strategy must be one of"):
        load_yaml(file)
