"""Several seeds in one program: each does what it would do alone, on disk as in its parameters."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.helpers import (
    agent_arrays,
    assert_same_arrays,
    assert_same_run,
    episodes,
    labels,
    longer,
    saved,
    table,
    tiny,
    untimed,
)
from tests.training.test_resume import command, stop_at
from ubp2 import api
from ubp2.config.files import load_yaml, save_yaml
from ubp2.config.schema import Config
from ubp2.envs.toy import Reach
from ubp2.errors import UserError
from ubp2.storage import population
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import Run
from ubp2.training import checkpoint

SEEDS = 2
# Short: small differences in rounding grow with every decision that follows from them.
SHORT = tiny(steps=160, evaluation={"every": 80}, preferences={"budget": 10}, training={"warmup": 40})


class Uneven(Reach):
    """Reach whose episodes end after 7 to 20 decisions, as their seed says."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        obs, info = super().reset(seed=seed)
        self.left = 7 + int(self.np_random.integers(14))
        return obs, info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, _, truncated, info = super().step(action)
        self.left -= 1
        return obs, reward, self.left == 0, truncated, info


def train(config: Config, folder: Path, env: Any = None, seeds: int = SEEDS) -> list[Path]:
    """A finished population; its run folders."""
    result = api.train(config, seeds=seeds, env=env, out=folder, progress=False)
    assert isinstance(result, api.PopulationResult) and result.finished and result.folder == folder
    assert [run.folder for run in result.runs] == population.members(folder)
    assert result.labels == sum(run.labels for run in result.runs)
    return population.members(folder)


def alone(config: Config, folder: Path, seed: int, env: Any = None) -> Path:
    """The run of one seed without company."""
    assert api.train(dataclasses.replace(config, seed=seed), env=env, out=folder, progress=False).finished
    return folder


