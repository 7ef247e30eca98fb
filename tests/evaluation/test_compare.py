"""Two sets of runs, and the commands `ubp2 report` and `ubp2 compare`."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.evaluation import made
from ubp2.errors import UserError
from ubp2.evaluation.compare import as_data, as_grid, compare
from ubp2.evaluation.grids import GAP
from ubp2.evaluation.protocol import SETTINGS
from ubp2.evaluation.sources import gather, parse
from ubp2.terminal import cli
from ubp2.terminal.cli import main


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Six seeds with plans of 3 and of 7 decisions; the longer ones are ahead by a tenth, but for one seed."""
    for seed in range(6):
        made.run(tmp_path / "short" / str(seed), seed=seed, success=(0.0, 0.2, 0.2, 0.4))
        ahead = 0.1 if seed else -0.1
        success = tuple(level + ahead for level in (0.1, 0.2, 0.2, 0.4))
        made.run(tmp_path / "long" / str(seed), seed=seed, success=success, planner__horizon=7)
    made.run(tmp_path / "long" / "window", env="metaworld/window-close", planner__horizon=7)
    return tmp_path / "long", tmp_path / "short"


def test_difference_interval_probability_and_test(folders: tuple[Path, Path]) -> None:
    long, short = folders
    found = compare([parse(str(long))], [parse(f"short plans={short}")])
    assert found.names == ("ubp2", "short plans") and found.settings == {"planner.horizon": (7, 3)}
    (duel,) = found.duels
    assert duel.difference == pytest.approx(12.5) and duel.values == pytest.approx((32.5, 20.0))
    assert duel.interval[0] < 12.5 <= duel.interval[1] and duel.seeds == (6, 6) and duel.decisions == 4000
    assert duel.improvement == pytest.approx(5 / 6)
    assert duel.test is not None and duel.test.seeds == 6
    assert found.problems == ("metaworld/window-close is not compared: short plans has no run on it",)
    grid = as_grid(found)
    assert grid.rows[0].name == "Door Close" and grid.rows[0].cells[0].bold
    assert "They differ in planner.horizon 7 against 3." in grid.notes
    assert duel.interval[0] > 0 and grid.rows[0].cells[2].mark == "*" and not grid.rows[0].cells[2].bold
    assert grid.notes[0] == "An asterisk: the interval of the difference lies clear of 0."
    assert as_data(found)["tasks"][0]["wilcoxon_pairs"] == 6


def test_settings_that_others_give_are_told_as_they_were(tmp_path: Path) -> None:
    """The horizon of training is that of the plans, and 1 without plans."""
    made.run(tmp_path / "a")
    made.run(tmp_path / "b", agent="pebble", optimism__reward=False)
    found = compare([parse(str(tmp_path / "a"))], [parse(str(tmp_path / "b"))])
    assert found.settings["training.horizon"] == (3, 1) and found.settings["training.warmup_updates"] == (1000, 1)
    assert "optimism.reward on against off" in as_grid(found).notes[-1] and "derived" not in as_grid(found).notes[-1]
    made.run(tmp_path / "c", training__horizon=2)
    assert compare([parse(str(tmp_path / "a"))], [parse(str(tmp_path / "c"))]).settings == {"training.horizon": (3, 2)}


def test_intervals_of_few_seeds_earn_no_asterisk(tmp_path: Path) -> None:
    for seed in range(5):
        made.run(tmp_path / "a" / str(seed), seed=seed, success=(0.9, 0.8 + 0.02 * seed))
        made.run(tmp_path / "b" / str(seed), seed=seed, success=(0.1, 0.2 + 0.02 * seed))
    sides = [[parse(f"{name}={tmp_path / name / str(seed)}") for seed in range(3)] for name in "ab"]
    grid = as_grid(compare(*sides))
    assert not any(cell.mark for row in grid.rows for cell in row.cells)
    assert grid.notes[0] == "Intervals of fewer than 5 runs a side are too narrow: none of them earns an asterisk."
    grid = as_grid(compare(*([parse(str(tmp_path / name))] for name in "ab")))
    assert grid.rows[0].cells[2].mark == "*" and grid.notes[0].startswith("An asterisk: ")


