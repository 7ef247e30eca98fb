"""`ubp2 doctor` on this machine, and on machines that lack something: each loss is told, with what to do."""

from __future__ import annotations

import math
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.training.helpers import json_of, ubp2
from ubp2.doctor import answer, machine, packages, trial
from ubp2.doctor.finding import Finding
from ubp2.doctor.options import Doctor
from ubp2.errors import UserError

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have one way to draw")


def test_this_machine(tmp_path: Path) -> None:
    """What runs the tests can train: every check that a run needs is fine, and the JSON holds all of them."""
    result = ubp2("doctor", "--json", "--out", tmp_path / "not yet" / "there")
    assert result.returncode == 0, result.stdout
    findings = {line["check"]: line for line in json_of(result)["findings"]}
    for needed in ("python", "jax", "environment worker", "disk of runs"):
        assert findings[needed]["state"] == "ok", findings[needed]
    if (chosen := os.environ.get("MUJOCO_GL", "disable")) != "disable":  # by conftest; only on Linux it has a choice
        drawn = findings[f"rendering with {chosen}"]
        assert drawn["state"] == "ok", drawn
    assert str(tmp_path) in findings["disk of runs"]["text"]
    assert {"packages", "ffmpeg", "memory", "cores", "shared memory", "port"} <= set(findings)
    assert all(line["advice"] for line in findings.values() if line["state"] in ("warning", "problem"))


def test_a_check_that_hangs_is_ended_and_told() -> None:
    with pytest.raises(trial.Failed, match="no answer within 0.05 s"):
        trial.attempt("devices", 0.05)
    (finding,) = answer.devices(0.05)
    assert finding.state == "problem" and "no answer" in finding.text
    assert "--no-deps jax==" in finding.advice  # ubp2 itself may be on no index


def test_nobody_waits_for_a_trial_that_was_ended() -> None:
    """As Ctrl-C does, because a driver hangs."""
    with ThreadPoolExecutor(1) as pool:
        tried = pool.submit(trial.attempt, "devices", 300)
        while not trial._RUNNING and not tried.done():
            time.sleep(0.01)
        trial.end()
        with pytest.raises(trial.Failed, match="killed by signal 9"):
            tried.result(timeout=60)


def test_something_broken_gives_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "examine", lambda args: [machine.disk("runs", tmp_path, 1e30)])
    data, text, code = answer.answer(Doctor())
    assert code == 1 and data["problems"] == 1
    assert text.startswith("problem  disk of runs:") and "-> free some space" in text
    assert text.endswith("1 problem, 0 warnings")


def test_a_folder_that_one_may_not_look_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an ordinary user under somebody else's home; root may look everywhere."""
    monkeypatch.setattr(Path, "is_dir", Mock(side_effect=PermissionError(13, "Permission denied")))
    monkeypatch.setattr(machine.tempfile, "TemporaryFile", Mock(side_effect=PermissionError(13, "Permission denied")))
    finding = machine.disk("runs", Path("/home/somebody/runs"))
    assert finding.state == "problem" and finding.text.endswith(": Permission denied") and "--out" in finding.advice
    assert machine.cache().state == "warning"  # runs do without it


def test_a_home_of_nobody_and_a_patience_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) in machine.disk("runs", Path("~nosuch/runs"), 1).text  # a folder of that name, as for train
    for patience in (0, math.inf, math.nan):
        with pytest.raises(UserError, match="--patience must lie above 0 and be at most 86400 seconds"):
            answer.answer(Doctor(patience=patience))


def test_a_gpu_that_jax_does_not_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    *_, gpu = answer.devices(90)
    assert (gpu.check, gpu.state) == ("gpu", "warning")
    assert "the driver sees NVIDIA H200, jax does not" in gpu.text
    assert "unset JAX_PLATFORMS" in gpu.advice and "pip install 'ubp2[cuda]'" in gpu.advice


@linux
def test_rendering_that_was_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "disable")
    last = answer.rendering(90)[-1]
    assert last.state == "warning" and "MUJOCO_GL is disable" in last.text and "MUJOCO_GL=" in last.advice


@linux
def test_no_way_to_draw() -> None:
    """Both trials end at once, as with neither library there."""
    found = answer.rendering(0.01)
    assert [finding.state for finding in found] == ["warning", "warning"]
    assert "apt-get install libosmesa6" in found[0].advice and "apt-get install libegl1" in found[1].advice


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mujoco==3.2.7", "metaworld needs mujoco==3.2.7, and 3.3.0 is installed"),
        ("no-such-package>=2", "metaworld needs no-such-package>=2, and none is installed"),
        ("mujoco==3.3.0", None),
        ("no-such-package; extra == 'dev'", None),
        ("no-such-package; python_version < '3'", None),
    ],
)
def test_versions_that_do_not_fit(line: str, expected: str | None) -> None:
    found = list(packages.conflicts({"metaworld": [line]}))
    assert [finding.text for finding in found] == ([] if expected is None else [expected])
    assert all(finding.advice.startswith("pip install '") for finding in found)


def test_extras_are_known_by_what_they_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    """`jax[cuda12]` is not there because jax is."""
    monkeypatch.setattr(packages, "_version", {"jax": "0.10.2", "ray": "2.60.0"}.get)
    wanted = {"ubp2": ["jax[gpu]>=0.1; extra == 'cuda'", "ray<2; extra == 'ray'"], "jax": ["plugin; extra == 'gpu'"]}
    monkeypatch.setattr(packages, "_requires", wanted.get)
    lines = list(map(packages.Requirement, wanted["ubp2"]))
    cuda, ray = packages._extra("cuda", lines), packages._extra("ray", lines)
    assert cuda == Finding(
        "extra cuda",
        "note",
        "plugin not installed",
        "for training on an NVIDIA GPU: pip install 'ubp2[cuda]'",
    )
    assert ray.state == "warning" and "ray 2.60.0 is not <2" in ray.text


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        finding = machine.port(number)
    assert finding.state == "note" and str(number) in finding.text and "next free" in finding.advice


def test_little_shared_memory(tmp_path: Path) -> None:
    assert machine.shared_memory(tmp_path / "none").state == "note"
    assert machine.shared_memory(tmp_path).state in ("ok", "warning")


def test_the_limit_of_a_container(tmp_path: Path) -> None:
    """Cached files count as free; no limit is no answer."""
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 600\n")
    assert machine._free_in_container(tmp_path) == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert machine._free_in_container(tmp_path) is None
