"""Figures from made-up runs: what is drawn, what is left out, and what cannot be drawn."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image

from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.errors import UserError
from ubp2.evaluation.curves import Curve, RunCurves, mean_curve, read_run
from ubp2.evaluation.plots import plot_runs
from ubp2.storage.runs import Metrics, Run


def make_run(
    folder: Path, env: str = "toy/reach", seed: int = 0, steps: int = 3000, agent: Literal["ubp2", "pebble"] = "ubp2"
) -> Path:
    config = dataclasses.replace(preset("cpu", env), seed=seed, steps=steps, agent=agent)
    Run.create(folder, resolve(config, 50)).close()
    with Metrics(folder, tensorboard=False) as metrics:
        for decision in range(500, steps + 1, 500):
            progress = decision / steps
            metrics.write("train", decision, {"bonus/reward": 1 - progress, "lambda/reward": 1.0, "loss/value": np.nan})
            metrics.write("labels", decision, {"labels/used": decision // 25, "labels/accuracy_before": progress})
            metrics.write("eval", decision, {"policy/success_any": progress, "policy/return": 10 * progress + seed})
    return folder


def test_mean_is_over_the_decisions_that_all_runs_cover() -> None:
    short = Curve(np.array([0.0, 10.0, 20.0]), np.array([0.0, 1.0, 2.0]))
    long = Curve(np.array([10.0, 15.0, 20.0, 30.0]), np.array([3.0, 3.5, 4.0, 9.0]))
    mean = mean_curve([short, long, Curve(np.array([]), np.array([]))])
    np.testing.assert_allclose(mean.decision, [10, 15, 20])
    np.testing.assert_allclose(mean.value, [2.0, 2.5, 3.0])
    assert mean_curve([]).decision.size == 0


def test_curve_leaves_gaps_out_and_keeps_the_last_of_equal_decisions() -> None:
    rows = [
        {"kind": "train", "decision": 20, "x": 2.0},
        {"kind": "train", "decision": 10, "x": None},
        {"kind": "train", "decision": 0, "x": 0.0},
        {"kind": "eval", "decision": 20, "x": 3.0},
        {"kind": "eval", "decision": 30, "y": 1.0},
    ]
    curve = RunCurves("toy/reach", "ubp2", 0, None, rows).curve("x")
    assert curve.decision.tolist() == [0, 20] and curve.value.tolist() == [0, 3]


def test_read_run_knows_environment_seed_and_budget(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "a", seed=3))
    assert (run.env, run.seed, run.budget) == ("toy/reach", 3, 80)
    assert run.curve("loss/value").decision.size == 0


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_seeds_of_one_environment_in_every_format(tmp_path: Path, suffix: str) -> None:
    runs = [make_run(tmp_path / str(seed), seed=seed) for seed in range(3)]
    out = tmp_path / "new folder" / f"curve{suffix}"
    plot_runs(runs, out)
    text = out.read_bytes()
    assert len(text) > 5000
    if suffix == ".svg":  # text stays text, so the legend can be read
        assert "mean of 3 seeds" in text.decode() and "toy/reach" in text.decode()


def test_several_environments_are_named_with_their_seeds(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(seed), seed=seed) for seed in range(2)]
    runs.append(make_run(tmp_path / "pendulum", env="gym/Pendulum-v1", steps=5000))
    plot_runs(runs, tmp_path / "curve.svg")
    drawn = (tmp_path / "curve.svg").read_text()
    assert "toy/reach, mean of 2 seeds" in drawn and "gym/Pendulum-v1, one seed" in drawn


def test_agents_are_not_averaged_with_each_other(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"{agent}{i}", seed=i, agent=agent) for agent in ("ubp2", "pebble") for i in range(2)]
    plot_runs(runs, tmp_path / "agents.svg")
    text = (tmp_path / "agents.svg").read_text(encoding="utf-8")
    assert "ubp2 on toy/reach, mean of 2 seeds" in text and "pebble on toy/reach, mean of 2 seeds" in text
    assert "planner" not in text, "no run has one"


def test_panels_without_data_are_left_out(tmp_path: Path) -> None:
    full = make_run(tmp_path / "full")
    bare = tmp_path / "bare"
    Run.create(bare, Run.open(full).config).close()
    with Metrics(bare, tensorboard=False) as metrics:
        metrics.write("eval", 0, {"policy/success_any": 0.5})
    plot_runs([full], tmp_path / "full.png")
    plot_runs([bare], tmp_path / "bare.png")
    with Image.open(tmp_path / "full.png") as large, Image.open(tmp_path / "bare.png") as small:
        assert large.width > 2 * small.width


def test_bonuses_of_very_different_sizes_have_a_logarithmic_axis_unless_one_is_0(tmp_path: Path) -> None:
    drawn = [bonuses(tmp_path / name, small) for name, small in (("far", 0.02), ("near", 0.5), ("none", 0.0))]
    assert ["Uncertainty bonus (log)" in text for text in drawn] == [True, False, False]


def bonuses(run: Path, small: float) -> str:
    Run.create(run, resolve(preset("cpu"), 50)).close()
    with Metrics(run, tensorboard=False) as metrics:
        for decision in (500, 1000):
            metrics.write("train", decision, {"bonus/reward": decision / 500, "bonus/dynamics": small})
    plot_runs([run], run / "curve.svg")
    return (run / "curve.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(("best", "said"), [(0.0, True), (0.1, False)])
def test_a_return_of_nothing_but_0_is_said_to_be_no_reward(tmp_path: Path, best: float, said: bool) -> None:
    run = tmp_path / "run"
    Run.create(run, resolve(preset("cpu"), 50)).close()
    with Metrics(run, tensorboard=False) as metrics:
        metrics.write("eval", 500, {"policy/return": 0.0, "planner/return": 0.0})
        metrics.write("eval", 1000, {"policy/return": 0.0, "planner/return": best})
    plot_runs([run], tmp_path / "curve.svg")
    assert ("always 0" in (tmp_path / "curve.svg").read_text(encoding="utf-8")) is said


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    Run.create(empty, resolve(preset("cpu"), 50)).close()
    with pytest.raises(UserError, match=r"nothing to draw yet: no metrics in .*empty"):
        plot_runs([empty], tmp_path / "curve.png")
    with pytest.raises(UserError, match=r"a figure is written as \.png, \.pdf, \.svg, got 'curve\.txt'"):
        plot_runs([empty], Path("curve.txt"))
    with pytest.raises(UserError, match="is not a run folder"):
        plot_runs([tmp_path / "nowhere"], tmp_path / "curve.png")
