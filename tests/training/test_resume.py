"""A run that was stopped, however it was stopped, ends as the one that was not: the same bits on a CPU."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.training.helpers import assert_same_run, environment, longer, rows, saved, tiny
from ubp2 import api
from ubp2.config.files import extended, load_yaml, save_yaml
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.envs.toy import Reach
from ubp2.errors import UserError
from ubp2.storage import runs
from ubp2.storage.database import Database
from ubp2.training import checkpoint
from ubp2.training.ongoing import Ongoing

MODES = {"preferences": tiny(), "ceiling": tiny(ceiling=True)}

# Moments at which a process can be told to die: what is patched, and whether before or after it has run.
MOMENTS = {
    "decision": (Ongoing, "add", "after"),
    "row": (runs.Metrics, "_append", "half"),
    "before commit": (Database, "write", "before"),
    "after commit": (Database, "write", "after"),
    "checkpoint written aside": (checkpoint, "_put_in_place", "before"),
    "checkpoint in place": (checkpoint, "_put_in_place", "after"),
    "checkpoint half written": (checkpoint, "_write", "half"),
}


def send_at(patch: pytest.MonkeyPatch, moment: str, count: int, number: int, times: int = 1) -> None:
    """Let this process send itself a signal at the count-th time of a moment."""
    owner, name, when = MOMENTS[moment]
    real, left = getattr(owner, name), count

    def send() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            for _ in range(times):
                os.kill(os.getpid(), number)

    def before(*arguments: Any) -> Any:
        send()
        return real(*arguments)

    def after(*arguments: Any) -> Any:
        result = real(*arguments)
        if owner is not Database:
            send()
            return result
        return _Then(result, send)

    def half(*arguments: Any) -> Any:
        if left == 1:
            if name == "_append":
                metrics, line = arguments
                os.write(metrics._file, line[: len(line) // 2])
            else:
                (arguments[0] / "state.npz").write_bytes(b"half a file")
        send()
        return real(*arguments)

    patch.setattr(owner, name, {"before": before, "after": after, "half": half}[when])


class _Then:
    """A context manager that does something once the one inside has been left."""

    def __init__(self, inner: Any, action: Callable[[], None]) -> None:
        self._inner, self._action = inner, action

    def __enter__(self) -> Any:
        return self._inner.__enter__()

    def __exit__(self, *error: Any) -> Any:
        result = self._inner.__exit__(*error)
        self._action()
        return result


def command(arguments: list[str | Path], moment: str, count: int, number: int, times: int = 1) -> Any:
    """`ubp2 ...` in a process of its own that sends itself a signal at a moment."""
    code = (
        "import sys, pytest; from tests.training.test_resume import send_at; from ubp2.terminal.cli import main\n"
        f"send_at(pytest.MonkeyPatch(), {moment!r}, {count}, {number}, {times}); sys.exit(main(sys.argv[1:]))"
    )
    line = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=300)


def stop_at(decision: int, number: int, act: Callable[[], Any]) -> Any:
    """Call `act` in this process, which gets a signal `decision` decisions later."""
    with pytest.MonkeyPatch.context() as patch:
        send_at(patch, "decision", decision, number)
        return act()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Config], Path]:
    """A function that gives the folder of the uninterrupted run of a config."""
    done: dict[Config, Path] = {}

    def get(config: Config) -> Path:
        if config not in done:
            done[config] = tmp_path_factory.mktemp("reference") / "run"
            assert api.train(config, out=done[config], progress=False).finished
        return done[config]

    return get


def test_the_comparison_sees_a_difference(reference: Callable[[Config], Path]) -> None:
    assert_same_run(reference(tiny()), reference(tiny()))
    with pytest.raises(AssertionError):
        assert_same_run(reference(tiny()), reference(tiny(preferences={"every": 60})))


@pytest.mark.parametrize(
    ("mode", "seed", "times"),
    [
        ("preferences", 0, 2),
        *(pytest.param("preferences", seed, 4, marks=pytest.mark.slow) for seed in range(6)),
        *(pytest.param("ceiling", seed, 4, marks=pytest.mark.slow) for seed in range(6, 9)),
    ],
)
def test_killed_again_and_again(
    reference: Callable[[Config], Path], tmp_path: Path, mode: str, seed: int, times: int
) -> None:
    """SIGKILL at random decisions and at the worst moments between them: half a row, half a checkpoint, a commit."""
    config, folder = MODES[mode], tmp_path / "run"
    whole = reference(config)
    save_yaml(config, tmp_path / "config.yaml")
    start = ["train", "--config", tmp_path / "config.yaml", "--out", folder, "--quiet"]
    go_on = ["train", "--resume", folder, "--quiet"]
    draw = random.Random(seed)
    kills = 0
    for _ in range(times):
        moment = draw.choice(["decision", *MOMENTS])  # the first is twice as likely
        count = draw.randint(30, 110) if moment == "decision" else draw.randint(1, 3 if "point" in moment else 9)
        ended = command(go_on if (folder / "config.yaml").exists() else start, moment, count, signal.SIGKILL)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        kills += ended.returncode == -signal.SIGKILL
    assert kills >= times - 1
    assert api.resume(folder, progress=False).finished
    assert_same_run(folder, whole)


@pytest.mark.slow
def test_stopped_on_the_command_line(reference: Callable[[Config], Path], tmp_path: Path) -> None:
    """SIGTERM, then Ctrl-C, each in the middle of an episode; with the environment in a worker process."""
    config, folder = tiny(environment={"in_process": False}), tmp_path / "run"
    save_yaml(config, tmp_path / "config.yaml")
    ended = command(["train", "--config", tmp_path / "config.yaml", "--out", folder], "decision", 93, signal.SIGTERM)
    assert ended.returncode == 75, ended.stderr
    assert f"stopped at decision 93; go on with: ubp2 train --resume {folder}" in ended.stdout
    assert saved(folder).decision == 93
    ended = command(["train", "--resume", folder, "--json"], "decision", 60, signal.SIGINT)
    assert ended.returncode == 75 and '"finished": false' in ended.stdout, ended.stderr
    assert saved(folder).decision == 153
    assert api.resume(folder, progress=False).finished
    assert_same_run(folder, reference(tiny()))


def test_stopped_in_the_updates_after_the_warm_up(reference: Callable[[Config], Path], tmp_path: Path) -> None:
    """They may be many, and take minutes: a signal ends them, and the run goes on from before them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "block_until_ready", lambda _: os.kill(os.getpid(), signal.SIGINT))
        assert not api.train(tiny(), out=tmp_path / "run", progress=False).finished
    assert saved(tmp_path / "run").decision == tiny().training.warmup
    assert api.resume(tmp_path / "run", progress=False).finished
    assert_same_run(tmp_path / "run", reference(tiny()))