def test_one_run_has_one_name(tmp_path: Path) -> None:
    run = made.run(tmp_path / "a")
    with pytest.raises(UserError, match="a is named twice, x and y, and a run counts once; leave one of the two out"):
        gather([parse(f"x={run}"), parse(f"y={run}")])
    assert gather([parse(f"x={run}"), parse(f"x={run}")]).methods() == ["x"]


def test_over_several_tasks(tmp_path: Path) -> None:
    for name, level in (("a", 1.0), ("b", 0.5)):
        for task in ("metaworld/door-close", "metaworld/window-close"):
            made.run(tmp_path / name / task.partition("/")[2], env=task, success=(level,) * 4)
    found = compare([parse(str(tmp_path / "a"))], [parse(str(tmp_path / "b"))])
    assert found.names == (f"ubp2 ({tmp_path / 'a'})", f"ubp2 ({tmp_path / 'b'})")
    assert [duel.task for duel in found.duels][-1] is None and found.duels[-1].difference == pytest.approx(50)
    assert found.duels[-1].improvement == 1 and as_grid(found).rows[-1].name == "All tasks"


def test_returns_over_several_tasks_say_who_is_better_and_not_by_how_much(tmp_path: Path) -> None:
    for name, ahead in (("a", 50.0), ("b", 0.0)):
        rows = [
            {"task": task, "method": name, "seed": seed, "decision": 1000, "return": level + ahead}
            for task, level in (("gym/Pendulum-v1", -900.0), ("gym/CartPole-v1", 200.0))
            for seed in range(2)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = compare(*([parse(str(tmp_path / f"{name}.jsonl"))] for name in "ab"))
    assert [duel.difference for duel in found.duels[:2]] == pytest.approx([50, 50])
    last = as_grid(found).rows[-1]
    assert [cell.text for cell in last.cells[:3]] == [GAP] * 3 and last.cells[3].text.startswith("1.00")
    assert not any(cell.bold or cell.mark for cell in last.cells)
    assert "only who is better counts" in as_grid(found).notes[-3]


def test_a_refusal_names_what_would_allow_it(tmp_path: Path) -> None:
    """Every setting at once: who follows the sentence is not refused again."""
    made.run(tmp_path / "a")
    made.run(tmp_path / "b", teacher__name="mistake", teacher__mistake=0.2)
    sides = [[parse(str(tmp_path / name))] for name in "ab"]
    with pytest.raises(UserError, match="allow it with --vary teacher.name teacher.mistake$"):
        compare(sides[0], sides[1])
    assert len(compare(sides[0], sides[1], vary=["teacher.name", "teacher.mistake"]).duels) == 1


def test_runs_that_are_not_finished_are_named(tmp_path: Path) -> None:
    for seed in range(2):
        made.run(tmp_path / "a" / str(seed), seed=seed)
    made.run(tmp_path / "a" / "2", seed=2, success=(0.0, 0.5))
    made.run(tmp_path / "b", success=(0.0, 0.5, 0.5))
    found = compare([parse(f"A={tmp_path / 'a'}")], [parse(f"B={tmp_path / 'b'}")])
    assert found.duels[0].decisions == 3000 and found.duels[0].seeds == (2, 1)
    assert found.problems == (
        "1 of 3 runs of A on metaworld/door-close is not finished (decision 2,000 of 4,000) and left out",
        "the run of B on metaworld/door-close is not finished (decision 3,000 of 4,000): compared up to what both "
        "sides have",
    )
    assert as_grid(found).notes[-1] == found.problems[-1]


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    made.run(tmp_path / "a" / "x")
    made.run(tmp_path / "a" / "y", agent="mbp")
    made.run(tmp_path / "b", env="metaworld/window-close")
    made.run(tmp_path / "c", success=())
    made.run(tmp_path / "d", budget=60)
    first = [parse(str(tmp_path / "a" / "x"))]
    for other, message in (
        (tmp_path / "a", "holds several methods: ubp2; mbp. Name the runs of one on each side"),
        (tmp_path / "a" / "x", "both sides are .*; name another"),
        (tmp_path / "b", "nothing can be compared: metaworld/door-close is not compared"),
        (tmp_path / "c", "nothing can be compared in .*c: .*c has no evaluation yet"),
        (tmp_path / "d", "preferences.budget is 40 in .* and 60 in .*--vary preferences.budget"),
    ):
        with pytest.raises(UserError, match=message):
            compare(first, [parse(str(other))])
    assert compare(first, [parse(str(tmp_path / "d"))], vary=["preferences.budget"]).duels


def test_the_command_compares(folders: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    long, short = map(str, folders)
    assert main(["compare", long, f"short={short}"]) == 0
    assert "Door Close" in capfd.readouterr().out
    assert main(["compare", f"{long}/0", f"{long}/1", "--with", f"{short}/0", f"{short}/1", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["tasks"][0]["seeds_a"] == 2 and data["tasks"][0]["wilcoxon_p"] is None
    assert main(["compare", long, f"short={short}", "--as", "markdown"]) == 0
    assert "| Task | ubp2 | short |" in capfd.readouterr().out


@pytest.mark.slow  # the page is that of tests/evaluation/test_report.py
def test_the_command_reports(folders: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    long, short = map(str, folders)
    theirs = tmp_path / "theirs.jsonl"
    rows = [
        {"task": "metaworld/door-close", "method": "theirs", "seed": seed, "decision": 1000 * i, "success (%)": 20 * i}
        for seed in range(3)
        for i in (1, 2, 3, 4)
    ]
    theirs.write_text("\n".join(map(json.dumps, rows)))
    line = [
        "report",
        f"long={long}",
        f"short={short}",
        str(theirs),
        "--out",
        str(tmp_path / "report"),
        "--title",
        "Two",
    ]
    assert main([*line, "--methods", "short", "long", "--columns", "average", "regret", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["methods"] == ["short", "long", "theirs"] and data["reference"] == "short"
    assert data["page"] == str(tmp_path / "report" / "index.html")
    page = Path(data["page"]).read_text()
    assert "<h1>Two</h1>" in page and "Imported without its protocol" in page
    assert "--columns average regret --methods short long" in page
    assert main([*line[:4], "--out", str(tmp_path / "report")]) == 0
    assert capfd.readouterr().out.endswith(f"report: {tmp_path / 'report' / 'index.html'}\n")


MISTAKES = {
    "report": "ubp2 report needs at least one run folder or file: ubp2 report RUN --out report",
    "report nowhere": "there is no folder nowhere; check the path",
    "report nowhere.csv": "cannot read nowhere.csv: [Errno 2] No such file or directory: 'nowhere.csv'",
    "report nowhere --vary budget": "unknown setting of the protocol 'budget'. Did you mean preferences.budget?",
    "compare a": "ubp2 compare takes two folders or files, got 1; for more: ubp2 compare A ... --with B ...",
    "compare --with b": "ubp2 compare needs runs on both sides: ubp2 compare A ... --with B ...",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_one_sentence_and_exit_with_2(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*line.split(), "--json"]) == 2
    assert json.loads(capfd.readouterr().out)["error"].startswith(MISTAKES[line])


def test_a_report_needs_something_to_report_and_known_methods(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made.run(tmp_path / "a", success=())
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report")]) == 2
    assert f"there is nothing to report: {tmp_path / 'a'} has no evaluation yet" in capfd.readouterr().err
    made.run(tmp_path / "b")
    for flag in ("--methods", "--reference"):
        assert main(["report", str(tmp_path), "--out", str(tmp_path / "report"), flag, "ubp"]) == 2
        assert "unknown method 'ubp'. Did you mean ubp2?" in capfd.readouterr().err
    assert not (tmp_path / "report").exists()


def test_the_commands_of_the_page_are_understood() -> None:
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    found = re.findall(r"^ubp2 (report|compare) (.*)$", page, re.MULTILINE)
    assert {name for name, _ in found} == {"report", "compare"}
    for name, words in found:
        assert cli._parse(name, shlex.split(words, comments=True)) is not None
    for setting in SETTINGS:
        assert f"`{setting}`" in page or setting.startswith("teacher.")
