"""Programs: which groups train together, what remembers it, and what becomes of each group of one."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.test_cells import made, population
from ubp2.envs.base import EnvSpec
from ubp2.errors import UserError
from ubp2.experiments import costs, programs, resources
from ubp2.experiments.cells import Cell, write_config
from ubp2.experiments.execution import Outcome, Workers
from ubp2.experiments.plans import spec_of
from ubp2.experiments.programs import Program, pack
from ubp2.terminal import cli


def cells(out: Path, tasks: Sequence[str] = ("toy/reach", "gym/Pendulum-v1"), **changes: Any) -> list[Cell]:
    options = {"preset": "cpu", "methods": ("ubp2", "mbp"), "seeds": 2, "steps": 2000, **changes}
    return made(out=out, tasks=tuple(tasks), **options)


def specs(cells: Sequence[Cell], **wider: int) -> dict[str, EnvSpec]:
    """Those of toy/reach for every task, but for the observations of some."""
    reach = spec_of(cells[0].config)
    return {cell.task: reach._replace(obs_dim=wider.get(cell.task, 4)) for cell in cells}


def packed(out: Path, most: int = 8, fixed: bool = False, **changes: Any) -> list[Program]:
    found = cells(out, **changes)
    return pack(found, specs(found), out, lambda _: most, fixed=fixed)


def told(found: Sequence[Program]) -> list[list[str]]:
    """The groups of each program, short."""
    return [[f"{g.cell.folder.parent.name[:3]} {g.cell.method} {g.folder.name}" for g in each.groups] for each in found]


def test_cells_of_two_tasks_share_a_program(tmp_path: Path) -> None:
    found = packed(tmp_path)
    assert told(found) == [["toy ubp2 seeds-0-1", "toy mbp seeds-0-1", "gym ubp2 seeds-0-1", "gym mbp seeds-0-1"]]
    assert (found[0].runs, found[0].number) == (8, 0)


def test_no_program_has_more_runs_than_asked_for(tmp_path: Path) -> None:
    assert told(packed(tmp_path, most=4)) == [
        ["toy ubp2 seeds-0-1", "toy mbp seeds-0-1"],
        ["gym ubp2 seeds-0-1", "gym mbp seeds-0-1"],
    ]
    assert told(packed(tmp_path, most=1, seeds=1)) == [
        ["toy ubp2 seeds-0"],
        ["toy mbp seeds-0"],
        ["gym ubp2 seeds-0"],
        ["gym mbp seeds-0"],
    ]


def test_tasks_of_other_sizes_and_agents_of_other_kinds_are_packed_apart(tmp_path: Path) -> None:
    found = cells(tmp_path, methods=("ubp2", "mbp", "rune"))
    sizes = specs(found) | {"gym/Pendulum-v1": specs(found)["toy/reach"]._replace(obs_dim=7)}
    assert [len(each.groups) for each in pack(found, sizes, tmp_path, lambda _: 64)] == [2, 1, 2, 1]


def test_what_began_together_goes_on_together_and_what_began_alone_alone(tmp_path: Path) -> None:
    """Also where more is asked for later, or less fits into a program."""
    first = packed(tmp_path)
    programs.write(first)
    for group in first[0].groups:
        population(group.folder, [0, 1], 400)
    (lone,) = packed(tmp_path / "old", methods=("ubp2",), tasks=("toy/reach",))
    population(lone.groups[0].folder, [0, 1], 400)  # as versions without programs left it
    assert told(packed(tmp_path, most=2)) == told(first)
    more = packed(tmp_path, seeds=3)
    assert told(more) == [
        told(first)[0],
        ["toy ubp2 seeds-2", "toy mbp seeds-2", "gym ubp2 seeds-2", "gym mbp seeds-2"],
    ]
    assert [each.number for each in more] == [0, 1]
    old = packed(tmp_path / "old")
    assert told(old) == [["toy ubp2 seeds-0-1"], ["toy mbp seeds-0-1", "gym ubp2 seeds-0-1", "gym mbp seeds-0-1"]]


def test_a_plan_that_somebody_made_is_read_as_it_is(tmp_path: Path) -> None:
    """A task of a cluster, on a machine on which less would fit together, knows its program by its number."""
    first = packed(tmp_path, most=4)
    programs.write(first)
    there = packed(tmp_path, most=1, fixed=True)
    assert told(there) == told(first) and [each.number for each in there] == [0, 1]
    again = packed(tmp_path, most=2)  # nothing has begun: planned anew, under new numbers
    assert [each.number for each in again] == [2, 3, 4, 5]
    programs.write(again)
    assert told(packed(tmp_path, most=1, fixed=True)) == told(again)


def test_a_part_of_a_program_leaves_the_rest_together(tmp_path: Path) -> None:
    first = packed(tmp_path)
    programs.write(first)
    for group in first[0].groups:
        population(group.folder, [0, 1], 400)
    (part,) = packed(tmp_path, tasks=("toy/reach",))
    programs.write([part])
    assert part.number == 1
    assert told(packed(tmp_path)) == [
        ["toy ubp2 seeds-0-1", "toy mbp seeds-0-1"],
        ["gym ubp2 seeds-0-1", "gym mbp seeds-0-1"],
    ]


def test_a_file_names_each_run_with_its_configuration(tmp_path: Path) -> None:
    (program,) = packed(tmp_path, methods=("ubp2",))
    programs.write([program])
    for group in program.groups:
        write_config(group.cell)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    found = programs.read(moved / "programs" / "0.json")
    assert [folder.relative_to(moved).as_posix() for folder in found] == [
        "toy-reach/ubp2/seeds-0-1",
        "gym-Pendulum-v1/ubp2/seeds-0-1",
    ]
    assert [(c.env, c.seed) for own in found.values() for c in own] == [
        ("toy/reach", 0),
        ("toy/reach", 1),
        ("gym/Pendulum-v1", 0),
        ("gym/Pendulum-v1", 1),
    ]
    (moved / "programs" / "0.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"0.json is damaged .* remove it"):
        programs.read(moved / "programs" / "0.json")


def outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *attempts: tuple[int, dict[str, Any]]) -> Any:
    """What becomes of two groups whose process ends with these codes and words, and the calls."""
    (program,) = packed(tmp_path, methods=("ubp2",), seeds=1)
    programs.write([program])
    workers, calls = Workers(1, len(attempts) - 1, lambda _: None), list[list[str]]()
    names = {group.folder.parents[1].name[:3]: group.folder for group in program.groups}

    def call(arguments: list[str], log: Path) -> int:
        code, ended = attempts[len(calls)]
        calls.append(arguments)
        file = Path(arguments[arguments.index("--population") + 1]) if "--population" in arguments else None
        if file is not None and ended:
            programs.write_ended(file, {names[name]: own for name, own in ended.items()})
        return code

    monkeypatch.setattr(workers, "_call", call)
    return {o.group.cell.task[:3]: o for o in workers.run([program], clips=False)}, calls


DONE, HALF, BROKEN = ({"finished": True}, {"finished": False}, {"finished": False, "error": "a dead simulator"})


def test_one_failed_run_does_not_fail_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = outcomes(tmp_path, monkeypatch, (1, {"toy": BROKEN, "gym": DONE}))
    assert (found["toy"].state, found["gym"].state) == ("failed", "finished")
    assert found["toy"].reason == "a dead simulator"
    assert (tmp_path / "toy-reach" / "ubp2" / "seeds-0.failed").read_text(encoding="utf-8") == "a dead simulator"


def test_what_failed_is_tried_again_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, calls = outcomes(tmp_path, monkeypatch, (1, {"toy": BROKEN, "gym": DONE}), (0, {}))
    assert {name: own.state for name, own in found.items()} == {"toy": "finished", "gym": "finished"}
    assert found["toy"].attempts == 2 and "--config" in calls[1]


def test_runs_that_were_stopped_are_told_apart_from_those_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = outcomes(tmp_path, monkeypatch, (1, {"toy": BROKEN, "gym": HALF}))
    assert (found["toy"].state, found["gym"].state) == ("failed", "stopped")
    found, _ = outcomes(tmp_path / "b", monkeypatch, (75, {"toy": HALF, "gym": HALF}))
    assert {own.state for own in found.values()} == {"stopped"}


def test_a_process_that_dies_without_a_word_is_tried_again_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, calls = outcomes(tmp_path, monkeypatch, (-9, {}), (0, {}))
    assert {own.state for own in found.values()} == {"finished"} and calls[0] == calls[1]


def test_a_program_gets_the_minutes_that_are_left_and_none_is_begun_without_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for left, words in ((600.0, ["--minutes", "10.000"]), (5.0, None)):
        (program,) = packed(tmp_path, methods=("ubp2",))
        calls: list[list[str]] = []
        workers = Workers(1, 0, lambda _: None, until=time.time() + left)
        monkeypatch.setattr(workers, "_call", lambda arguments, log, calls=calls: calls.append(arguments) or 75)
        found: list[Outcome] = list(workers.run([program], clips=False))
        assert {own.state for own in found} == {"stopped"}
        assert [round(float(call[-1]), 1) for call in calls] == ([10.0] if words else [])


def test_a_damaged_group_does_not_keep_the_others_of_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = packed(tmp_path, methods=("ubp2",))
    for group in program.groups:
        population(group.folder, [0, 1], 400)
        for seed in (0, 1):
            (group.folder / f"s{seed}" / "checkpoints" / "000000100").mkdir(parents=True)
            for name in ("config.yaml", "info.json", "checkpoints/000000100/manifest.json"):
                (group.folder / f"s{seed}" / name).write_text("{}", encoding="utf-8")
    shutil.rmtree(program.groups[0].folder / "s1")
    calls: list[list[str]] = []
    workers = Workers(1, 0, lambda _: None)
    monkeypatch.setattr(workers, "_call", lambda arguments, log: calls.append(arguments) or 0)
    found = {own.group.cell.task[:3]: own for own in workers.run([program], clips=False)}
    assert (found["toy"].state, found["gym"].state) == ("failed", "finished")
    assert "s1 is no whole run folder" in found["toy"].reason
    assert calls == [["train", "--quiet", "--resume", str(program.groups[1].folder)]]


def test_a_table_of_ten_tasks_is_one_program_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "device_kind", lambda: "gpu")
    monkeypatch.setattr("ubp2.experiments.schedules.device_kind", lambda: "gpu")
    monkeypatch.setattr(resources, "_device_megabytes", lambda: 143_000.0)
    said: list[str] = []
    monkeypatch.setattr("ubp2.experiments.reproduce.say", said.append)
    words = ["reproduce", "table1", "--preset", "best", "--steps", "40000", "--methods", "ubp2", "--seeds", "5"]
    assert cli.main([*words, "--minutes", "27", "--out", str(tmp_path), "--dry-run"]) == 0
    plan, schedule = said
    assert "program 0: 50 runs of 10 cells  to do  14 cores, 0.25 GPU" in plan
    assert schedule.startswith("in 27 minutes, 35 s of them for the report: 1 of 1 program to the end")
    assert "program 0: 50 runs of 10 cells, about 1,9" in schedule and "decisions a second" in schedule
    assert cli.main([*words, "--minutes", "9", "--out", str(tmp_path), "--dry-run"]) == 0
    assert "0 of 1 program to the end" in said[-1] and "of this call: to decision " in said[-1]
    assert "the next call goes on with what is left, about" in said[-1]


def test_a_schedule_is_data_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [
        "reproduce",
        "table1",
        "--preset",
        "cpu",
        "--tasks",
        "toy/reach",
        "--seeds",
        "1",
        "--methods",
        "ubp2",
        "mbp",
    ]
    words += ["--steps", "20000", "--out", str(tmp_path), "--dry-run", "--json", "--minutes", "5"]
    assert cli.main(words) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["minutes"] == 5 and data["seconds_for_the_report"] > 10
    first, second = data["programs"]
    assert (first["runs"], first["ends_in_this_call"], second["seconds_of_this_call"]) == (1, False, 0)
    assert 0 < first["decision_after_this_call"] < 20_000 and data["seconds_left_for_later_calls"] > 300
