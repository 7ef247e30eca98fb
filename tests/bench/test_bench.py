"""Every bench runs at tiny sizes and gives its columns. What it counts and compares is checked, its times are not."""

from __future__ import annotations

import gzip
import importlib
import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.conftest import ACTION, OBS
from tests.envs import probes
from tests.training.helpers import TINY
from ubp2.agents.registry import make_agent
from ubp2.bench import agreement, envs, flops, growth, kernels
from ubp2.bench.options import Plan
from ubp2.bench.report import Report
from ubp2.bench.subject import sized, subject, with_model
from ubp2.bench.timing import compile_all
from ubp2.config.files import from_dict, save_yaml
from ubp2.config.schema import Config, EnvironmentConfig
from ubp2.envs.workers import make_vector
from ubp2.terminal.cli import main

COLUMNS = {
    "plan": {
        "plan": "seeds ms plans_per_s gflop_a_plan tflop_per_s share_of_product_rate speed_up compile_s memory_mb",
        "agreement": "equal_elites_mean equal_elites_least largest_difference",
    },
    "update": {
        "update": "seeds ms updates_per_s gflop_an_update tflop_per_s share_of_product_rate compile_s memory_mb"
    },
    "pebble": {
        "pebble": "what seeds ms loop_ms speed_up over_seed_by_seed gflop share_of_product_rate "
        "speed_up_of_products_alone",
        "rewards of an update": "asked_again_ms share_of_the_sac_update relabelling_over_updates_ms",
        "agreement": "fit relabel sac",
    },
    "train": {
        "train": "env seeds planning_decisions_per_s planning_median_ms policy_decisions_per_s policy_median_ms "
        "session_ms resident_mb workers_mb device_mb",
        "parts of a decision": "seeds phase mean_ms act environment update record episodes rest act_program_ms "
        "update_program_ms record_program_ms",
    },
    "envs": {
        "one environment": "env inline_us worker_us worker_over_inline",
        "workers in lock-step": "env workers step_of_all_us steps_per_s resets_one_by_one_ms resets_side_by_side_ms "
        "resets_speed_up",
    },
    "encoder": {
        "encoders": "encoder million_weights frames ms frames_per_s in_one_program_per_s weights_mb program_mb "
        "compile_s"
    },
    "start": {
        "training": "cache seeds first_decision_s first_plan_s whole_command_s",
        "one process": "seeds first_s second_s second_over_first",
        "other commands": "command seconds",
    },
}


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """Flags that make a bench small."""
    save_yaml(from_dict({**TINY, "env": "toy/reach"}), tmp_path / "tiny.yaml")
    return ["--config", str(tmp_path / "tiny.yaml")]


