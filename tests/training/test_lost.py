"""Environments that die or hang in the middle of a run: their episodes are discarded, and everything else goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.helpers import assert_same_run, longer, rows, saved, table, tiny
from tests.training.test_resume import stop_at
from ubp2 import api
from ubp2.config.schema import Config
from ubp2.envs import worker
from ubp2.envs.toy import Reach
from ubp2.errors import UserError
from ubp2.storage import population
from ubp2.training.state import episode_seed

FIRST = 1  # the seed of the first member: of its episodes, and of those of the second, some are lost
SHORT = tiny(steps=160, seed=FIRST, environment={"in_process": False}, evaluation={"every": 100})


class Fragile(Reach):
    """Reach whose process ends at the sixth step, or at the reset, of a part of the episodes, as their seed says."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.seed, self.steps = seed or 0, 0
        if fatal(self.seed) == "reset":
            os._exit(3)
        return super().reset(seed=seed)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 6 and fatal(self.seed) == "step":
            os._exit(4)
        return super().step(action)


def fatal(seed: int) -> str | None:
    """At which moment the episode of a seed kills its process; not those of evaluation, which begin at 100,000."""
    if seed < 200_000:
        return None
    return {0: "step", 1: "reset", 2: "step"}.get(seed % 11)


def expected(run_seed: int, count: int) -> tuple[list[int], int]:
    """The seeds of the episodes that come to their end, and how many are lost until then."""
    kept, lost = [], 0
    for index in range(count):
        seed = episode_seed(run_seed, index)
        while fatal(seed):
            lost += 1
            seed = episode_seed(run_seed, index, lost)
        kept.append(seed)
    return kept, lost


def kept(folder: Path) -> list[int]:
    return [seed for (seed,) in table(folder / "episodes.sqlite", "SELECT seed FROM episodes ORDER BY number")]


def run(config: Config, folder: Path, seeds: int, env: Any = Fragile) -> list[Path]:
    assert api.train(config, env=env, seeds=seeds, out=folder, progress=False).finished
    return population.members(folder)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2])
def test_a_lost_episode_is_discarded_and_counted(tmp_path: Path, seeds: int, capsys: Any) -> None:
    """And a run that is stopped and goes on is the run that was not: nothing of the discarded frames is left."""
    members = run(SHORT, tmp_path / "whole", seeds)
    for seed, folder in enumerate(members, FIRST):
        wanted, lost = expected(seed, len(kept(folder)))
        assert kept(folder) == wanted
        counted = saved(folder).meta["restarts"]
        assert lost <= counted and counted >= 1, "the episode in progress may have been begun anew, too"
        assert rows(folder, "train")[-1]["env/restarts"] <= counted
        assert {length for (length,) in table(folder / "episodes.sqlite", "SELECT length FROM episodes")} == {20}
    out = tmp_path / "stopped"
    stop_at(95, signal.SIGTERM, lambda: api.train(SHORT, env=Fragile, seeds=seeds, out=out, progress=True))
    assert "is discarded after 6 decisions: its environment was lost" in capsys.readouterr().err
    assert api.resume(out, env=Fragile, progress=False).finished
    for one, other in zip(population.members(out), members, strict=True):
        assert_same_run(one, other)


@pytest.mark.slow
def test_in_ceiling_mode_with_a_replay_that_has_wrapped_around(tmp_path: Path) -> None:
    """What the discarded frames had been written over is there again."""
    config = tiny(
        steps=240,
        seed=FIRST,
        ceiling=True,
        environment={"in_process": False},
        training={"replay_capacity": 90, "warmup": 40},
    )
    (whole,) = run(config, tmp_path / "whole", 1)
    out = tmp_path / "stopped"
    stop_at(171, signal.SIGTERM, lambda: api.train(config, env=Fragile, out=out, progress=False))
    assert api.resume(out, env=Fragile, progress=False).finished
    assert_same_run(out, whole)


class Once(Reach):
    """Reach whose process ends, or hangs, at the ninth step of an evaluation or of a resumed episode: once."""

    def __init__(self, flag: str, how: str) -> None:
        super().__init__()
        self.flag, self.how, self.steps = Path(flag), how, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.evaluated, self.steps = seed is not None and 100_000 <= seed < 200_000, 0
        return super().reset(seed=seed)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 9 and self.evaluated and not self.flag.exists():
            self.flag.touch()
            if self.how == "dies":
                os._exit(5)
            time.sleep(3600)
        return super().step(action)


@pytest.mark.parametrize("how", ["dies", pytest.param("hangs", marks=pytest.mark.slow)])
def test_an_evaluation_whose_environment_is_lost_has_the_outcome_it_would_have_had(tmp_path: Path, how: str) -> None:
    patience = {"patience": 5.0} if how == "hangs" else {}
    config = tiny(steps=150, environment={"in_process": False, **patience}, evaluation={"every": 70})
    (undisturbed,) = run(config, tmp_path / "undisturbed", 1, Reach)
    (disturbed,) = run(config, tmp_path / "disturbed", 1, partial(Once, str(tmp_path / "flag"), how))
    assert (tmp_path / "flag").exists()
    assert_same_run(disturbed, undisturbed)


class Doomed(Reach):
    """Reach whose process never sees the end of an episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.steps = 0
        return super().reset(seed=seed)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 2:
            os._exit(6)
        return super().step(action)


def test_an_environment_that_is_always_lost_stops_the_run_with_a_sentence(tmp_path: Path) -> None:
    config = longer(SHORT, 100)
    with pytest.raises(UserError, match=r"environment 0 was lost 4 times, .* exit code 6"):
        api.train(config, env=Doomed, out=tmp_path / "run", progress=False)


class Stuck(Reach):
    """Reach whose process ends at the ninth step, or the reset, of its fourth episode; what comes after it hangs."""

    def __init__(self, flag: str, when: str) -> None:
        super().__init__()
        self.flag, self.when, self.steps, self.episodes = Path(flag), when, 0, 0
        if self.flag.exists():
            time.sleep(3600)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.steps, self.episodes = 0, self.episodes + 1  # the first is the adapter looking
        self.end(self.when == "reset" and self.episodes == 5)
        return super().reset(seed=seed)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.end(self.when == "step" and self.steps == 9 and self.episodes == 5)
        return super().step(action)

    def end(self, now: bool) -> None:
        if now:
            self.flag.touch()
            os._exit(7)


@pytest.mark.parametrize("when", ["step", pytest.param("reset", marks=pytest.mark.slow)])
def test_a_stop_does_not_wait_for_a_process_that_hangs_at_its_start(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is written without it, and the run goes on where it was."""
    monkeypatch.setattr(worker, "STOPPING_PATIENCE", 0.1)
    config, flag = tiny(steps=120, environment={"in_process": False}, evaluation={"every": 0}), tmp_path / "flag"
    env = partial(Stuck, str(flag), when)

    def stop_when_stuck() -> None:
        while not flag.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop_when_stuck, daemon=True)
    stopper.start()
    result = api.train(config, env=env, out=tmp_path / "run", progress=False)
    stopper.join()
    assert not result.finished and result.decisions == {"step": 69, "reset": 60}[when]
    assert saved(result.folder).decision == result.decisions and saved(result.folder).meta["restarts"] == 1
    flag.unlink()
    assert api.resume(result.folder, env=partial(Stuck, str(flag), "never"), progress=False).finished
    seeds = [episode_seed(config.seed, index, int(index == 3)) for index in range({"step": 5, "reset": 6}[when])]
    assert kept(result.folder) == seeds, "the lost episode has another seed, and the others have theirs"
