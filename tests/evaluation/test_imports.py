"""Files of other people: what is read, and errors that name line and column."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.evaluation import made
from ubp2.errors import UserError
from ubp2.evaluation.imports import read_file
from ubp2.evaluation.report import raw_scores
from ubp2.evaluation.sources import Source, gather, parse

HEAD = "task,method,seed,decision,success"


def file(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_csv_and_jsonl_are_the_same(tmp_path: Path) -> None:
    rows = [("t", "m", s, d, s / 10 + d / 1000, d // 2) for s in (0, 1) for d in (200, 100)]
    table = file(tmp_path / "a.csv", f"{HEAD},labels", *(",".join(map(str, row)) for row in rows))
    names = (*HEAD.split(","), "labels")
    lines = file(tmp_path / "a.jsonl", "", *(json.dumps(dict(zip(names, row, strict=True))) for row in rows))
    for path in (table, lines):
        first, second = read_file(path)
        assert (first.task, first.method, first.seed, second.seed, first.steps) == ("t", "m", 0, 1, 200)
        assert first.decision.tolist() == [100, 200] and first.labels.tolist() == [50, 100]
        np.testing.assert_allclose(second.score, [0.2, 0.3])
        assert first.finished and first.folder is None


@pytest.mark.parametrize("name", ["success (%)", "success_percent", "Success [%]", "score %"])
def test_percent_is_what_the_header_says(tmp_path: Path, name: str) -> None:
    (one,) = read_file(file(tmp_path / "a.csv", f"task,method,seed,decision,{name}", "t,m,0,100,97.5"))
    assert one.metric == "success" and one.score == pytest.approx([0.975])


def test_labels_and_protocol_are_optional(tmp_path: Path) -> None:
    path = file(tmp_path / "a.csv", f"{HEAD},labels,preferences.budget,teacher.name,more", "t,m,0,100,1,,500,oracle,x")
    (one,) = read_file(path)
    assert np.isnan(one.labels).all()
    assert one.protocol == {"preferences.budget": 500, "teacher.name": "oracle", "metric": "success"}
    (other,) = read_file(file(tmp_path / "b.csv", "task,method,seed,decision,return", "t,m,0,100,-30.5"))
    assert other.metric == "return" and other.score.tolist() == [-30.5]


def test_a_seed_that_ends_early_is_not_finished(tmp_path: Path) -> None:
    first, second = read_file(file(tmp_path / "a.csv", HEAD, "t,m,0,100,1", "t,m,0,200,1", "t,m,1,100,1"))
    assert first.finished and not second.finished and second.steps == 200


def test_what_a_file_says_about_the_length_of_each_seed_counts(tmp_path: Path) -> None:
    path = file(tmp_path / "a.csv", f"{HEAD},steps", "t,m,0,100,1,100", "t,m,1,200,1,200", "t,m,2,100,1,")
    assert [(one.steps, one.finished) for one in read_file(path)] == [(100, True), (200, True), (200, False)]


WRONG = {
    (
        "t,m,0,100,1.5",
    ): "line 2, column 'success': expected a number between 0 and 1 (or call the column 'success (%)')",
    ("t,m,0,100,high",): "line 2, column 'success': expected a number, got 'high'",
    ("t,m,0,100,nan",): "line 2, column 'success': expected a number, got 'nan'",
    ("t,m,0,100,1", "t,m,zero,200,1"): "line 3, column 'seed': expected a whole number, 0 or more, got 'zero'",
    ("t,m,0,10.5,1",): "line 2, column 'decision': expected a whole number, 0 or more, got '10.5'",
    ("t,m,0,-5,1",): "line 2, column 'decision': expected a whole number, 0 or more, got '-5'",
    ("t,,0,100,1",): "line 2, column 'method': expected a name, got ''",
    ("t,m,0,100",): "line 2: expected 5 values as in the header, got 4",
    ("t,m,0,100,1,7",): "line 2: expected 5 values as in the header, got 6",
    ("t,m,0,100,1", "t,m,0,100,1"): "line 3, column 'decision': expected each decision once for seed 0 of m on t",
    (): "has no line of results",
}


@pytest.mark.parametrize("lines", WRONG)
def test_mistakes_are_named_by_line_and_column(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=re.escape(WRONG[lines])):
        read_file(file(tmp_path / "a.csv", HEAD, *lines))


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("a.csv", ("task,method,seed,decison,success", "t,m,0,1,1"), "has no column 'decision'. Did you mean decison?"),
        ("a.csv", ("method,seed,decision,success", "m,0,1,1"), "has no column 'task'"),
        ("a.csv", ("task,method,seed,decision", "t,m,0,1"), "has no column of scores; expected success"),
        ("a.csv", (f"{HEAD},return", "t,m,0,1,1,1"), "has several columns of scores: success, return; leave one"),
        ("a.jsonl", ("{",), "line 1: not valid JSON"),
        ("a.jsonl", ("[1]",), "line 1: expected a JSON object, got [1]"),
        ("a.jsonl", ('{"task": "t", "method": "m", "seed": 0, "decision": true, "success": 1}',), "column 'decision'"),
        ("a.txt", ("x",), "results are read from .csv or .jsonl files"),
    ],
)
def test_files_that_say_too_little(tmp_path: Path, name: str, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        read_file(file(tmp_path / name, *lines))


def test_raw_scores_of_the_benchmarks_can_be_read() -> None:
    root = Path(__file__).parents[2] / "benchmarks" / "results"
    one, *others = read_file(root / "agents/h200/door-close-rune.csv", task="metaworld/door-close", method="rune")
    assert len(others) == 4 and one.decision[-1] == 40_000 and one.labels[-1] == 500
    both = root / "metaworld" / "window-close-ubp2.csv"
    with pytest.raises(UserError, match="choose one with --controller planner or --controller policy"):
        read_file(both, task="t", method="m")
    planner, policy = (read_file(both, task="t", method="m", controller=who)[0] for who in ("planner", "policy"))
    assert planner.score.tolist() != policy.score.tolist()


def test_sources_are_paths_with_names(tmp_path: Path) -> None:
    odd = tmp_path / "a=b"
    odd.mkdir()
    assert parse(str(odd)) == Source(odd)
    assert parse(f"ours={odd}") == Source(odd, "ours")
    assert parse("metaworld/door-close:horizon 11=x.csv") == Source(Path("x.csv"), "horizon 11", "metaworld/door-close")
    for text in ("=x.csv", "m=", ":m=x.csv"):
        with pytest.raises(UserError, match="expected PATH, METHOD=PATH or TASK:METHOD=PATH"):
            parse(text)
    with pytest.raises(UserError, match="cannot read .*gone.csv"):
        gather([parse(str(tmp_path / "gone.csv"))])
    with pytest.raises(UserError, match="know their task; name the method alone"):
        gather([parse(f"t:m={odd}")])


def test_runs_and_files_share_a_protocol_as_far_as_it_is_known(tmp_path: Path) -> None:
    made.run(tmp_path / "a", budget=40)
    head = f"{HEAD},preferences.budget"
    other = file(tmp_path / "b.csv", head, "metaworld/door-close,theirs,0,1000,1,500")
    sources = [parse(str(tmp_path / "a")), parse(str(other))]
    with pytest.raises(UserError, match=r"preferences.budget is 40 in .*a and 500 in the imported theirs on"):
        gather(sources)
    assert gather(sources, vary=["preferences.budget"]).methods()[-1] == "theirs"
    silent = file(tmp_path / "c.csv", HEAD, "metaworld/door-close,theirs,0,1000,1")
    assert len(gather([sources[0], parse(str(silent))]).series) == 2


def test_what_a_report_writes_can_be_read_again(tmp_path: Path) -> None:
    made.run(tmp_path / "a", success=(0.0, 0.5), steps=4000)
    before = gather([parse(str(tmp_path / "a"))])
    (after,) = read_file(file(tmp_path / "scores.csv", *raw_scores(before).splitlines()))
    (one,) = before.series
    assert (after.task, after.method, after.seed) == (one.task, one.method, one.seed)
    np.testing.assert_array_equal(after.score, one.score)
    np.testing.assert_array_equal(after.labels, one.labels)
    assert after.protocol["preferences.budget"] == 40 and after.steps == 4000 and not after.finished


def test_a_report_keeps_what_is_known_apart_from_what_is_not(tmp_path: Path) -> None:
    """null is a setting that is known to be unset, and empty one that nobody knows; both come back as they were."""
    known = {"metric": "success", "teacher.beta": None, "teacher.gamma": 1e-05, "preferences.imported": ["a, b", "c"]}
    runs = (made.series(protocol=known), made.series("theirs", protocol={"metric": "success"}))
    ours, theirs = read_file(file(tmp_path / "a.csv", *raw_scores(made.results(*runs)).splitlines()))
    assert (ours.protocol, theirs.protocol) == (known, {"metric": "success"})


def test_an_index_that_pandas_wrote_is_left_alone(tmp_path: Path) -> None:
    (one,) = read_file(file(tmp_path / "a.csv", f",{HEAD}", "0,t,m,0,100,1", "1,t,m,0,200,1"))
    assert one.decision.tolist() == [100, 200]
    with pytest.raises(UserError, match="line 2: expected 6 values as in the header, got 7"):
        read_file(file(tmp_path / "b.csv", f",{HEAD}", "0,t,m,0,100,1,7"))


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("a.csv", (f"{HEAD},teacher.name", "t,m,0,1,1,@500"), "line 2, column 'teacher.name': expected a value as in"),
        ("a.csv", (f"{HEAD},teacher.name", "t,m,0,1,1,a: b: c"), "line 2, column 'teacher.name': expected a value"),
        ("a.csv", (HEAD, f"t,{'m' * 200_000},0,1,1"), "line 2: not valid CSV (field larger than field limit"),
        ("a.csv", (HEAD, "t,m,0,1e30,1"), "line 2, column 'decision': expected a whole number"),
        (
            "a.jsonl",
            (f'{{"task": "t", "method": "m", "seed": 1{"0" * 400}, "decision": 1, "success": 1}}',),
            "line 1, column 'seed': expected a whole number",
        ),
    ],
)
def test_what_no_program_expects_is_a_sentence_too(
    tmp_path: Path, name: str, lines: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        read_file(file(tmp_path / name, *lines))
