"""Tables from series worked out by hand, and each of their five forms."""

from __future__ import annotations

import csv
import io
from html.parser import HTMLParser

import numpy as np
import pytest

from tests.evaluation import made
from ubp2.errors import UserError
from ubp2.evaluation import grids
from ubp2.evaluation.grids import GAP
from ubp2.evaluation.measures import amounts, areas, count, intervals, labels_needed
from ubp2.evaluation.results import Results
from ubp2.evaluation.scores import align, score, titles
from ubp2.evaluation.tables import Published, main_grid

DOOR, WINDOW = "metaworld/door-close", "metaworld/window-close"


def six_seeds() -> Results:
    """On two tasks ubp2 is ahead by 0.2 with every seed; on one a method has no run."""
    own = []
    for seed in range(6):
        for task, level in ((DOOR, 0.5), (WINDOW, 0.7)):
            own.append(made.series("ubp2", seed, (level - 0.1, level, level + 0.1), task))
            own.append(made.series("mbp", seed, (level - 0.3, level - 0.2, level - 0.1), task))
        own.append(made.series("rune", seed, (0.9, 0.9, 0.9), DOOR))
    return made.results(*own)


def cells(grid: grids.Grid) -> dict[str, list[str]]:
    return {f"{row.of} {row.name}".strip(): [cell.text + cell.mark for cell in row.cells] for row in grid.rows}


def test_the_papers_number_is_the_mean_over_time_of_the_interquartile_mean() -> None:
    curves = [(0.0, 1.0), (0.2, 1.0), (0.4, 0.0), (1.0, 0.0)]  # the middle two: 0.2, 0.4 and 0, 1
    scores = score(made.results(*(made.series("ubp2", seed, curve) for seed, curve in enumerate(curves))))
    entry = scores.entries[DOOR, "ubp2"]
    assert entry.value == pytest.approx(100 * (0.3 + 0.5) / 2)
    assert entry.error == pytest.approx(100 * np.std([1, 1, 0, 0], ddof=1) / 2)
    assert (entry.seeds, entry.decisions, entry.test) == (4, 2000, None)
    assert entry.interval[0] < entry.value < entry.interval[1]


def test_ours_beside_the_papers() -> None:
    published = {
        "ubp2": {DOOR: Published(97.8, 1.0), WINDOW: Published(93.1, 1.0)},
        "mbp": {DOOR: Published(95.6, 0.0, True), WINDOW: Published(74.7, 13.5, True)},
    }
    grid = main_grid(score(six_seeds()), published=published, columns=("average", "rank", "regret"))
    assert grid.columns == ("Door Close", "Window Close", "Average", "Rank", "Regret")
    assert cells(grid) == {
        "ubp2": ["50.0 (0.0)", "70.0 (0.0)", "50.0", "2.00", "40.0"],
        "ubp2 paper": ["97.8 (1.0)", "93.1 (1.0)", "97.8", "1.00", "0.0"],
        "ubp2 difference": ["-47.8", "-23.1", "-47.8", GAP, GAP],
        "mbp": ["30.0 (0.0)*", "50.0 (0.0)*", "30.0", "3.00", "60.0"],
        "mbp paper": ["95.6 (0.0)*", "74.7 (13.5)*", "95.6", "2.00", "2.2"],
        "mbp difference": ["-65.6", "-24.7", "-65.6", GAP, GAP],
        "rune": ["90.0 (0.0)", GAP, "90.0", "1.00", "0.0"],
    }
    bold = {(row.name, grid.columns[i]) for row in grid.rows for i, cell in enumerate(row.cells) if cell.bold}
    assert bold == {
        ("rune", "Door Close"),
        ("ubp2", "Window Close"),
        *(("rune", c) for c in ("Average", "Rank", "Regret")),
    }
    assert "Last columns are over the tasks that all methods have: Door Close." in grid.notes
    assert any(
        note.startswith("An asterisk: ubp2 is better than this method") and "6 pairs" in note for note in grid.notes
    )