def run(words: list[str], capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one JSON object that a bench prints."""
    assert main(["bench", *words, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def hold(data: dict[str, Any], columns: dict[str, str]) -> None:
    """The promised columns with finite numbers, and what they were measured on."""
    assert {"bench", "command", "date", "device", "cores", "versions", "source", "tables", "notes"} == data.keys()
    for name, names in columns.items():
        assert data["tables"][name]
        for row in data["tables"][name]:
            assert list(row) == names.split()
            assert all(isinstance(value, str) or math.isfinite(value) for value in row.values()), row


@pytest.mark.slow
def test_plan(tiny: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plan.json"
    words = ["plan", *tiny, "--seeds", "1", "2", "--repetitions", "2", "--profile", "--out", str(out)]
    data = run(words, capfd)
    hold(data, COLUMNS["plan"])
    assert json.loads(out.read_text()) == data
    rows = data["tables"]["plan"]
    assert [row["seeds"] for row in rows] == [1, 2]
    for row in rows:
        assert row["plans_per_s"] == pytest.approx(1e3 * row["seeds"] / row["ms"])
        assert 1e3 * row["tflop_per_s"] == pytest.approx(row["gflop_a_plan"] * row["plans_per_s"])
    assert data["command"] == f"ubp2 bench plan {' '.join(tiny)} --seeds 1 2 --repetitions 2 --profile"
    assert data["notes"][-1] == "--profile needs a GPU: on a CPU there are no kernels to tell apart"
    [same] = data["tables"]["agreement"]
    assert same["largest_difference"] < 1e-3 and same["equal_elites_mean"] >= 0.9


@pytest.mark.slow
def test_growth(tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "SEEDS", (1, 2))
    monkeypatch.setattr(growth, "_around", lambda size: [2 * size])
    rows = growth.measure(sized(Plan(preset="cpu", config=Path(tiny[1]))), repetitions=1)
    assert {row["what"] for row in rows} == {"seeds", "samples", "horizon", "width", "members"}
    assert [row["arithmetic_over_base"] for row in rows if row["what"] == "seeds"] == [1, 2]
    for row in rows:
        assert list(row) == ["what", "size", "ms", "time_over_base", "arithmetic_over_base"]


def test_update(tiny: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    data = run(["update", *tiny, "--repetitions", "2"], capfd)
    hold(data, COLUMNS["update"])
    (row,) = data["tables"]["update"]
    assert row["updates_per_s"] == pytest.approx(1e3 * row["seeds"] / row["ms"])
    assert 1e3 * row["tflop_per_s"] == pytest.approx(row["gflop_an_update"] * row["updates_per_s"])


@pytest.mark.slow
def test_pebble(tiny: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """With more labels than fill their minibatches, for one seed and for two."""
    words = ["pebble", *tiny, "--seeds", "1", "2", "--labels", "12", "--epochs", "2", "--replay", "500"]
    data = run([*words, "--repetitions", "2"], capfd)
    hold(data, COLUMNS["pebble"])
    rows = data["tables"]["pebble"]
    assert [(row["what"], row["seeds"]) for row in rows] == [
        (name, seeds) for name in ("fit", "relabel", "sac") for seeds in (1, 2)
    ]
    assert all(rows[i + 1]["gflop"] == 2 * rows[i]["gflop"] for i in (0, 2, 4))
    [same] = data["tables"]["agreement"]
    assert max(same.values()) < 1e-2


@pytest.mark.slow
def test_train(tiny: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    data = run(["train", *tiny, "--env", "toy/reach", "--decisions", "20", "--seeds", "2"], capfd)
    hold(data, COLUMNS["train"])
    (whole,) = data["tables"]["train"]
    for row in data["tables"]["parts of a decision"]:
        assert 1e3 * row["seeds"] / row["mean_ms"] == pytest.approx(whole[f"{row['phase']}_decisions_per_s"])
        shares = [row[name] for name in ("act", "environment", "update", "record", "episodes", "rest")]
        assert sum(shares) == pytest.approx(1.0) and min(shares) >= 0


def test_envs(capfd: pytest.CaptureFixture[str]) -> None:
    data = run(["envs", "--env", "toy/reach", "--workers", "1", "2", "--repetitions", "3"], capfd)
    hold(data, COLUMNS["envs"])
    rows = data["tables"]["workers in lock-step"]
    assert [row["workers"] for row in rows] == [1, 2]
    for row in rows:
        assert row["steps_per_s"] == pytest.approx(1e6 * row["workers"] / row["step_of_all_us"])
        assert row["resets_speed_up"] == pytest.approx(row["resets_one_by_one_ms"] / row["resets_side_by_side_ms"])


def test_encoder(capfd: pytest.CaptureFixture[str]) -> None:
    data = run(["encoder", "--name", "conv", "--batch", "1", "3", "--pixels", "42", "--repetitions", "2"], capfd)
    hold(data, COLUMNS["encoder"])
    assert [row["frames"] for row in data["tables"]["encoders"]] == [1, 3]


@pytest.mark.slow
def test_start(tiny: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    data = run(["start", *tiny, "--env", "toy/reach"], capfd)
    hold(data, COLUMNS["start"])
    assert [row["cache"] for row in data["tables"]["training"]] == ["cold", "warm"]
    (row,) = data["tables"]["one process"]
    assert row["second_over_first"] == pytest.approx(row["second_s"] / row["first_s"])


def test_all_gathers_the_tables_of_each(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []
    for name in ("plan", "update", "pebble", "envs", "train", "start"):
        module = importlib.import_module(f"ubp2.bench.{name}")
        answer = Report(name, {"numbers": [{"ms": 1.0}]}, ["A note."])
        monkeypatch.setattr(module, "measure", lambda options, answer=answer: asked.append(options) or answer)
    data = run(["all"], capfd)
    names = ["plan", "update", "pebble", "envs", "train toy/reach", "train door-close", "start"]
    hold(data, {f"{name}: numbers": "ms" for name in names})
    kinds = ["Plan", "Update", "Pebble", "Envs", "Train", "Train", "Start"]
    assert [type(options).__name__ for options in asked] == kinds
    assert data["notes"] == ["A note."]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "",
            "ubp2 bench needs what to measure, before any option: plan, update, pebble, train, envs, encoder, start, "
            "all",
        ),
        (
            "plna",
            "unknown bench 'plna'. Did you mean plan? Known: all, encoder, envs, pebble, plan, start, train, update",
        ),
        ("plan --seeds 0", "--seeds must be at least 1, got 0"),
        ("plan --seeds", "--seeds needs at least one number, such as --seeds 1 4"),
        ("pebble --labels 0", "--labels must be at least 1, got 0"),
        ("train --decisions 3", "--decisions must be at least 20, got 3"),
        ("update --config none.yaml", "there is no configuration file none.yaml"),
        ("plan --preset papr", "unknown preset 'papr'. Did you mean paper? Known: best, cpu, demo, paper, pebble"),
        ("encoder --name dinov2-small --pixels 100", "--pixels must be a multiple of 14 for dinov2-small, got 100"),
        (
            "plan --preset pebble",
            "ubp2 bench plan measures agents that plan, and pebble does not; use ubp2 bench pebble",
        ),
        (
            "train --preset pebble",
            "ubp2 bench train measures agents that plan, and pebble does not; use ubp2 bench pebble",
        ),
        (
            "start --preset pebble",
            "ubp2 bench start measures agents that plan, and pebble does not; use ubp2 bench pebble",
        ),
        ("envs --env", "--env needs at least one name, or leave it out"),
        ("encoder --name", "--name needs at least one name, or leave it out"),
        ("envs --out .", "--out is a file, and . is a folder; name a file in it, such as bench.json"),
        ("envs --out no/where.json", "there is no folder no to write where.json into; make it first"),
    ],
)
def test_wrong_options_give_a_sentence(line: str, sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *line.split()]) == 2
    assert capfd.readouterr() == ("", f"ubp2: {sentence}\n")


def test_operations_of_a_plan_are_those_worked_by_hand(config: Config) -> None:
    """3 members of each kind, 16 units, one layer; 3 iterations of 64 sequences of 3 steps, 4 from the policy."""
    dynamics, reward, value = 2 * (5 * 16 + 16 * 3), 2 * (5 * 16 + 16 * 2), 2 * (5 * 16 + 16 * 1)
    policy, step = 2 * (3 * 16 + 16 * 4), 3 * (dynamics + reward)
    by_hand = 3 * 64 * (3 * step + policy + 3 * value) + 4 * 3 * (step + policy)
    assert by_hand == 1_003_008
    assert flops.plan(config, OBS, ACTION) == by_hand


@pytest.mark.parametrize("space", ["observation", "latent"])
def test_operations_of_a_plan_are_those_of_the_traced_program(config: Config, space: str) -> None:
    config = with_model(config, space=space, precision="float32", value_head="twohot")
    agent = make_agent(config, OBS, ACTION)
    key = jax.random.key(0)
    state = jax.eval_shape(agent.init, key)
    arguments = (
        jax.eval_shape(agent.carry),
        jax.ShapeDtypeStruct((OBS,), "float32"),
        jax.ShapeDtypeStruct((), "float32"),
    )
    assert flops.traced(agent.plan, state, *arguments, key) == flops.plan(config, OBS, ACTION)


@pytest.mark.parametrize("space", ["observation", "latent"])
def test_one_network_after_the_other_scores_the_same(tiny: list[str], space: str) -> None:
    config = with_model(sized(Plan(preset="cpu", config=Path(tiny[1]))), space=space, latent_dim=16, reward_members=3)
    own = subject(config, 1)
    compiled = {name: result for name, (_, result) in compile_all(agreement.lower_all(own)).items()}
    assert agreement.compare(own, compiled)["largest_difference"] < 1e-3


def test_kernels_are_read_from_a_trace_and_grouped(tmp_path: Path) -> None:
    def names(kind: str, pid: int, name: str, tid: int | None = None) -> dict[str, Any]:
        return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}

    def event(name: str, pid: int, tid: int, dur: float) -> dict[str, Any]:
        return {"ph": "X", "name": name, "pid": pid, "tid": tid, "dur": dur}

    events = [
        names("process_name", 1, "/device:GPU:0"),
        names("thread_name", 1, "Stream #12(compute)", 7),
        names("thread_name", 1, "XLA Ops", 8),
        names("process_name", 2, "/host:CPU"),
        names("thread_name", 2, "Stream of thoughts", 7),
        event("nvjet_hsh_128x256", 1, 7, 60.0),
        event("norm_mish", 1, 7, 30.0),
        event("loop_add_fusion", 1, 7, 10.0),
        event("nvjet_hsh_128x256", 1, 8, 500.0),
        event("gemm on the host", 2, 7, 500.0),
        {"ph": "X"} | event("loop_add_fusion", 1, 7, 10.0),
    ]
    (tmp_path / "plugins").mkdir()
    with gzip.open(tmp_path / "plugins" / "host.trace.json.gz", "wt") as stream:
        json.dump({"traceEvents": events}, stream)
    found = kernels.read_trace(tmp_path)
    rows = {row["what"]: row for row in kernels.grouped(found, calls=2)}
    assert rows["products"] == {"what": "products", "ms": 0.03, "kernels": 0.5, "share": 60 / 110}
    assert rows["norm_mish"]["share"] == 30 / 110 and rows["everything else"]["kernels"] == 1
    assert rows["all"]["ms"] == 0.055
    assert [row["what"] for row in kernels.largest(found)][:2] == ["nvjet_hsh_128x256", "norm_mish"]


def test_tables_are_readable() -> None:
    report = Report("x", {"first": [{"env": "toy", "long_name": 1234.5}, {"env": "y", "long_name": None}]}, ["A note."])
    assert report.text() == "first\n  env  long name\n  toy       1234\n  y            -\n\nA note."


def test_episodes_that_end_begin_anew() -> None:
    """Three decisions an episode: after seven the third has had one."""
    made = make_vector(probes.Terminating, EnvironmentConfig(in_process=True), 2)
    step = envs._stepping(made)
    for _ in range(7):
        step()
    made.send(np.zeros((2, 1)))
    assert made.receive().true_reward.tolist() == [1.0, 1.0]  # an episode that is over gives nothing
    assert [env._env.steps for env in made._envs] == [2, 2]  # type: ignore[attr-defined]
    made.close()
