"""Bad input, as a user meets it: one clear sentence, exit code 2, no traceback of ours, and nothing lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.envs import probes
from tests.training.helpers import assert_same_run, environment, episodes, json_of, labels, rows, saved, tiny, ubp2
from ubp2 import api
from ubp2.config.files import load_yaml, save_yaml, to_dict
from ubp2.envs.toy import Reach
from ubp2.errors import UserError
from ubp2.storage import runs
from ubp2.storage.archive import EpisodeArchive
from ubp2.terminal.cli import main
from ubp2.training import checkpoint

# A module of the user's own, for `gym/broken:<id>`.
BROKEN = """
import gymnasium
from tests.envs import probes
for name in ("NanObservation", "CrashingStep"):
    gymnasium.register(f"{name}-v0", lambda render_mode=None, name=name: getattr(probes, name)(), max_episode_steps=50)
"""


def sentence(result: subprocess.CompletedProcess[str]) -> str:
    """The one sentence on stderr of a command that was refused."""
    assert result.returncode == 2, (result.returncode, result.stderr)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("ubp2: ")
    return line.removeprefix("ubp2: ")


Here = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str]) -> Here:
    """`ubp2 ...` in this process, where the imports of a command, longer than most refusals, are over."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        code = main([str(word) for word in arguments])
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_yaml(tiny(), tmp_path / "tiny.yaml")
    return tmp_path / "tiny.yaml"


# In a process of its own: what a suite says as it is imported would come between the user and the sentence.
ALONE = {"--env metaworld/dor-close", "--env gym/CartPole-v1", "--steps 900"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--env toy/raech", "unknown toy task 'raech'. Did you mean reach?"),
        ("--env metawrld/hammer", "unknown environment suite 'metawrld'. Did you mean metaworld or"),
        ("--env metaworld/dor-close", "Did you mean door-close"),
        ("--env gym/Pendlum-v1", "unknown Gymnasium id 'Pendlum-v1'. Did you mean Pendulum-v1"),
        ("--env reach", "toy/reach"),
        ("--preset ppaer", "unknown preset 'ppaer'. Did you mean paper?"),
        ("--preset paper --env metaworld/reach", "use --preset cpu"),
        ("--steps 3000 --preferences.recent 2", "preferences.recent is a share and must lie in [0, 1], got 2.0"),
        ("--steps 3000 --teacher noisy --teacher.beta -1", "teacher.beta must be above 0, got -1.0"),
        ("--steps 3000 --preferences.crop 11", "must lie between 1 and preferences.segment_length (10), got 11"),
        ("--steps 3000 --preferences.segment-length 51", "lower --preferences.segment-length"),
        ("--steps 900", "raise --steps or lower training.warmup"),
        ("--steps 0", "steps must be at least 1, got 0"),
        ("--env gym/CartPole-v1", "action"),
    ],
)
def test_a_wrong_name_or_number(arguments: str, expected: str, here: Here, tmp_path: Path) -> None:
    command = ubp2 if arguments in ALONE else here
    result = command("train", *arguments.split(), "--out", tmp_path / "run")
    assert expected in sentence(result)
    assert not (tmp_path / "run").exists(), "a run that cannot begin leaves no folder"