def assert_close_run(one: Path, other: Path) -> None:
    """Two runs that differ by rounding: the same episodes, questions and rows, and close numbers."""
    a, b = saved(one), saved(other)
    exact = ("decision", "episode", "sessions", "asked", "labels", "cursor", "last_row", "seed")
    assert {name: a.meta[name] for name in exact} == {name: b.meta[name] for name in exact}
    for name in a.arrays:
        np.testing.assert_allclose(a.arrays[name], b.arrays[name], rtol=2e-3, atol=2e-3, err_msg=name)
    with EpisodeArchive(one / "episodes.sqlite") as left, EpisodeArchive(other / "episodes.sqlite") as right:
        for x, y in zip(left.iterate(), right.iterate(), strict=True):
            assert (x.index, x.seed, x.terminated) == (y.index, y.seed, y.terminated)
            for field in ("obs", "action", "true_reward"):
                np.testing.assert_allclose(getattr(x, field), getattr(y, field), atol=2e-3)
            if x.index == 0:  # random: nothing was computed
                np.testing.assert_array_equal(x.action, y.action)
    asked = "SELECT id, session, decision, left_episode, left_start, right_episode, right_start FROM queries"
    assert table(one / "labels.sqlite", asked) == table(other / "labels.sqlite", asked)
    given = "SELECT id, query, label, weight FROM answers"
    assert table(one / "labels.sqlite", given) == table(other / "labels.sqlite", given)
    for x, y in zip(untimed(one), untimed(other), strict=True):
        assert x.keys() == y.keys()
        for key in x.keys() - {"kind"}:
            assert x[key] == pytest.approx(y[key], rel=5e-3, abs=5e-3, nan_ok=True), key


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "first", "steps"), [("preferences", 3, 160), ("ceiling", 5, 120)])
def test_each_seed_does_what_it_would_do_alone(mode: str, first: int, steps: int, tmp_path: Path) -> None:
    """With episodes of different lengths, so that sessions and phases of the seeds come at different decisions."""
    config = dataclasses.replace(SHORT, seed=first, steps=steps, ceiling=mode == "ceiling")
    members = train(config, tmp_path / "all", Uneven)
    assert [path.name for path in members] == [f"s{first}", f"s{first + 1}"]
    for seed, folder in zip((first, first + 1), members, strict=True):
        assert_close_run(folder, alone(config, tmp_path / f"alone-{seed}", seed, Uneven))
        assert load_yaml(folder / "config.yaml").seed == seed
    lengths = [table(f / "episodes.sqlite", "SELECT length FROM episodes") for f in members]
    assert lengths[0] != lengths[1], "the seeds must not end their episodes together, or this proves little"
    if mode == "preferences":
        sessions = [table(f / "labels.sqlite", "SELECT DISTINCT session, decision FROM queries") for f in members]
        assert sessions[0][-1] != sessions[1][-1], "the seeds must not change from planning to the policy together"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A population that nothing happened to."""
    folder = tmp_path_factory.mktemp("population") / "all"
    train(tiny(), folder)
    return folder


def assert_same_population(one: Path, other: Path) -> None:
    """Bit for bit, member by member."""
    assert (one / "population.json").read_text() == (other / "population.json").read_text()
    for a, b in zip(population.members(one), population.members(other), strict=True):
        assert_same_run(a, b)


def test_the_folder_of_a_population(whole: Path) -> None:
    assert json.loads((whole / "population.json").read_text()) == {"programs": [["s0", "s1"]]}
    assert sorted(path.name for path in whole.iterdir()) == ["population.json", "s0", "s1"]
    for member in population.members(whole):
        assert {"config.yaml", "info.json", "metrics.jsonl", "checkpoints"} <= {p.name for p in member.iterdir()}
        assert Run.open(member).config.seed == int(member.name[1:])
    assert labels(whole / "s0") != labels(whole / "s1") and episodes(whole / "s0") != episodes(whole / "s1")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_again_and_again(whole: Path, tmp_path: Path, seed: int) -> None:
    """SIGKILL at a random decision, and as the first member has its checkpoint and the second perhaps not."""
    folder = tmp_path / "all"
    save_yaml(tiny(), tmp_path / "config.yaml")
    start = ["train", "--config", tmp_path / "config.yaml", "--seeds", SEEDS, "--out", folder, "--quiet"]
    go_on = ["train", "--resume", folder, "--quiet"]
    draw = random.Random(seed)
    moments = [("decision", draw.randint(75, 130)), ("checkpoint in place", draw.choice([1, 3]))]
    for moment, count in moments:
        begun = (folder / "population.json").exists()
        ended = command(go_on if begun else start, moment, count, signal.SIGKILL)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    result = api.resume(folder, progress=False)
    assert isinstance(result, api.PopulationResult) and result.finished
    assert_same_population(folder, whole)


def test_killed_between_the_checkpoints_of_two_members(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one that is ahead goes back, and its newer checkpoint, which no longer fits its databases, is removed."""
    folder = tmp_path / "all"
    stop_at(150, signal.SIGTERM, lambda: api.train(tiny(), seeds=SEEDS, out=folder, progress=False))
    shutil.rmtree(saved(folder / "s1").path)
    result = stop_at(5, signal.SIGTERM, lambda: api.resume(folder))
    assert result.decisions == 145 and saved(folder / "s0").decision == 145
    told = capsys.readouterr().err
    assert "a kill came while the seeds were saved; all go on from decision 140, the newest that each has" in told
    assert api.resume(folder, progress=False).finished
    assert_same_population(folder, whole)