def test_the_paper_alone_where_there_is_no_run_yet() -> None:
    published = {name: {DOOR: Published(90.0, 1.0), WINDOW: Published(80.0)} for name in ("ubp2", "mrn")}
    grid = main_grid(score(six_seeds(), order=["ubp2", "mrn"]), published=published)
    assert [row.name for row in grid.rows] == ["ubp2", "paper", "difference", "mrn", "paper", "mbp", "rune"]
    assert cells(grid)["mrn"] == [GAP] * 4 and cells(grid)["mrn paper"][:2] == ["90.0 (1.0)", "80.0"]


def test_too_few_seeds_are_told() -> None:
    grid = main_grid(score(made.results(made.series("ubp2"), made.series("mbp", score=(0.0, 0.1, 0.2)))))
    assert grid.notes[-1] == (
        "Not tested against ubp2: mbp on Door Close; 1 pair of seeds cannot reach p < 0.05, whatever they say: 5 can."
    )
    assert cells(grid)["ubp2"][0] == f"50.0 ({GAP})" and grid.columns == ("Door Close", "Rank")
    assert grid.notes[0] == "1 seed for each method and task."


def test_methods_are_compared_on_the_evaluations_that_all_have() -> None:
    fast = made.series("ubp2", score=(0.1, 0.2, 0.3, 0.4))
    slow = made.series("mbp", score=(0.5, 0.7), decision=(2000, 3000), steps=9000)
    aligned = align(made.results(fast, slow), DOOR)
    assert aligned.decision.tolist() == [2000, 3000]
    assert aligned.curves["ubp2"].tolist() == [[0.2, 0.3]] and aligned.curves["mbp"].tolist() == [[0.5, 0.7]]
    never = made.series("rune", score=(0.5,), decision=(2500,))
    scores = score(made.results(fast, never))
    assert not scores.entries and cells(main_grid(scores))["ubp2"][0] == GAP


def test_a_seed_that_has_just_begun_does_not_shorten_the_others() -> None:
    done, begun = made.series("ubp2", 0), made.series("ubp2", 1, (0.0,), steps=3000)
    assert align(made.results(done, begun), DOOR).seeds == {"ubp2": [0]}
    assert align(made.results(begun), DOOR).seeds == {"ubp2": [1]}
    grid = amounts(made.results(done, begun), ["ubp2", "mbp"])
    assert grid.caption == "Seeds that are finished, each of 3,000 decisions"
    assert cells(grid) == {"ubp2": ["1 of 2; 1 at 1,000"], "mbp": [GAP]}


def test_missing_seeds_are_listed() -> None:
    results = Results(
        (made.series("ubp2", 0),), (), {(DOOR, "ubp2"): frozenset({0, 1, 2}), (WINDOW, "mbp"): frozenset({4})}
    )
    grid = amounts(results, results.methods())
    assert cells(grid) == {"ubp2": ["1 of 3", GAP], "mbp": [GAP, "0 of 1"]}
    assert grid.notes == ("Not there: ubp2 on Door Close: seeds 1, 2; mbp on Window Close: seed 4.",)


def test_area_intervals_and_labels() -> None:
    rising = [made.series("ubp2", seed, (0.0, 0.5, 1.0)) for seed in range(3)]
    never = [made.series("mbp", seed, (0.0, 0.6, 0.6 + 0.4 * (seed == 0))) for seed in range(3)]
    results = made.results(*rising, *never)
    scores = score(results)
    assert cells(areas(scores))["ubp2"] == ["50.0 [50.0, 50.0]"]
    assert cells(intervals(scores)) == {"ubp2": ["50.0 [50.0, 50.0]"], "mbp": ["44.4 [40.0, 53.3]"]}
    needed = labels_needed(results, scores)
    assert needed is not None and cells(needed) == {
        "ubp2, 50 %": ["20 (3 of 3)"],
        "ubp2, 80 %": ["30 (3 of 3)"],
        "ubp2, 95 %": ["30 (3 of 3)"],
        "mbp, 50 %": ["20 (3 of 3)"],
        "mbp, 80 %": [f"{GAP} (1 of 3)"],
        "mbp, 95 %": [f"{GAP} (1 of 3)"],
    }
    assert labels_needed(made.results(made.series(labels=np.full(3, np.nan))), scores) is None