def test_a_second_ctrl_c_stops_at_once(reference: Callable[[Config], Path], tmp_path: Path) -> None:
    save_yaml(tiny(), tmp_path / "config.yaml")
    start = ["train", "--config", tmp_path / "config.yaml", "--out", tmp_path / "run", "--quiet"]
    ended = command(start, "decision", 90, signal.SIGINT, times=2)
    assert ended.returncode == 130
    assert ended.stderr.startswith("stopping: ") and ended.stderr.endswith("\nubp2: interrupted\n")
    assert saved(tmp_path / "run").decision == 70, "it must not have taken the time for another checkpoint"
    assert api.resume(tmp_path / "run", progress=False).finished
    assert_same_run(tmp_path / "run", reference(tiny()))


@pytest.mark.parametrize(
    ("config", "stops"),
    [
        pytest.param(tiny(), (33, 100, 7, 20), id="warm-up, end of an episode, planning"),
        pytest.param(tiny(ceiling=True), (61, 60, 59), id="ceiling"),
        pytest.param(tiny(training={"replay_capacity": 90}), (215, 30), id="replay that has wrapped around"),
        pytest.param(
            tiny(ceiling=True, training={"replay_capacity": 90}),
            (215, 30),
            id="ceiling, replay that has wrapped around",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            tiny(steps=120, evaluation={"every": 0}, training={"warmup_updates": 0, "update_every": 70}),
            (30, 60),
            id="before the first update",
        ),
        pytest.param(tiny(model={"space": "latent", "latent_dim": 16}), (111, 60), id="latent", marks=pytest.mark.slow),
    ],
)
def test_stopped_in_every_phase(
    reference: Callable[[Config], Path], tmp_path: Path, config: Config, stops: tuple[int, ...]
) -> None:
    folder, at = tmp_path / "run", 0
    for i, decisions in enumerate(stops):
        number = (signal.SIGTERM, signal.SIGINT)[i % 2]
        if i == 0:
            result = stop_at(decisions, number, lambda: api.train(config, out=folder, progress=False))
        else:
            result = stop_at(decisions, number, lambda: api.resume(folder, progress=False))
        at += decisions
        assert (result.decisions, result.finished) == (at, False)
    result = api.resume(folder, progress=False)
    assert (result.decisions, result.finished) == (config.steps, True)
    assert_same_run(folder, reference(config))
    assert len(runs.Run.open(folder).info()["resumed"]) == len(stops)


