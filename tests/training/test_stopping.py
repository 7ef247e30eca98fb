"""A signal in the middle of an evaluation ends it, and the run that goes on makes up for it: the same bits."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import assert_same_run, rows, saved, tiny
from ubp2 import api
from ubp2.training import evaluate

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
