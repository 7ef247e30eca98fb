"""A signal while a run waits: it ends an evaluation, which is made up for with the same bits, and any compilation."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.training.helpers import assert_same_run, rows, saved, tiny
from ubp2 import api
from ubp2.config.resolving import resolve
from ubp2.training import evaluate, loop
from ubp2.training.programs import Programs
from ubp2.training.state import Counters

CONFIG = tiny(steps=100, evaluation={"every": 60, "episodes": 2}, training={"warmup": 40})


def signalled(folder: Path, nth: int, resumed: bool = False) -> api.RunResult | api.PopulationResult:
    """The run, with SIGTERM at the nth decision of its evaluations."""
    real, left = evaluate.controller, nth

    def controller(*arguments: Any) -> Any:
        act = real(*arguments)

        def counted(*given: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGTERM)
            return act(*given)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "controller", controller)
        return api.resume(folder, progress=False) if resumed else api.train(CONFIG, out=folder, progress=False)


def test_an_evaluation_that_a_signal_ended_is_made_up_for(tmp_path: Path) -> None:
    """In the middle of the run, and of the last evaluation, without which the run is not finished."""
    whole, folder = tmp_path / "whole", tmp_path / "stopped"
    assert api.train(CONFIG, out=whole, progress=False).finished
    result = signalled(folder, 30)
    assert (result.decisions, result.finished) == (60, False)
    assert saved(folder).decision == 60 and rows(folder, "eval") == []
    result = signalled(folder, 100, resumed=True)  # 80 decisions of the evaluation at 60, then those of the last
    assert (result.decisions, result.finished) == (100, False)
    assert saved(folder).decision == 100 and [row["decision"] for row in rows(folder, "eval")] == [60]
    result = api.resume(folder, progress=False)
    assert (result.decisions, result.finished) == (100, True)
    assert result.evaluation["planner/return"] == rows(whole, "eval")[-1]["planner/return"]  # type: ignore[union-attr]
    assert_same_run(folder, whole)


@pytest.mark.parametrize(
    ("agent", "counted", "needed"),
    [
        ("pebble", {"decision": 59}, set()),
        ("pebble", {"decision": 60}, {"plan", "update"}),
        ("pebble", {"decision": 60, "labels": [3, 0]}, {"plan", "update", "fit"}),
        ("pebble", {"decision": 61, "labels": [3, 0]}, {"plan", "update"}),
        ("pebble", {"decision": 80}, {"plan", "update", "select", "judge", "remember", "fit"}),
        ("ubp2", {"decision": 61, "asked": [14, 14]}, {"react", "update"}),
        ("ubp2", {"decision": 61, "asked": [14, 3]}, {"plan", "react", "pick", "update"}),
    ],
)
def test_what_a_decision_may_call_is_waited_for_with_an_ear_for_signals(
    agent: str, counted: dict[str, Any], needed: set[str]
) -> None:
    """A program that is called while it compiles would not hear them."""
    config = resolve(tiny(agent=agent, preferences={"first": 80}), 20)
    waited: list[str] = []

    class Waited(str):
        def ready(self, stopping: Any) -> bool:
            waited.append(self)
            return True

    every: Any = map(Waited, Programs._fields)
    programs = Programs(*every)
    crew: Any = SimpleNamespace(
        config=config,
        size=2,
        people=False,
        stopping=lambda: False,
        members=[SimpleNamespace(config=config)] * 2,
        budgets=np.full(2, config.preferences.budget),
        alive=np.ones(2, bool),
    )
    counters = Counters.start(2)
    for name, value in counted.items():
        setattr(counters, name, value if name == "decision" else np.array(value))
    made: Any = SimpleNamespace(fit=object() if agent == "pebble" else None)
    assert loop._ready(crew, made, programs, counters) and set(waited) == needed
