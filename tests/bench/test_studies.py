"""The queue of studies is one that can run, and packs into programs (`benchmarks/study.py`)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.bench.scripts import BENCHMARKS
from tests.bench.studies import QUEUE
from ubp2.config.presets import PAPER_TASKS, preset
from ubp2.errors import UserError


def test_the_queue_has_settings_that_exist_or_are_coming(queue: ModuleType, packing: ModuleType) -> None:
    studies = queue.load()
    coming = set(yaml.safe_load(queue.QUEUE.read_text(encoding="utf-8"))["coming"])
    for study in studies:
        assert set(queue.unknown_settings(study)) <= coming
        for cell in study.cells:
            if not coming & set(cell.settings):
                packing.program_key(study.config(cell, study.seeds[0]))  # resolves it, which checks every value
    first = studies[0]
    assert (first.name, first.decisions, len(list(first.runs()))) == ("ten-tasks", 40_000, 50)
    assert {cell.env for cell in first.cells} == set(PAPER_TASKS)


def test_a_setting_to_come_is_no_error_before_the_study_runs(
    queue: ModuleType, packing: ModuleType, path: Path
) -> None:
    text = QUEUE.replace("variants: {best: {}}", "variants: {best: {model.colour: blue}}").replace(
        "  # a word about it", ""
    )
    path.write_text(text, encoding="utf-8")
    study = queue.load(path)[0]
    assert queue.unknown_settings(study) == ["model.colour"]
    with pytest.raises(UserError, match="study first, best on metaworld/door-close: unknown setting 'model.colour'"):
        packing.plan_of([study])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("question: Does it?", "questions: Does it?", "unknown key 'questions'. Did you mean question"),
        ("    changes: A page.\n", "", "study first lacks changes"),
        ("name: second", "name: first", "two studies called first"),
        ("variants: {best: {}}", "variants: {}", "study first has no cells"),
        ("variants: {best: {}}", "variants: {best: {steps: 3}}", "steps belongs to the study"),
        ("envs: [door-close]", "envs: all", "envs must be a list of environments, or the word paper"),
        ("status: open}", "status: opened}", "unknown status 'opened'. Did you mean open"),
        ("seeds: 2", "seeds: none", "seeds must be a count"),
        ("decisions: 2000", "decisions: 2e3", "must be whole numbers"),
        ("studies:", "study:", "must have a list 'studies'"),
        ("studies:", "studies: [", "is not valid YAML"),
    ],
)
def test_a_queue_with_a_mistake_is_told_in_a_sentence(
    queue: ModuleType, path: Path, old: str, new: str, message: str
) -> None:
    path.write_text(QUEUE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UserError, match=message.replace("?", "\\?").replace("[", "\\[")):
        queue.load(path)


def test_studies_of_one_program_are_packed_while_the_minutes_last(
    queue: ModuleType, packing: ModuleType, path: Path
) -> None:
    studies = queue.load(path)
    alone = packing.plan_of(studies[:1]).seconds() / 60
    both = packing.plan_of(studies).seconds() / 60
    plan = packing.pack(studies, 1.01 * both / packing.MARGIN)
    assert [study.name for study in plan.studies] == ["first", "second"]
    assert len(plan.programs()) == 1
    assert len(plan.members) == 2 + 8
    assert len(plan.configs) == 8, "the runs that both ask for are trained once"
    plan = packing.pack(studies, 0.99 * both / packing.MARGIN)
    assert [study.name for study in plan.studies] == ["first"]
    assert plan.left_out[0][0] == "second"
    assert "minutes with first" in plan.left_out[0][1]
    with pytest.raises(UserError, match="no open study fits into .* minutes; the shortest is first"):
        packing.pack(studies, 0.99 * alone / packing.MARGIN)
    assert packing.pack(studies, 1e6, most=1).left_out[0][0] == "second"


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ("envs: [door-close]\n    decisions: 3000", None),
        ("envs: [door-close]\n    base: {model.width: 32}", None),
        ("envs: [door-close]\n    status: done", "is done"),
        ("envs: [door-close]\n    status: running", "is running"),
        ("envs: [door-close]\n    status: needs code", "needs code"),
        ("envs: [door-close]\n    base: {model.colour: 1}", "this checkout has no setting model.colour"),
    ],
)
def test_what_is_not_packed_says_why(
    queue: ModuleType, packing: ModuleType, path: Path, new: str, reason: str | None
) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace("envs: [door-close]", new, 1), encoding="utf-8")
    plan = packing.pack(queue.load(path), 1e6)
    if reason is None:  # it comes first, and the other does not share its program
        assert plan.left_out == [("second", "its sizes or its clock differ from first")]
    else:
        assert plan.left_out[0][0] == "first"
        assert plan.left_out[0][1].startswith(reason)


@pytest.mark.parametrize("fallback", [True, False])
def test_members_that_may_differ_share_a_program(
    packing: ModuleType, fallback: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fallback:
        monkeypatch.setattr(packing, "_key", packing._fallback_key)
    base = packing.program_key(preset("best", "metaworld/door-close"))
    alike: list[dict[str, Any]] = [{"seed": 3}, {"agent": "mbp"}, {"ablation": "1011"}, {"training": {"rho": 0.5}}]
    alike += [{"preferences": {"strategy": "entropy", "per_session": 5, "budget": 40}}, {"teacher": "noisy"}]
    for settings in alike:
        assert packing.program_key(preset("best", "metaworld/hammer", **settings)) == base
    other: list[dict[str, Any]] = [{"model": {"width": 32}}, {"steps": 2000}, {"planner": {"horizon": 3}}]
    for settings in other:
        assert packing.program_key(preset("best", "metaworld/hammer", **settings)) != base
    assert packing.program_key(preset("best", "toy/reach")) != base


def test_methods_whose_names_differ_in_signs_have_folders_of_their_own(
    queue: ModuleType, packing: ModuleType, path: Path
) -> None:
    own = "variants: {a+b: {training.rho: 0.5}, a b: {}}"
    path.write_text(QUEUE.replace("variants: {best: {}}", own, 1), encoding="utf-8")
    folders = list(packing.plan_of(queue.load(path)[:1]).configs)
    assert folders == [f"first/door-close-a-b{more}/s{seed}" for more in ("", "-2") for seed in (0, 1)]


def test_times_are_corrected_by_what_was_measured(packing: ModuleType) -> None:
    assert packing.measured([{"timing": None}]) == 1.0
    told = [{"device": "NVIDIA H200", "timing": {"seconds": own, "estimated": 100.0}} for own in (110, 150, 400)]
    assert packing.measured(told) == 1.5
    assert packing.measured([{**each, "device": "cpu"} for each in told]) == 1.0


def test_the_commands_of_the_page_are_understood(study: ModuleType, queue: ModuleType) -> None:
    page = (BENCHMARKS.parent / "docs" / "reproduce.md").read_text(encoding="utf-8")
    lines = re.findall(r"^python3? benchmarks/study\.py (.*)$", page, re.MULTILINE)
    assert len(lines) >= 8
    for line in lines:
        parsed = study._parser().parse_args(shlex.split(line, comments=True))
        queue.find(queue.load(), getattr(parsed, "names", []))


def test_a_mark_changes_two_lines_and_no_other(queue: ModuleType, path: Path) -> None:
    before = path.read_text(encoding="utf-8").splitlines()
    for status in ("partial", "done"):  # a second mark takes the place of the first
        queue.mark(path, "first", status, {"date": "2026-11-19"})
    after = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in after if line not in before] == ["    status: done", '    record: {"date": "2026-11-19"}']
    assert [line for line in after if line in before] == before
    with pytest.raises(UserError, match="has no line '  - name: third'"):
        queue.mark(path, "third", "done", {})


def test_bad_input_is_told_in_a_sentence(
    study: ModuleType, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out"), "--queue", str(path)]
    assert study.main(["run", "frist", *out]) == 2
    assert "unknown study 'frist'. Did you mean first?" in capsys.readouterr().err
    assert study.main(["collect", str(tmp_path), "--queue", str(path)]) == 2
    assert "has no results of a study" in capsys.readouterr().err
    assert study.main(["next", "--minutes", "1", *out]) == 2
    assert "the shortest is first" in capsys.readouterr().err
    assert study.main(["next", "--minutes", "1000", "--dry-run", *out]) == 0
    assert "programs: 1; members: 8 of 2,000 decisions" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    assert study.main(["list", "--queue", str(path)]) == 0
    assert "later needs a switch" in capsys.readouterr().out


def test_the_file_of_the_queue_is_where_the_script_looks(queue: ModuleType) -> None:
    assert queue.QUEUE == BENCHMARKS / "studies" / "queue.yaml"
