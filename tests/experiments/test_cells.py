"""Cells: what each method trains, which seeds are missing, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ubp2.errors import UserError
from ubp2.experiments import reproduce
from ubp2.experiments.catalogue import EXPERIMENTS, chosen_methods, chosen_tasks, find
from ubp2.experiments.cells import Cell, cells, groups, write_config
from ubp2.experiments.options import Reproduce


def made(name: str = "table1", out: Path = Path("out"), **changes: Any) -> list[Cell]:
    experiment = find(name)
    tasks = chosen_tasks(experiment, changes.pop("tasks", ()))
    options = {"preset": "paper", "steps": None, "seeds": None, "settings": {}, **changes}
    methods = chosen_methods(experiment, options.pop("methods", ()))
    lengths = dict.fromkeys(tasks, 100)
    return cells(experiment, tasks, methods, **options, episode_decisions=lengths, out=out)


def evaluated(folder: Path, decision: int) -> None:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(json.dumps({"kind": "eval", "decision": decision}) + "\n", encoding="utf-8")


def population(folder: Path, seeds: list[int], decision: int) -> None:
    for seed in seeds:
        evaluated(folder / f"s{seed}", decision)
    (folder / "population.json").write_text(json.dumps({"seeds": seeds}), encoding="utf-8")


def test_the_paper_preset_is_the_papers_experiment() -> None:
    found = {(cell.task, cell.method): cell for cell in made()}
    assert len(found) == 40
    hammer = found["metaworld/hammer", "ubp2"]
    assert (hammer.seeds, hammer.config.steps, hammer.config.preferences.budget) == (15, 1_000_000, 10_000)
    assert hammer.config.preferences.strategy == "optimistic"
    assert found["metaworld/hammer", "rune"].config.preferences.budget == 10_000


@pytest.mark.parametrize("preset", ["paper", "best", "cpu", "demo"])
def test_methods_share_everything_but_the_method(preset: str) -> None:
    """Labels, evaluations and decisions are the same for all, also for agents that have a preset of their own."""
    for steps in (None, 4000):
        by_task: dict[str, set[Any]] = {}
        for cell in made(preset=preset, steps=steps if preset != "paper" else None):
            own = cell.config
            shared = (own.steps, own.preferences.budget, own.evaluation.every, own.evaluation.episodes)
            protocol = (own.environment, own.teacher, own.evaluation.seed)
            by_task.setdefault(cell.task, set()).add((shared, protocol, cell.seeds))
        assert all(len(kinds) == 1 for kinds in by_task.values())


def test_ablations_switch_what_their_name_says() -> None:
    found = {cell.method: cell.config for cell in made("table2", tasks=("door-close",))}
    assert set(found) == set(EXPERIMENTS["table2"].published)
    for switches, config in found.items():
        optimism = (config.optimism.reward, config.optimism.dynamics, config.optimism.value)
        strategy = config.preferences.strategy == "optimistic"
        assert "".join("01"[on] for on in (*optimism, strategy)) == switches


def test_reduced_feedback_is_a_share_of_the_budget() -> None:
    budgets = {cell.method: cell.config.preferences.budget for cell in made("fig-feedback", tasks=("faucet-open",))}
    assert budgets == {"budget-100": 2000, "budget-50": 1000, "budget-25": 500}


def test_short_runs_are_evaluated_and_saved_several_times_and_ask_in_time() -> None:
    for cell in made(preset="cpu", steps=4000, tasks=("door-close",), methods=("ubp2", "rune")):
        assert cell.config.evaluation.every == cell.config.checkpoint.every == 800
        assert cell.config.preferences.budget == 100  # 20 every 500, in the first two thirds
    (cell,) = made(preset="cpu", tasks=("door-close",), methods=("ubp2",))
    assert cell.config.checkpoint.every == 2500
    (cell,) = made(
        preset="cpu", steps=4000, tasks=("door-close",), methods=("ubp2",), settings={"checkpoint.every": 999}
    )
    assert cell.config.checkpoint.every == 999


def test_a_demo_has_no_more_labels_than_its_preset() -> None:
    budgets = {
        made(preset="demo", tasks=("toy/reach",), steps=steps)[0].config.preferences.budget for steps in (1500, 20_000)
    }
    assert budgets == {80, 300}


def test_a_cell_of_before_goes_on_with_fewer_checkpoints(tmp_path: Path) -> None:
    options: dict[str, Any] = {"out": tmp_path, "preset": "cpu", "steps": 4000, "tasks": ("door-close",)}
    (before,) = made(**options, methods=("ubp2",), settings={"checkpoint.every": 2500})
    path = write_config(before)
    (cell,) = made(**options, methods=("ubp2",))
    assert groups(cell) and "every: 2500" in write_config(cell).read_text(encoding="utf-8")
    assert path == write_config(cell)


def test_settings_of_the_user_come_last_and_count_for_the_budget() -> None:
    settings = {"preferences.every": 100, "planner.horizon": 5}
    (cell,) = made(
        preset="cpu", steps=600, tasks=("toy/reach",), methods=("ubp2",), settings={"training.warmup": 50, **settings}
    )
    assert cell.config.planner.horizon == 5
    assert cell.config.preferences.budget == 80


def test_mistakes_are_told_before_anything_runs() -> None:
    with pytest.raises(UserError, match="unknown setting 'planner.horizn'"):
        made(settings={"planner.horizn": 3})
    with pytest.raises(UserError, match="ubp2 on metaworld/door-close: planner.horizon must be at least 1"):
        made(tasks=("door-close",), settings={"planner.horizon": 0})
    with pytest.raises(UserError, match="unknown preset of a sweep 'pebble'. Known: best, cpu, demo, paper"):
        made(preset="pebble")
    with pytest.raises(UserError, match="unknown preset of an experiment 'demo'. Known: best, cpu, paper"):
        reproduce._request(Reproduce("table1", preset="demo"))
    with pytest.raises(UserError, match="--seeds must be at least 1, got 0"):
        made(seeds=0)
    with pytest.raises(UserError, match="Did you mean door-close"):
        made(tasks=("door-clos",))
    with pytest.raises(UserError, match="unknown method of table1 'sac'"):
        made(methods=("sac",))
    with pytest.raises(UserError, match="unknown experiment 'tabel1'. Did you mean table1"):
        find("tabel1")


def test_places_in_the_paper_are_names_too() -> None:
    assert find("fig4a") is EXPERIMENTS["fig-selection"]
    assert find("table7") is EXPERIMENTS["table-horizon"]


def test_new_seeds_train_together_and_more_seeds_get_a_folder_beside(tmp_path: Path) -> None:
    (cell,) = made(out=tmp_path, preset="cpu", tasks=("door-close",), methods=("ubp2",), seeds=2)
    assert [(g.folder.name, g.finished) for g in groups(cell)] == [("seeds-0-1", False)]
    population(cell.folder / "seeds-0-1", [0, 1], 20_000)
    assert [(g.folder.name, g.finished) for g in groups(cell)] == [("seeds-0-1", True)]
    (more,) = made(out=tmp_path, preset="cpu", tasks=("door-close",), methods=("ubp2",), seeds=5)
    assert [(g.folder.name, g.finished) for g in groups(more)] == [("seeds-0-1", True), ("seeds-2-4", False)]
    assert [g.folder.name for g in groups(more, together=2)] == ["seeds-0-1", "seeds-2-3", "seeds-4"]


def test_a_seed_that_is_behind_makes_its_group_unfinished(tmp_path: Path) -> None:
    (cell,) = made(out=tmp_path, preset="cpu", tasks=("door-close",), methods=("ubp2",), seeds=2)
    population(cell.folder / "seeds-0-1", [0, 1], 20_000)
    (cell.folder / "seeds-0-1" / "s1" / "metrics.jsonl").write_text("", encoding="utf-8")
    (group,) = groups(cell)
    assert group.decision == 0 and not group.finished


def test_a_broken_folder_counts_as_nothing_done(tmp_path: Path) -> None:
    (cell,) = made(out=tmp_path, preset="cpu", tasks=("door-close",), methods=("ubp2",), seeds=1)
    (cell.folder / "seeds-0").mkdir(parents=True)
    (cell.folder / "seeds-0" / "metrics.jsonl").write_text("no json\n", encoding="utf-8")
    (group,) = groups(cell)
    assert not group.finished


def test_other_settings_in_the_same_folder_are_refused_by_name(tmp_path: Path) -> None:
    (cell,) = made(out=tmp_path, preset="cpu", tasks=("door-close",), methods=("ubp2",))
    write_config(cell)
    groups(cell)
    (other,) = made(
        out=tmp_path, preset="cpu", tasks=("door-close",), methods=("ubp2",), settings={"planner.horizon": 4}
    )
    with pytest.raises(UserError, match=r"planner.horizon: 3 -> 4.*--out"):
        groups(other)


def test_a_short_run_of_the_paper_asks_in_its_first_two_thirds() -> None:
    """Also with the paper's sizes: Hammer's 10,000 labels do not come within 50,000 decisions."""
    budgets = {cell.method: cell.config.preferences.budget for cell in made(steps=50_000, tasks=("hammer",))}
    assert set(budgets.values()) == {50 * (50_000 * 2 // 3 // 2500)}


def test_tasks_that_the_paper_has_not_ask_as_often_for_every_method() -> None:
    """The paper's preset knows no other task: there all methods have `best`, those without a model too."""
    found = made("fig-visual")
    assert {(c.config.preferences.every, c.config.preferences.per_session) for c in found} == {(500, 20)}
    assert {cell.controller for cell in found} == {"acting"}
    assert {cell.controller for cell in made("table-conservative")} == {"planner"}