def test_an_average_over_tasks_has_an_interval_of_its_own() -> None:
    grid = intervals(score(six_seeds()))
    assert grid.columns[-1] == "Average" and cells(grid)["ubp2"][-1] == "50.0 [50.0, 50.0]"


def test_returns_of_several_tasks_have_ranks_and_no_mean() -> None:
    """Pendulum counts in hundreds below zero, CartPole in hundreds above."""
    levels = {"gym/Pendulum-v1": -900.0, "gym/CartPole-v1": 200.0}
    runs = [
        made.series(method, seed, (level + ahead,) * 2, task, metric="return")
        for task, level in levels.items()
        for method, ahead in (("ubp2", 50.0), ("mbp", 0.0))
        for seed in range(2)
    ]
    scores = score(made.results(*runs))
    grid = main_grid(scores, columns=("average", "rank", "regret"))
    assert grid.columns[2:] == ("Rank",) and cells(grid)["mbp"] == ["-900.0 (0.0)", "200.0 (0.0)", "2.00"]
    assert grid.notes[0] == "Returns have a scale of their own on each task: there is no average or regret over tasks."
    assert len(intervals(scores).columns) == 2
    alone = score(made.results(*(one for one in runs if one.task == "gym/CartPole-v1")))
    assert main_grid(alone, columns=("rank", "regret")).columns[1:] == ("Rank", "Regret")


def test_numbers_names_and_mistakes() -> None:
    assert [count(n) for n in (0, 500, 40_000, 200_000, 250_000, 1_000_000, 123_456)] == [
        *("0", "500", "40,000", "200k", "250k", "1M", "123,456")
    ]
    assert titles([DOOR, "dmc/walker-walk"]) == {DOOR: "Door Close", "dmc/walker-walk": "Walker Walk"}
    assert titles(["a/run", "b/run"]) == {"a/run": "a/run", "b/run": "b/run"}
    with pytest.raises(UserError, match="unknown method 'ubp'. Did you mean ubp2"):
        score(six_seeds(), reference="ubp")
    with pytest.raises(UserError, match="unknown column 'ranks'. Did you mean rank"):
        main_grid(score(six_seeds()), columns=["ranks"])
    with pytest.raises(UserError, match="nothing to report"):
        score(Results(()))


GRID = grids.Grid(
    "A & B",
    "Method",
    ("Task_1", "Average"),
    (
        grids.Row("ubp2", (grids.Cell("90.0 (1.0)", True, "*"), grids.Cell("-3.0 [-4.0, -2.0]"))),
        grids.Row("paper", (grids.Cell("80 %"), grids.Cell(GAP)), "paper", "ubp2"),
    ),
    ("A < B | C.",),
    1,
)


def test_text_turns_round_where_it_would_be_too_wide() -> None:
    lines = grids.as_text(GRID).splitlines()
    assert lines[1].split() == ["Method", "Task_1", "Average"]
    assert lines[2] == "  ubp2    >90.0 (1.0)*  -3.0 [-4.0, -2.0]"
    wide = grids.Grid("", "M", tuple(f"column {i}" for i in range(30)), (grids.Row("a", (grids.Cell("1"),) * 30),))
    turned = grids.as_text(wide).splitlines()
    assert len(turned) == 32 and turned[2].split() == ["column", "0", "1"]


def test_markdown() -> None:
    assert grids.as_markdown(GRID).splitlines() == [
        *("A & B", "", "| Method | Task_1 | Average |", "|---|---:|---:|"),
        r"| ubp2 | **90.0 (1.0)\*** | -3.0 [-4.0, -2.0] |",
        *(f"| paper | 80 % | {GAP} |", "", "A < B | C."),
    ]


