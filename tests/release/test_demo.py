"""`make demo`: it goes on where it was stopped, is another seed when it is done, and needs no OpenGL for its scores."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.release.conftest import ROOT
from tests.training.helpers import environment, tiny
from tests.training.test_resume import stop_at
from tests.waiting import HEARS_CTRL_C
from ubp2.config.files import save_yaml
from ubp2.errors import UserError
from ubp2.storage.runs import Run
from ubp2.terminal import cli

STOPPED = 75


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "scripts" / "demo.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> ModuleType:
    """The script in an empty folder. Its commands run in this process, which has their programs already."""
    module = load()
    monkeypatch.chdir(tmp_path)
    save_yaml(tiny(), tmp_path / "tiny.yaml")

    def ubp2(*arguments: str, stdout: int | None = None) -> subprocess.CompletedProcess[str]:
        before = capfd.readouterr().out
        code = cli.main(list(arguments))
        told = capfd.readouterr()
        print(before if stdout else before + told.out, end="", flush=True)
        print(told.err, end="", file=sys.stderr, flush=True)
        return subprocess.CompletedProcess(arguments, code, told.out)

    monkeypatch.setattr(module, "ubp2", ubp2)
    return module


def small(demo: ModuleType) -> object:
    return demo.Demo("small", ("--config", "tiny.yaml"), "something else")


def test_a_demo_goes_on_where_it_was_stopped_and_the_next_is_another_seed(
    demo: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    assert stop_at(95, signal.SIGTERM, lambda: demo.main(small(demo))) == STOPPED
    assert not (Path("small") / demo.EVALUATION).exists()
    assert demo.main(small(demo)) == 0
    told = capfd.readouterr().out
    scores = json.loads((Path("small") / demo.EVALUATION).read_text())
    planner, policy = (f"{scores[name]['success_any']:.0%}" for name in ("planner", "policy"))
    assert (
        f"the planner succeeds in {planner}, and the policy, which is faster and catches up later, in {policy}." in told
    )
    assert told.endswith("Next: something else\n") and not Path("runs").exists()
    for name in ("curve.png", "clip.mp4", "clip.gif"):
        assert (Path("small") / name).stat().st_size > 100 and f"small/{name}" in told
    assert demo.main(small(demo)) == 0
    seeds = [Run.open(folder).config.seed for folder in (Path("small"), Path("runs/small-2"))]
    assert seeds == [0, 1] and (Path("runs/small-2") / demo.EVALUATION).exists()


def test_a_machine_that_cannot_draw_has_its_scores(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def no_rendering(*_: object) -> None:
        raise UserError("toy/reach cannot be rendered")

    monkeypatch.setattr("ubp2.envs.toy.Reach.render", no_rendering)
    assert demo.main(small(demo)) == 0
    told = capfd.readouterr()
    assert "In 20 new episodes" in told.out and "toy/reach cannot be rendered" in told.err
    assert "there is no clip" in told.out and "--controller planner --episodes 1 --video small/clip.mp4" in told.out
    assert (Path("small") / demo.EVALUATION).exists()


def test_a_folder_without_a_checkpoint_is_left_alone(demo: ModuleType) -> None:
    Path("small").mkdir()
    assert demo.main(small(demo)) == 0
    assert not any(Path("small").iterdir()) and (Path("runs/small-2") / demo.EVALUATION).exists()


def test_a_demo_that_does_not_exist() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "demo.py", "tyo"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == "no demo is called 'tyo'; there are: toy, metaworld\n"


@pytest.mark.slow
def test_the_demo_itself(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "scripts" / "demo.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert "Learned from comparisons alone" in done.stdout and (tmp_path / "demo" / "clip.gif").exists()


SLOW_TO_SAVE = """
import signal, sys, time
from pathlib import Path

try:
    print("training", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(2)  # a checkpoint takes its time
    Path("saved").touch()
    sys.exit(75)
"""


def test_ctrl_c_leaves_the_training_its_time(tmp_path: Path) -> None:
    """subprocess.run kills a command a quarter of a second after Ctrl-C: the checkpoint was promised and not there."""
    (tmp_path / "ubp2.py").write_text(SLOW_TO_SAVE)  # what `python -m ubp2` finds first
    run = f"import runpy; runpy.run_path({str(ROOT / 'scripts' / 'demo.py')!r}, run_name='__main__')"
    script = [sys.executable, "-c", HEARS_CTRL_C + run]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(script, cwd=tmp_path, start_new_session=True, **pipes) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "training\n":
            pass
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate()
    assert (tmp_path / "saved").exists()
    assert process.returncode == 130 and told.endswith("goes on from the last checkpoint\n")
