"""What a user is told before anything runs, and docs/reproduce.md as the code has it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiments.test_cells import evaluated, made, population
from ubp2.config.schema import given
from ubp2.errors import UserError
from ubp2.experiments import costs
from ubp2.experiments.catalogue import ALIASES
from ubp2.experiments.cells import Group, groups
from ubp2.experiments.options import settings
from ubp2.experiments.programs import Program
from ubp2.experiments.reproduce import listing
from ubp2.terminal import cli

ROOT = Path(__file__).parents[2]


def test_without_a_name_the_experiments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce"]) == 0
    text = capsys.readouterr().out
    assert "table1" in text and "Figure 4 (c)" in text
    found = listing()
    assert found["table1"]["also"] == ["fig3", "fig-main"] and found["table2"]["also"] == []
    assert {name for own in found.values() for name in own["also"]} == set(ALIASES)


def test_the_plan_says_what_is_there_and_what_the_rest_costs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (cell,) = made(out=tmp_path, preset="cpu", tasks=("toy/reach",), methods=("ubp2",), seeds=2, steps=3000)
    population(cell.folder / "seeds-0-1", [0, 1], 3000)
    command = ["reproduce", "table1", "--tasks", "toy/reach", "--methods", "ubp2", "mbp", "--preset", "cpu"]
    command += ["--seeds", "3", "--steps", "3000", "--out", str(tmp_path), "--dry-run", "--json", "--together", "3"]
    assert cli.main(command) == 0
    told = capfd.readouterr()
    data = json.loads(told.out)
    states = {(group["method"], tuple(group["seeds"])): group["state"] for group in data["groups"]}
    assert states == {("ubp2", (0, 1)): "finished", ("ubp2", (2,)): "to do", ("mbp", (0, 1, 2)): "to do"}
    assert "left: 12,000 decisions" in told.err
    assert not (tmp_path / "toy-reach" / "mbp").exists(), "a dry run writes nothing"


def test_programs_of_one_cell_that_stand_alike_are_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell,) = made(out=tmp_path, preset="cpu", tasks=("toy/reach",), methods=("ubp2",), seeds=1, steps=3000)
    evaluated(cell.folder / "seeds-0", 3000)
    monkeypatch.setattr(costs, "RATES", {})
    command = ["reproduce", "table1", "--tasks", "toy/reach", "--methods", "ubp2", "mbp", "--preset", "cpu"]
    assert cli.main([*command, "--seeds", "4", "--steps", "3000", "--out", str(tmp_path), "--dry-run"]) == 0
    lines = [line.split("  ") for line in capfd.readouterr().err.splitlines()[1:-1]]
    assert [[word.strip() for word in line if word] for line in lines] == [
        ["toy-reach ubp2, seed 0", "finished"],
        ["toy-reach ubp2, seeds 1 to 3 in 3 programs", "to do", "2 cores each"],
        ["toy-reach mbp, seeds 0 to 3 in 4 programs", "to do", "2 cores each"],
    ]


def test_time_goes_by_what_this_machine_has_shown(tmp_path: Path) -> None:
    one, two = made(out=tmp_path, preset="cpu", tasks=("door-close",), methods=("ubp2", "mbp"), seeds=1, steps=4000)
    evaluated(one.folder / "seeds-0", 4000)
    row = {"kind": "train", "decision": 4000, "time/decisions_per_second": 10.0}
    with (one.folder / "seeds-0" / "metrics.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")
    found = [group for cell in (one, two) for group in groups(cell)]
    seen = costs.rates_seen([Program((each,)) for each in found])
    assert seen == {"planning 3": pytest.approx(0.1)}
    cost = costs.estimate(found[1], "cpu", 100, seen)
    assert cost.measured and cost.seconds == pytest.approx(400.0)
    assert costs.estimate(found[0], "cpu", 100, seen).decisions == 0


def test_a_longer_plan_costs_more_and_the_policy_costs_less(tmp_path: Path) -> None:
    near, far = (
        made("table-horizon", out=tmp_path, tasks=("door-close",), methods=(name,))[0]
        for name in ("horizon-7", "horizon-11")
    )
    seconds = [costs.estimate(Group(cell, 0, 10), "paper", 100, {}, "gpu").seconds for cell in (near, far)]
    assert None not in seconds and seconds[0] < seconds[1] < 2 * seconds[0]  # type: ignore[operator]


def test_updates_over_longer_sub_sequences_cost_more_too() -> None:
    """They take nearly all the time of the preset best."""
    near, far = (made("table-horizon", tasks=("door-close",), methods=(f"horizon-{h}",), preset="best", settings={
        "evaluation.every": 0})[0] for h in (7, 11))  # fmt: skip
    seconds = [given(costs.estimate(Group(cell, 0, 1), "best", 100, {}, "gpu").seconds) for cell in (near, far)]
    assert (seconds[1] - 60) / (seconds[0] - 60) == pytest.approx(11 / 7, rel=0.01)
    (short,) = made(
        "table-horizon", tasks=("door-close",), methods=("horizon-11",), preset="best",
        settings={"evaluation.every": 0, "training.horizon": 7},
    )  # fmt: skip
    assert given(costs.estimate(Group(short, 0, 1), "best", 100, {}, "gpu").seconds) < seconds[1]


def test_evaluations_at_the_end_alone_cost_less_than_every_few_thousand_decisions() -> None:
    def seconds(every: int) -> float:
        (cell,) = made(tasks=("door-close",), methods=("ubp2",), settings={"evaluation.every": every})
        return given(costs.estimate(Group(cell, 0, 10), "paper", 100, {}, "gpu").seconds)

    assert seconds(0) < seconds(100_000) < seconds(5000)


def test_an_unknown_rate_is_said_to_be_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "RATES", {})
    (cell,) = made(out=tmp_path, tasks=("door-close",), methods=("ubp2",))
    assert costs.estimate(Group(cell, 0, 10), "paper", 100, {}).seconds is None


@pytest.mark.parametrize(
    ("seconds", "words"), [(40, "40 s"), (600, "10 min"), (7200, "2.0 h"), (90_000, "25 h"), (500_000, "5.8 days")]
)
def test_times_are_told_as_people_do(seconds: float, words: str) -> None:
    assert costs.duration(seconds) == words


def test_settings_are_yaml_lines() -> None:
    assert settings(("teacher.name: noisy", "planner.horizon: 5")) == {"teacher.name": "noisy", "planner.horizon": 5}
    with pytest.raises(UserError, match="--set expects 'dotted.field: value'"):
        settings(("planner.horizon=5",))


def test_visual_tasks_are_planned_without_rendering(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dm_control")
    monkeypatch.setattr("ubp2.envs.visual.Watched.__init__", lambda *_: pytest.fail("rendered"))
    assert cli.main(["reproduce", "fig-visual", "--preset", "paper", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert "Visual observations (appendix, Figure 5): 10 cells" in told.out + told.err
    found = made("fig-visual", preset="best", tasks=(), methods=(), steps=1_000_000)
    assert {cell.config.preferences.budget for cell in found} == {5000}
    assert {cell.config.env for cell in found} == {"dmc-visual/walker-walk", "dmc-visual/cheetah-run"}
    (short,) = made("fig-visual", preset="best", tasks=("walker-walk",), methods=("pebble",), steps=20_000)
    assert given(short.config.preferences.budget) < 5000


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    script = (
        "import sys; sys.path.insert(0, 'benchmarks'); import reproduce_times as t; "
        "sys.stdout.write(t.render(t.PAGE.read_text(encoding='utf-8')))"
    )
    made_anew = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert made_anew.stdout == page, "run: python benchmarks/reproduce_times.py"


@pytest.mark.slow
def test_the_commands_of_the_page_are_commands() -> None:
    """They are planned, and not run."""
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    commands = re.findall(r"`(ubp2 reproduce [^`]+)`", page)
    assert len(commands) > 10
    for line in {line for line in commands if "NAME" not in line}:
        words = [word for word in line.split()[1:] if word not in ("--on", "ray", "--address", "auto")]
        assert cli.main([*words, "--dry-run", "--json"]) == 0, line


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("fig-horizon --set planner.horizon:_3", "planner.horizon is what makes horizon-11 the method that it is"),
        ("fig-horizon --set planner:_{horizon:_3}", "planner.horizon is what makes horizon-11"),
        ("fig-feedback --set preferences.budget:_9", "preferences.budget is what makes budget-25 the method"),
        ("table1 --set env:_toy/reach", "--set env would make all cells the same; choose with --tasks"),
        ("table1 --set seed:_1", "--set seed would make all cells the same; choose with --seeds"),
        (
            "table2 --set preferences.strategy:_entropy",
            "1111 on metaworld/door-close: ablation 1111 sets preferences.strategy to optimistic, and entropy was",
        ),
        ("table2 --set preferences:_{strategy:_entropy}", "ablation 1111 sets preferences.strategy to optimistic"),
        ("table2 --methods 0111 --set optimism.reward:_true", "0111 on metaworld/door-close: ablation 0111 sets"),
        (
            "table1 --set preferences.strategy:_entropy",
            "mbp on metaworld/door-close: agent mbp sets preferences.strategy",
        ),
        ("table1 --steps 3000 --set steps:_9", "--steps and --set steps both say how long runs are"),
    ],
)
def test_a_setting_does_not_undo_what_tells_cells_apart(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reproduce", *(word.replace("_", " ") for word in words.split()), "--dry-run"]) == 2
    assert sentence in capsys.readouterr().err


def test_a_setting_that_every_chosen_method_keeps_is_everybodys(capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs at random for all are what mbp has; without mbp any strategy is."""
    words = ["table1", "--tasks", "toy/reach", "--seeds", "1", "--preset", "best", "--dry-run", "--set"]
    assert cli.main(["reproduce", *words, "preferences.strategy: uniform"]) == 0
    words = [*words[:1], "--methods", "ubp2", "rune", *words[1:]]
    assert cli.main(["reproduce", *words, "preferences.strategy: entropy"]) == 0


def test_a_setting_that_no_chosen_method_has_is_everybodys(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fig-feedback", "--methods", "budget-100", "--tasks", "toy/reach", "--seeds", "1", "--preset", "cpu"]
    assert cli.main(["reproduce", *words, "--set", "preferences.budget: 9", "--dry-run"]) == 0