def test_an_unknown_key_of_a_file_and_json_errors(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("planner: {horizont: 3}\n")
    result = ubp2("train", "--config", tmp_path / "mine.yaml", "--out", tmp_path / "run", "--json")
    assert result.returncode == 2
    error = json_of(result)["error"]
    assert "unknown setting 'planner.horizont'. Did you mean horizon" in error and "mine.yaml" in error
    assert result.stderr == f"ubp2: {error}\n"


def test_a_flag_that_does_not_exist(here: Here, tmp_path: Path) -> None:
    text = sentence(here("train", "--planner.horizont", "3", "--out", tmp_path / "run"))
    assert text.startswith("unknown option --planner.horizont. Did you mean --planner.horizon?")


# One that is broken from the start, and one in the middle of a run; tests/envs/test_adapter.py has all the others.
BROKEN_ENVIRONMENTS = {
    "DiscreteAction": "continuous",
    "NanReward": "the reward must be one finite number, got nan at decision 2",
}


@pytest.mark.parametrize("name", BROKEN_ENVIRONMENTS)
@pytest.mark.parametrize("in_process", [True, False])
def test_a_broken_environment(name: str, in_process: bool, tmp_path: Path) -> None:
    config = tiny(environment={"in_process": in_process})
    with pytest.raises(UserError) as error:
        api.train(config, env=getattr(probes, name), out=tmp_path / "run", progress=False)
    assert BROKEN_ENVIRONMENTS[name] in str(error.value)
    assert "\n" not in str(error.value)


def test_a_broken_environment_on_the_command_line(file: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    line = ["train", "--config", file, "--env", "gym/broken:NanObservation-v0", "--out", tmp_path / "run"]
    told = sentence(_with_path([*line, "--environment.no-in-process", "--quiet"], tmp_path))
    assert "the observation is nan at index 0 of 1 at decision 2" in told


def test_an_environment_that_crashes(file: Path, tmp_path: Path) -> None:
    """The sentence first; below it, only the environment's own traceback, for whoever wrote it."""
    (tmp_path / "broken.py").write_text(BROKEN)
    line = ["train", "--config", file, "--env", "gym/broken:CrashingStep-v0", "--out", tmp_path / "run"]
    result = _with_path([*line, "--environment.no-in-process", "--quiet"], tmp_path)
    assert result.returncode == 2 and result.stdout == ""
    first, *rest = result.stderr.splitlines()
    assert first == "ubp2: the environment raised ZeroDivisionError: the physics engine exploded"
    assert any("probes.py" in line for line in rest)
    assert not any("cli.py" in line or "loop.py" in line for line in rest)


def _with_path(arguments: list[Any], folder: Path) -> subprocess.CompletedProcess[str]:
    variables = environment()
    variables["PYTHONPATH"] += f"{os.pathsep}{folder}"
    line = [sys.executable, "-m", "ubp2", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, env=variables, timeout=300)


class Moody(Reach):
    """Reach that fails at one step, until the file beside it says that it has been repaired."""

    broken: Callable[[np.ndarray], Any]
    repaired: Path
    count = 0

    def step(self, action: np.ndarray) -> Any:
        result = super().step(action)
        Moody.count += 1
        if Moody.count < 190 or self.repaired.exists():
            return result
        return self.broken(result[0])


def _raise(obs: np.ndarray) -> Any:
    raise ZeroDivisionError("the physics engine exploded")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda obs: (np.full_like(obs, np.nan), 0.0, False, False, {}), "the observation is nan at index 0 of 4"),
        (lambda obs: (obs, np.inf, False, False, {}), "the reward must be one finite number, got inf"),
        (lambda obs: (obs[:3], 0.0, False, False, {}), "announces shape (4,), got"),
        (_raise, "the environment raised ZeroDivisionError: the physics engine exploded"),
    ],
    ids=["NaN", "infinite reward", "shape", "crash"],
)
def test_a_failure_in_the_middle_loses_nothing(
    whole: Path, broken: Callable[[np.ndarray], Any], message: str, tmp_path: Path
) -> None:
    """Repaired, the run goes on to the end of a run that never failed."""

    def make() -> gymnasium.Env:
        env = Moody()
        env.broken, env.repaired = broken, tmp_path / "repaired"
        return env

    Moody.count = 0
    folder = tmp_path / "run"
    with pytest.raises(UserError if broken is not _raise else (UserError, ZeroDivisionError)) as error:
        api.train(tiny(), env=make, out=folder, progress=False)
    assert message.removeprefix("the environment raised ZeroDivisionError: ") in str(error.value)
    assert saved(folder).decision == 140 and len(labels(folder)) > 20
    (tmp_path / "repaired").touch()
    assert api.resume(folder, env=make, progress=False).finished
    assert len(episodes(folder)) == 15 and len(labels(folder)) == 28
    assert_same_run(folder, whole, spec=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    api.train(tiny(), out=folder, progress=False)
    return folder


def test_a_changed_config_names_its_fields(whole: Path, here: Here) -> None:
    before = (whole / "config.yaml").read_text()
    result = here("train", "--resume", whole, "--model.width", "32", "--seed", "5")
    text = sentence(result)
    assert "seed: 0 -> 5" in text and "model.width: 16 -> 32" in text and "depth" not in text
    assert "longer but not shorter: --steps 299 < 300" in sentence(here("train", "--resume", whole, "--steps", "299"))
    assert (whole / "config.yaml").read_text() == before


def test_a_folder_that_exists(whole: Path, file: Path, here: Here, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    text = sentence(here("train", "--config", file, "--out", whole))
    assert "exists and is not empty" in text and f"ubp2 train --resume {whole}" in text
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before
    (tmp_path / "a file").write_text("mine")
    assert "exists and is a file" in sentence(here("train", "--config", file, "--out", tmp_path / "a file"))
    assert (tmp_path / "a file").read_text() == "mine"


def test_folders_that_are_no_runs(whole: Path, here: Here, tmp_path: Path) -> None:
    for line in (["train", "--resume"], ["eval"], ["info"]):
        assert "is not a run folder" in sentence(here(*line, tmp_path))
    begun = tmp_path / "begun"
    shutil.copytree(whole, begun)
    shutil.rmtree(begun / "checkpoints")
    (begun / "checkpoints").mkdir()
    assert "has no checkpoint yet" in sentence(here("eval", begun))


def test_one_writer_at_a_time(whole: Path) -> None:
    with runs.Run.open(whole, write=True):
        text = sentence(ubp2("train", "--resume", whole, "--steps", "400"))
    assert f"is being written by process {os.getpid()}" in text


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, in memory, of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_up(path: Path) -> None:
    """Write until the disk is full."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space left"):
        while True:
            os.write(descriptor, bytes(4096))
    os.close(descriptor)


def test_a_disk_that_fills_up(whole: Path, small_disk: Path) -> None:
    """Whatever is written next fails, whole or in part; with space again, the run goes on to the same end."""
    folder, filler = small_disk / "run", small_disk / "filler"
    append, count = EpisodeArchive.append, 0

    def fill(self: EpisodeArchive, episode: Any) -> None:
        nonlocal count
        count += 1
        if count == 9:
            fill_up(filler)
        append(self, episode)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(UserError) as error:
        patch.setattr(EpisodeArchive, "append", fill)
        api.train(tiny(), out=folder, progress=False)
    text = str(error.value)
    assert "full" in text or "no space left" in text
    assert f"nothing written so far is lost: free some space, then go on with: ubp2 train --resume {folder}" in text
    assert saved(folder).decision == 140
    filler.unlink()
    assert api.resume(folder, progress=False).finished
    assert_same_run(folder, whole)


def test_a_disk_without_room_for_a_checkpoint(whole: Path, small_disk: Path) -> None:
    folder, filler = small_disk / "run", small_disk / "filler"
    write, count = checkpoint._write, 0

    def fill(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            free = shutil.disk_usage(small_disk).free
            filler.write_bytes(bytes(free - 16_384))  # room for a part of it
        write(*arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(UserError) as error:
        patch.setattr(checkpoint, "_write", fill)
        api.train(tiny(), out=folder, progress=False)
    assert "no space left on device" in str(error.value) and f"ubp2 train --resume {folder}" in str(error.value)
    assert saved(folder).decision == 140
    filler.unlink()
    assert api.resume(folder, progress=False).finished
    assert_same_run(folder, whole)


def test_a_full_disk_on_the_command_line(small_disk: Path, file: Path, here: Here) -> None:
    fill_up(small_disk / "filler")
    text = sentence(ubp2("train", "--config", file, "--out", small_disk / "run", "--quiet"))
    assert "no space left on device" in text and "--out" in text
    (small_disk / "filler").unlink()
    assert here("train", "--config", file, "--out", small_disk / "run", "--quiet").returncode == 0


def test_a_read_only_disk(whole: Path, small_disk: Path, file: Path, here: Here) -> None:
    shutil.copytree(whole, small_disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    text = sentence(here("train", "--config", file, "--out", small_disk / "new"))
    assert "read-only" in text and "choose another folder with --out" in text
    text = sentence(here("train", "--resume", small_disk / "run", "--steps", "400"))
    assert "read-only" in text
    result = here("eval", small_disk / "run", "--episodes", "1", "--json")  # reading needs no writing
    assert result.returncode == 0, result.stderr
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert to_dict(load_yaml(small_disk / "run" / "config.yaml"))["steps"] == 300
    assert rows(small_disk / "run") == rows(whole)
