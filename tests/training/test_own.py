"""Runs with a strategy and an agent of one's own: registered by a program, or named as module:function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from jax import Array

from tests.training.helpers import longer, tiny
from ubp2 import api
from ubp2.agents import ubp2
from ubp2.agents.base import Agent
from ubp2.config import files as config_files
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.preference import queries
from ubp2.storage.runs import Run
from ubp2.terminal import cli
from ubp2.terminal.progress import Progress


def score(key: Array, returns: Array) -> tuple[Array, Array]:
    del key
    scores = jnp.std(returns[..., 0] - returns[..., 1], axis=0)
    return scores, jnp.zeros(scores.shape, bool)


good = queries.ranked(score)


def gentle(config: Config, obs_dim: int, action_dim: int) -> Agent:
    return ubp2.make_agent(config, obs_dim, action_dim)


def short(**changes: Any) -> Config:
    return tiny(steps=100, evaluation={"every": 0}, **changes)


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run with a strategy that was registered by the program that made it, and is known no more."""
    folder = tmp_path_factory.mktemp("own") / "run"
    queries.register("mine", good)
    api.train(short(preferences={"strategy": "mine"}), out=folder, progress=False)
    del queries.STRATEGIES["mine"]
    config_files.FURTHER.clear()
    yield folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_evaluated_where_its_strategy_is_not_known(registered: Path) -> None:
    assert api.evaluate(registered, episodes=1)["length"] == 20
    api.load(registered)


@pytest.mark.usefixtures("registry")
def test_a_refused_resume_leaves_the_run_as_it_was(registered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(registered)
    assert cli.main(["train", "--resume", str(registered), "--steps", "300", "--quiet"]) == 2
    assert "unknown query strategy 'mine'" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"unknown query strategy 'mine'.*One of your own is named as module:function"):
        api.resume(registered, config=longer(Run.open(registered).config, 300), progress=False)
    queries.register("mine", good)
    with pytest.raises(UserError, match="these fields differ: seed"):
        api.resume(registered, config=tiny(seed=3), progress=False)
    assert content(registered) == before


@pytest.mark.parametrize("setting", ["agent", "strategy"])
def test_what_is_not_known_stops_a_run_before_there_is_a_folder(setting: str, tmp_path: Path) -> None:
    config = short()
    if setting == "agent":
        config = replace(config, agent="mine")  # type: ignore[arg-type]
    else:
        config = replace(config, preferences=replace(config.preferences, strategy="mine"))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"unknown (agent|query strategy) 'mine'.*One of your own is named as module:"):
        api.train(config, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_functions_by_name_train_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate begins after the first plan: what compiles before, and the updates after the warm-up, come but once."""
    told: list[tuple[int, bool]] = []

    def update(self: Progress, decision: int, **fields: Any) -> None:
        told.append((decision, fields.get("steady", True)))

    monkeypatch.setattr(Progress, "update", update)
    config = short(agent=f"{__name__}:gentle", preferences={"strategy": f"{__name__}:good"})
    assert api.train(config, out=tmp_path / "run", progress=False).labels
    assert next(decision for decision, steady in told[1:] if steady) == 61
    assert api.resume(tmp_path / "run", config=longer(config, 110), progress=False).decisions == 110
    assert api.evaluate(tmp_path / "run", episodes=1, controller="planner")["length"] == 20
