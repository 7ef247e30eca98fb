"""Sweeps as a user runs them here and on SLURM: looked at, stopped from elsewhere, resumed, preempted."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiments.sweeps import evaluations, ran, resumed, started, sweep, waited, write
from ubp2.terminal import cli


def checkpointed(out: Path) -> bool:
    return any(out.rglob("checkpoints/*/manifest.json"))


@pytest.mark.slow
def test_a_sweep_is_stopped_from_elsewhere_and_resumed_by_its_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, out = write(tmp_path), tmp_path / "out"
    with started(sweep(file, "--out", out)) as running:
        assert waited(lambda: checkpointed(out))
        assert cli.main(["sweep", "status", str(out), "--json"]) == 0
        data = json.loads(capfd.readouterr().out)
        assert [group["state"] for group in data["groups"]] == ["running", "waiting"]
        assert data["groups"][0]["seeds"] == [0]
        assert cli.main(["sweep", "stop", str(out)]) == 0
        assert f"stopped; ubp2 sweep resume {out} goes on" in capfd.readouterr().out
        text, errors = running.communicate(timeout=300)
    assert running.returncode == 75 and f"ubp2 sweep resume {out} goes on" in text, errors
    file.unlink()
    done = ran("resume", out, "--json")
    assert done.returncode == 0, done.stderr
    assert [group["state"] for group in json.loads(done.stdout)["groups"]] == ["finished", "finished"]
    assert resumed(out) == 1, "the first cell went on from its checkpoint"
    assert (out / "report" / "index.html").exists()
    assert cli.main(["sweep", "status", str(out)]) == 0
    assert "2 finished" in capfd.readouterr().out


def test_a_cell_that_fails_is_told_with_its_reason(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A folder stands where its log should be."""
    file, out = write(tmp_path, methods=["ubp2"], retries=0), tmp_path / "out"
    cell = out / "toy-reach" / "ubp2"
    cell.mkdir(parents=True)
    (cell / "seeds-0.log").mkdir()
    assert cli.main(["sweep", str(file), "--out", str(out)]) == 1
    assert "1 of 1 failed; ubp2 sweep resume" in capfd.readouterr().out
    assert cli.main(["sweep", "status", str(out)]) == 0
    told = capfd.readouterr().out
    assert "failed" in told and "cannot start or write" in told


def test_the_script_of_an_array_names_tasks_resources_and_signals(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, out = write(tmp_path, seeds=3, resources={"cpus": 4, "gpus": 0.5}, jobs=5), tmp_path / "out"
    assert cli.main(["sweep", str(file), "--on", "slurm", "--out", str(out), "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["submit"] == f"sbatch {data['script']}" and data["tasks"] == 6
    script = Path(data["script"]).read_text(encoding="utf-8")
    for line in ("--array=0,1,2,3,4,5%5", "--cpus-per-task=4", "--gpus=1", "--signal=B:USR1@120", "--requeue"):
        assert f"#SBATCH {line}\n" in script
    assert subprocess.run(["bash", "-n", data["script"]]).returncode == 0
    assert cli.main(["sweep", "cell", str(out), "--number", "6"]) == 2
    assert "--number must be one of 0 to 5" in capfd.readouterr().err
    assert cli.main(["sweep", "stop", str(out)]) == 0
    assert cli.main(["sweep", "cell", str(out), "--number", "0"]) == 0
    assert "stopped already" in capfd.readouterr().out, "a task that waited in the queue leaves when it starts"


def test_a_task_of_an_array_is_a_program_of_several_cells(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, out = write(tmp_path, seeds=2, together=8), tmp_path / "out"
    assert cli.main(["sweep", str(file), "--on", "slurm", "--out", str(out), "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["tasks"] == 1 and "--array=0\n" in Path(data["script"]).read_text(encoding="utf-8")
    assert list(json.loads((out / "programs" / "0.json").read_text(encoding="utf-8"))["groups"]) == [
        "../toy-reach/ubp2/seeds-0-1",
        "../toy-reach/mbp/seeds-0-1",
    ]
    (out / "stop").touch()
    assert cli.main(["sweep", "cell", str(out), "--number", "0"]) == 0
    assert "program 0: 4 runs of 2 cells: stopped already" in capfd.readouterr().out
    assert cli.main(["sweep", str(file), "--on", "slurm", "--out", str(out), "--minutes", "5"]) == 2
    assert "SLURM ends its tasks itself: leave out --minutes, and give sbatch a --time" in capfd.readouterr().err


def preempted(script: str, folder: Path, out: Path) -> str:
    """Run the first task of an array as SLURM does, send its signal after a checkpoint, and say what was requeued."""
    stand_in = folder / "scontrol"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(folder / "asked"))}\n', encoding="utf-8")
    stand_in.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    environment |= {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"}
    with started(["bash", script], env=environment, stdout=None, stderr=None) as task:
        assert waited(lambda: checkpointed(out))
        task.send_signal(signal.SIGUSR1)
        assert task.wait(timeout=300) == 75
    return (folder / "asked").read_text(encoding="utf-8")


def test_a_task_of_an_array_is_preempted_and_put_back(tmp_path: Path) -> None:
    """The script itself, with a stand-in for scontrol."""
    out = tmp_path / "out"
    written = ran(write(tmp_path, methods=["ubp2"], steps=100_000), "--on", "slurm", "--out", out, "--json")
    assert preempted(json.loads(written.stdout)["script"], tmp_path, out) == "requeue 7_0\n"


@pytest.mark.slow
def test_arrays_that_are_preempted_at_random_have_the_scores_of_those_that_are_not(tmp_path: Path) -> None:
    file, out, quiet = write(tmp_path), tmp_path / "out", tmp_path / "quiet"
    written = ran(file, "--on", "slurm", "--out", out, "--json")
    preempted(json.loads(written.stdout)["script"], tmp_path, out)
    done = ran("resume", out, "--fake-preempt", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"] == {"finished": 2}
    assert "and was put back" in done.stderr and resumed(out) > 0
    assert ran(file, "--out", quiet).returncode == 0
    assert evaluations(out) == evaluations(quiet)


TRAIN = ["--env", "toy/reach", "--preset", "cpu", "--quiet"]


def train(*words: str) -> list[str]:
    flat = [*TRAIN, "--steps", "100000", "--checkpoint.every", "50", "--training.warmup", "100", "--model.width", "16"]
    return [sys.executable, "-m", "ubp2", "train", *flat, *words]


def test_a_signal_of_a_scheduler_leaves_a_checkpoint_and_asks_to_be_run_again(tmp_path: Path) -> None:
    """SIGTERM; the task of an array above gets SIGUSR1."""
    run = tmp_path / "run"
    with started(train("--out", str(run))) as child:
        assert waited(lambda: checkpointed(run))
        child.terminate()
        text, _ = child.communicate(timeout=300)
    assert child.returncode == 75 and "stopped at decision" in text


def test_a_run_that_preempts_itself_can_be_resumed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = subprocess.run(train("--fake-preempt", "0", "--out", str(run)), capture_output=True, timeout=300)
    assert done.returncode == 75, "also in the first second, when there is nothing to save"
    bad = subprocess.run(train("--fake-preempt", "-1"), capture_output=True, text=True, timeout=60)
    assert bad.returncode == 2 and "--fake-preempt must not be negative, got -1" in bad.stderr