def test_stopped_and_resumed_with_more_steps(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, short = tmp_path / "all", tiny(steps=210)
    train(short, folder)
    wanted = longer(Run.open(folder / "s0").config, 300)
    result = stop_at(40, signal.SIGTERM, lambda: api.resume(folder, config=wanted, progress=False))
    assert (result.decisions, result.finished) == (250, False)
    assert api.resume(folder).finished
    told = capsys.readouterr().err
    assert "resumed at decision 250 with 28 labels" in told and "28/28 labels in all" in told
    assert_same_arrays(agent_arrays(folder / "s1"), agent_arrays(whole / "s1"))
    assert [Run.open(member).config.steps for member in population.members(folder)] == [300, 300]


def test_a_member_goes_on_alone(whole: Path, tmp_path: Path) -> None:
    """And then the others go on without it."""
    folder = tmp_path / "all"
    stop_at(150, signal.SIGTERM, lambda: api.train(tiny(), seeds=SEEDS, out=folder, progress=False))
    result = api.resume(folder / "s1", progress=False)
    assert isinstance(result, api.RunResult) and result.finished and result.decisions == 300
    a, b = saved(folder / "s1").meta, saved(whole / "s1").meta
    assert {k: v for k, v in a.items() if k != "metrics_position"} == {
        k: v for k, v in b.items() if k != "metrics_position"
    }
    both = api.resume(folder, progress=False)
    assert both.finished and [saved(folder / name).decision for name in ("s0", "s1")] == [300, 300]
    assert api.evaluate(folder / "s1", episodes=1)["length"] == 20


def test_a_damaged_checkpoint_of_one_member_takes_all_back(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    stop_at(150, signal.SIGTERM, lambda: api.train(tiny(), seeds=SEEDS, out=folder, progress=False))
    (saved(folder / "s1").path / "state.npz").write_bytes(b"")
    assert api.resume(folder, progress=False).finished
    assert (folder / "s1" / "checkpoints" / "000000150.damaged").exists()
    assert_same_population(folder, whole)


def test_checkpoints_that_all_have(tmp_path: Path) -> None:
    folders = [tmp_path / f"s{i}" / "checkpoints" for i in range(2)]
    assert checkpoint.load_common(folders) is None
    arrays = {"x": np.zeros(2)}
    checkpoint.save(folders[0], 70, arrays, {}, 2)
    assert checkpoint.load_common(folders) is None, "a kill in the middle of the first save: all start again"
    checkpoint.save(folders[1], 70, arrays, {}, 2)
    checkpoint.save(folders[1], 140, arrays, {}, 2)
    found = checkpoint.load_common(folders)
    assert found is not None and [each.decision for each in found] == [70, 70]
    assert [checkpoint.drop_after(folder, 70) for folder in folders] == [False, True]
    assert saved(tmp_path / "s1").decision == 70


def test_evaluation_of_a_population_is_that_of_its_members(whole: Path) -> None:
    together = api.evaluate_members(whole, episodes=2, controller="planner")
    assert list(together) == ["s0", "s1"]
    for name, scores in together.items():
        assert scores == pytest.approx(api.evaluate(whole / name, episodes=2, controller="planner"), rel=1e-4)
    mean = api.evaluate(whole, episodes=2, controller="planner")
    assert mean["return"] == pytest.approx(np.mean([scores["return"] for scores in together.values()]))
    with pytest.raises(UserError, match="holds 2 runs; load one of them, such as .*s0"):
        api.load(whole)
    with pytest.raises(UserError, match="a clip shows one run"):
        api.evaluate(whole, video="clip.mp4")


def killed() -> None:
    raise KeyboardInterrupt


def test_an_occupied_folder_and_a_killed_creation(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="exists and is not empty"):
        api.train(tiny(), seeds=2, out=whole, progress=False)
    with pytest.raises(UserError, match="--seeds must be at least 1, got 0"):
        api.train(tiny(), seeds=0, out=tmp_path / "none", progress=False)
    Run.create(tmp_path / "all" / "s0", SHORT).close()  # the first member stands, population.json does not
    members = train(
        tiny(steps=70, training={"warmup": 69}, evaluation={"every": 0}, preferences={"budget": 4}), tmp_path / "all"
    )
    assert len(members) == 2
    capacity = {"training": dataclasses.replace(Run.open(members[0]).config.training, replay_capacity=70)}
    for member in members:  # as it is where nobody says
        Run.open(member).extend(dataclasses.replace(Run.open(member).config, **capacity))
    wanted, extend = longer(Run.open(members[0]).config, 80), Run.extend
    with monkeypatch.context() as patch:
        patch.setattr(Run, "extend", lambda run, own: extend(run, own) if own.seed == 0 else killed())
        with pytest.raises(KeyboardInterrupt):
            api.resume(tmp_path / "all", config=wanted, progress=False)
    assert [Run.open(member).config.steps for member in members] == [80, 70]
    result = api.resume(tmp_path / "all", progress=False)
    assert result.finished and result.decisions == 80
    assert {Run.open(member).config.training.replay_capacity for member in members} == {80}
    Run.open(members[1]).extend(longer(Run.open(members[1]).config, 500))
    with pytest.raises(UserError, match="another configuration than .*; go on with each alone"):
        api.resume(tmp_path / "all", progress=False)
    shutil.rmtree(members[1])
    with pytest.raises(UserError, match="is not a run folder"):
        api.resume(tmp_path / "all", progress=False)