def test_a_damaged_checkpoint_is_passed_over(reference: Callable[[Config], Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stop_at(175, signal.SIGTERM, lambda: api.train(tiny(), out=folder, progress=False))
    newest = saved(folder).path
    assert newest.name == "000000175"
    content = bytearray((newest / "state.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "state.npz").write_bytes(content)
    assert saved_decisions(folder) == [140, 175]
    assert api.resume(folder, progress=False).finished
    assert (newest.parent / "000000175.damaged" / "state.npz").read_bytes() == content
    assert_same_run(folder, reference(tiny()))


@pytest.mark.parametrize(("database", "told"), [("episodes", "0 of the 6 episodes"), ("labels", "0 of the 12 labels")])
def test_a_database_that_is_gone_is_missed(tmp_path: Path, database: str, told: str) -> None:
    """The agent would forget what it had learned from, and go on as if nothing were."""
    folder = tmp_path / "run"
    stop_at(130, signal.SIGTERM, lambda: api.train(tiny(), out=folder, progress=False))
    kept = (folder / f"{database}.sqlite").rename(tmp_path / "kept")
    for _ in range(2):
        with pytest.raises(UserError, match=f"{database}.sqlite has {told} that the run had at decision 130"):
            api.resume(folder, progress=False)
    kept.rename(folder / f"{database}.sqlite")
    assert not stop_at(1, signal.SIGTERM, lambda: api.resume(folder, progress=False)).finished


def saved_decisions(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in (folder / "checkpoints").iterdir())


@pytest.mark.slow
def test_a_finished_run_goes_on_with_more_steps(reference: Callable[[Config], Path], tmp_path: Path) -> None:
    """Also when the longer run is stopped in its turn: from then on it is the longer one."""
    short = tiny(steps=210, evaluation={"every": 210})
    whole = longer(short, 300)
    folder = tmp_path / "run"
    assert api.train(short, out=folder, progress=False).decisions == 210
    again = api.resume(folder, progress=False)
    assert (again.decisions, again.finished) == (210, True)
    assert again.evaluation["planner/return"] == rows(folder, "eval")[-1]["planner/return"]
    wanted = longer(load_yaml(folder / "config.yaml"), 300)
    result = stop_at(25, signal.SIGTERM, lambda: api.resume(folder, config=wanted, progress=False))
    assert (result.decisions, result.finished) == (235, False)
    result = api.resume(folder, progress=False)
    assert (result.decisions, result.finished) == (300, True)
    assert_same_run(folder, reference(whole))
    assert runs.Run.open(folder).config.steps == 300
    with pytest.raises(UserError, match="longer but not shorter: --steps 210 < 300"):
        api.resume(folder, config=longer(wanted, 210), progress=False)


def test_a_longer_run_gets_a_longer_memory_only_where_it_kept_everything() -> None:
    for capacity, then in ((None, 400), (100, 100), (1000, 1000)):
        asked = dataclasses.replace(tiny(), training=dataclasses.replace(tiny().training, replay_capacity=capacity))
        begun = resolve(asked, 20)
        assert extended(begun, None) == extended(begun, begun) == begun
        more = extended(begun, longer(begun, 400))
        assert (more.steps, more.training.replay_capacity) == (400, then)


class Forgetful(Reach):
    """Reach that draws something random of its own, which its seed does not determine."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        obs, info = super().reset(seed=seed)
        return obs + np.float32(1e-3 * np.random.default_rng().uniform()), info


def test_an_environment_that_does_not_repeat_itself_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stop_at(31, signal.SIGTERM, lambda: api.train(tiny(), env=Forgetful, out=folder, progress=False))
    with pytest.raises(UserError, match="the environment does not repeat itself"):
        api.resume(folder, env=Forgetful, progress=False)
