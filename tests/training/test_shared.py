"""Runs of one process share what was compiled: with the same outcome, and only where what is computed is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.helpers import agent_arrays, tiny, untimed
from ubp2 import api
from ubp2.agents.registry import AGENTS, make_agent, register
from ubp2.config.files import from_dict
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.envs.base import EnvSpec
from ubp2.training import shared
from ubp2.training.compilation import Program, _Compilation
from ubp2.training.member_axis import Layout
from ubp2.training.programs import make_programs
from ubp2.training.startup import prepare

SPEC = EnvSpec("test", 4, 2, 20, 1, 10, True, (-1.0, -1.0), (1.0, 1.0))
LEFT_OUT: dict[str, Any] = {
    "seed": 5,
    "steps": 777,
    "teacher": {"name": "noisy", "beta": 2.0},
    "environment": {"in_process": False},
    "checkpoint": {"every": 11},
    "evaluation": {"every": 13, "episodes": 4, "bonus": -1.0},
    "optimism": {"reward": False, "lambda_dynamics": 3.0},
    "preferences": {"every": 17, "smoothing": 0.1},
    "training": {"learning_rate": 0.01, "rho": 0.5},
}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is compiled from here on; nothing is kept of what was before."""
    found: list[Any] = []
    compile = _Compilation.compile

    def counting(self: _Compilation, jitted: Any, shapes: Any) -> None:
        if not self.begun:
            found.append(jitted)
        compile(self, jitted, shapes)

    monkeypatch.setattr(_Compilation, "compile", counting)
    monkeypatch.setattr(shared, "_KEPT", shared.Kept())
    return found


def test_a_second_run_and_an_evaluation_compile_nothing_and_come_out_the_same(
    compiled: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.train(tiny(steps=120), out=tmp_path / "first", progress=False)
    assert compiled
    compiled.clear()
    second = tiny(steps=200, seed=3, checkpoint={"every": 50})
    api.train(second, out=tmp_path / "second", progress=False)
    api.evaluate(tmp_path / "second", episodes=1)
    assert compiled == []
    monkeypatch.setattr(shared, "_KEPT", shared.Kept())
    api.train(second, out=tmp_path / "alone", progress=False)
    assert compiled and untimed(tmp_path / "second") == untimed(tmp_path / "alone")
    mine, theirs = agent_arrays(tmp_path / "second"), agent_arrays(tmp_path / "alone")
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def computed(config: Config, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every program of a run, written out."""
    asked: list[tuple[Program, Any]] = []
    agent = make_agent(config, SPEC.obs_dim, SPEC.action_dim)
    layout = Layout.of([config], SPEC)
    programs = make_programs(layout, agent)
    with monkeypatch.context() as patch:
        patch.setattr(Program, "prepare", lambda self, *shapes: asked.append((self, shapes)))
        prepare(programs, agent, layout)
    return [str(program._jitted.trace(*program.bound, *shapes).jaxpr) for program, shapes in asked]


def test_no_program_depends_on_the_settings_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve(tiny(evaluation={"workers": 1}), 20)
    other = from_dict(LEFT_OUT, config)
    assert Layout.of([other], SPEC).key() == Layout.of([config], SPEC).key()
    assert computed(other, monkeypatch) == computed(config, monkeypatch)
    assert computed(replace(config, planner=replace(config.planner, horizon=3)), monkeypatch) != computed(
        config, monkeypatch
    ), "the comparison sees a difference"


@pytest.mark.usefixtures("registry")
def test_only_equal_programs_of_the_package_itself_are_shared(compiled: list[Any]) -> None:
    def programs(**changes: Any) -> Any:
        config = resolve(tiny(**changes), 20)
        return shared.shared_programs(Layout.of([config], SPEC), make_agent(config, 4, 2))

    first = programs()
    assert first.update._compiled is programs(seed=9, steps=90).update._compiled
    assert first.update._compiled is not programs(planner={"horizon": 3}).update._compiled
    register("mine", AGENTS["ubp2"], model_free=False)
    assert programs(agent="mine").update._compiled is not programs(agent="mine").update._compiled


def test_the_policy_of_an_agent_without_a_planner_is_one_program() -> None:
    for agent, workers, count in (("sac", 1, 1), ("sac", 3, 2), ("ubp2", 1, 2), ("ubp2", 3, 4)):
        config = resolve(tiny(agent=agent, ceiling=True, evaluation={"workers": workers}), 20)
        own = make_programs(Layout.of([config], SPEC), make_agent(config, 4, 2))
        assert len({own.plan, own.react, own.eval_plan, own.eval_react}) == count


def test_few_are_kept(compiled: list[Any]) -> None:
    kept, made = shared.Kept(), []

    def get(number: int) -> None:
        kept.get(str(number), lambda: made.append(number) or object())  # type: ignore[arg-type,return-value]

    for number in [*range(shared.MOST), 0, shared.MOST, 0, 1]:
        get(number)
    assert made == [*range(shared.MOST), shared.MOST, 1], "the one that was not used for longest is forgotten"
    assert compiled == []