def test_csv_has_the_cells_or_the_numbers() -> None:
    rows = list(csv.reader(io.StringIO(grids.as_csv(GRID))))
    assert rows[1] == ["ubp2", "90.0 (1.0)*", "-3.0 [-4.0, -2.0]"]
    records = list(csv.DictReader(io.StringIO(grids.as_csv(main_grid(score(six_seeds()))))))
    (door,) = (one for one in records if (one["task"], one["method"]) == (DOOR, "mbp"))
    assert float(door["value"]) == pytest.approx(30) and float(door["wilcoxon_p"]) == pytest.approx(2**-6)
    assert (door["seeds"], door["wilcoxon_pairs"], door["paper"]) == ("6", "6", "")


def test_latex_escapes_and_needs_booktabs_alone() -> None:
    text = grids.as_latex(GRID)
    assert r"\caption{A \& B. A $<$ B $|$ C.}" in text and r"\begin{tabular}{lr|r}" in text
    assert r"\textbf{Method} & \textbf{Task\_1} & \textbf{Average} \\" in text
    assert r"ubp2 & \textbf{90.0 (1.0)\textsuperscript{*}} & $-$3.0 [$-$4.0, $-$2.0] \\" in text
    assert r"paper & 80 \% & -- \\" in text and "\\midrule\n" in text


class Tags(HTMLParser):
    """Counts tags, and sees that each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_says_what_heads_what() -> None:
    tags = Tags()
    tags.feed(grids.as_html(GRID))
    assert not tags.open
    scopes = [attributes.get("scope") for tag, attributes in tags.seen if tag == "th"]
    assert scopes == ["col", "col", "col", "row", "row"]
    assert '<span class="unseen">ubp2, </span>paper' in grids.as_html(GRID) and "A &lt; B | C." in grids.as_html(GRID)


def test_the_papers_last_columns_are_over_our_tasks_or_not_there() -> None:
    """A row of the paper with one task of two must not stand beside an average over both."""
    runs = [made.series(method, 0, (0.5,), task) for method in ("ubp2", "entropy") for task in (DOOR, WINDOW)]
    published = {
        "ubp2": {DOOR: Published(70.7), WINDOW: Published(36.4)},
        "entropy": {DOOR: Published(0.1)},
    }
    grid = main_grid(score(made.results(*runs)), published=published)
    assert cells(grid)["ubp2"][2] == "50.0" and cells(grid)["ubp2 paper"][2:] == [GAP, GAP]
    assert cells(grid)["ubp2 difference"][2] == GAP
    assert any("does not print all numbers" in note for note in grid.notes)
    assert not any("computed again" in note for note in grid.notes)


def test_labels_needed_are_those_of_the_seeds_that_count() -> None:
    """A seed that has just begun has not failed to reach a level."""
    done, begun = made.series("ubp2", 0, (0.0, 0.9)), made.series("ubp2", 1, (0.0,), steps=2000)
    results = made.results(done, begun)
    needed = labels_needed(results, score(results))
    assert needed is not None and cells(needed)["ubp2, 80 %"] == ["20 (1 of 1)"]


def test_labels_needed_stand_in_the_order_of_the_other_tables() -> None:
    results = made.results(made.series("ubp2"), made.series("mbp"))
    needed = labels_needed(results, score(results, order=["mbp", "ubp2"]))
    assert needed is not None and [row.name.partition(",")[0] for row in needed.rows] == ["mbp"] * 3 + ["ubp2"] * 3


def test_the_csv_of_intervals_and_areas_has_all_digits() -> None:
    thirds = [made.series("ubp2", seed, (0.0, 1 / 3, 1 / 7), task) for seed in range(3) for task in (DOOR, WINDOW)]
    scores = score(made.results(*thirds))
    for grid, value in ((intervals(scores), 100 * (1 / 3 + 1 / 7) / 3), (areas(scores), 100 * (1 / 3 + 1 / 14) / 2)):
        records = list(csv.DictReader(io.StringIO(grids.as_csv(grid))))
        assert [one["task"] for one in records][:2] == [DOOR, WINDOW]
        assert all(float(one[name]) == pytest.approx(value, rel=1e-12) for one in records for name in ("value", "low"))
