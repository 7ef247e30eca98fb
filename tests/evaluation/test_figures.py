"""Figures of made-up series: what they say, and what they leave out or refuse."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.evaluation import made
from tests.evaluation.test_plots import make_run
from ubp2.errors import UserError
from ubp2.evaluation import figures
from ubp2.evaluation.looks import look
from ubp2.evaluation.results import Series
from ubp2.evaluation.scores import score


def one(
    task: str = "metaworld/door-close", method: str = "ubp2", seed: int = 0, end: int = 40, **changes: Any
) -> Series:
    generator = np.random.default_rng([len(task), len(method), seed])
    decision = np.arange(5, end + 1, 5) * 1000
    score = np.clip(decision / 40000 + generator.normal(0, 0.1, decision.size), 0, 1)
    labels = np.minimum(decision // 50, 500)
    return dataclasses.replace(
        Series(task, method, seed, decision, score, labels, protocol={"preferences.budget": 500}), **changes
    )


def many(tasks: int, methods: int, seeds: int = 3) -> list[Series]:
    return [one(f"metaworld/task-{t}", f"m{m}", s) for t in range(tasks) for m in range(methods) for s in range(seeds)]


def text(figure: Figure) -> str:
    """What a reader of the figure can read."""
    stream = io.BytesIO()
    figures.save(figure, stream, "svg")
    return stream.getvalue().decode()


def panels(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


@pytest.mark.parametrize("tasks", [1, 2, 5, 10])
def test_a_panel_a_task_and_a_line_a_method(tasks: int) -> None:
    figure = figures.learning_curves(many(tasks, 2))
    assert panels(figure) == [f"Task {t} (500)" for t in range(tasks)]
    assert all(len(axes.lines) == 2 for axes in figure.axes)
    assert len({axes.get_xlim() for axes in figure.axes}) == len({axes.get_ylim() for axes in figure.axes}) == 1
    drawn = text(figure)
    assert "m0 (3 seeds)" in drawn and "shaded: 95 % bootstrap interval" in drawn and "interquartile mean" in drawn


def test_tasks_are_called_by_the_titles_that_are_given() -> None:
    assert panels(figures.learning_curves(many(1, 1), titles={"metaworld/task-0": "Door"})) == ["Door (500)"]


def test_budgets_that_differ_are_not_in_the_title() -> None:
    other = one(method="mbp", protocol={"preferences.budget": 250})
    assert panels(figures.learning_curves([one(), other])) == ["Door Close"]


def test_a_line_ends_where_the_shortest_seed_does() -> None:
    figure = figures.learning_curves([one(), one(seed=1, end=20), one(method="mbp")])
    ends = [line.get_xdata()[-1] for line in figure.axes[0].lines]  # pyright: ignore[reportIndexIssue, reportArgumentType]
    assert ends == [20000, 40000] and figure.axes[0].get_xlim()[1] > 40000


def test_seeds_stand_in_the_panel_where_tasks_differ() -> None:
    runs = [*many(2, 2), one("metaworld/task-1", "m0", 3)]
    drawn = text(figures.learning_curves(runs))
    assert "m0 (3 to 4 seeds)" in drawn and "m1 (3 seeds)" in drawn and "seeds: 4, 3" in drawn


def test_single_seeds_have_no_interval() -> None:
    figure = figures.learning_curves([one()])
    assert not figure.axes[0].collections
    drawn = text(figure)
    assert "ubp2 (1 seed)" in drawn and "shaded" not in drawn


def test_seeds_that_never_meet_are_named_not_drawn() -> None:
    early, late = one(end=15), one(seed=1)
    late = dataclasses.replace(late, **{name: getattr(late, name)[4:] for name in ("decision", "score", "labels")})
    figure = figures.learning_curves([early, late, one(method="mbp")])
    note = " ".join(figure.legends[0].get_title().get_text().split())
    assert len(figure.axes[0].lines) == 1 and note.endswith("no decision in common: ubp2 on Door Close")


def test_over_labels_the_end_of_training_is_apart() -> None:
    """All labels are used at 25,000 decisions; the line ends with the evaluation there."""
    runs = [one(seed=seed) for seed in range(3)]
    line, end = figures.learning_curves(runs, over="labels").axes[0].lines
    assert list(np.asarray(line.get_xdata())) == [100, 200, 300, 400, 500]
    assert np.asarray(line.get_ydata())[-1] == pytest.approx(np.mean([own.score[4] for own in runs]))
    assert np.asarray(end.get_xdata()).tolist() == [500] and end.get_markerfacecolor() == "none"
    assert np.asarray(end.get_ydata())[0] == pytest.approx(np.mean([own.score[-1] for own in runs]))


def test_budgets_far_apart_have_axes_of_their_own() -> None:
    small = one(labels=np.full(8, 20))
    figure = figures.learning_curves([small, one("metaworld/hammer")], over="labels")
    assert [axes.get_xlim()[1] for axes in figure.axes] == pytest.approx([20.4, 510])


def test_no_two_methods_look_alike() -> None:
    assert len({look(i) for i in range(56)}) == 56
    lines = figures.learning_curves(many(1, 8)).axes[0].lines
    assert len({line.get_color() for line in lines}) == 8


def test_profiles_and_improvement_are_over_tasks_that_all_have() -> None:
    runs = [*many(2, 2), one("metaworld/only-m0", "m0")]
    assert "Runs on 2 tasks" in text(figures.profiles(runs))
    drawn = text(figures.improvement(runs, "m0"))
    assert "3 against 3 seeds, 2 tasks" in drawn and "P(m0 better)" in drawn
    with pytest.raises(UserError, match=r"unknown method 'm9'.*Known: m0, m1"):
        figures.improvement(runs, "m9")
    with pytest.raises(UserError, match="no other method has a task in common with m0"):
        figures.improvement([*many(1, 1), one(method="far")], "m0")
    with pytest.raises(UserError, match="at decisions that all of their runs have: there is none for m0, far"):
        figures.profiles([*many(1, 1), one(method="far")])


def test_methods_are_scored_at_the_same_decisions() -> None:
    """A method whose runs were cut off early is not behind for that."""
    rising = [one(seed=s, score=np.linspace(0.1, 0.8, 8)) for s in range(2)]
    cut = [one(method="cut", seed=s, end=20, score=np.linspace(0.1, 0.4, 4)) for s in range(2)]
    assert "0.50 [0.50, 0.50]" in text(figures.improvement([*rising, *cut], "cut"))


def test_figures_of_numbers_are_over_the_decisions_of_the_table() -> None:
    """Evaluations at 5, 10, 15 ... 40 and at 4, 8, 12 ... 40 thousand decisions meet at 20 and 40 thousand alone."""
    decision = np.arange(4, 41, 4) * 1000
    rough = [one(seed=s, score=np.array([0.1, 0.9, 0.1, 0.5, 0.1, 0.9, 0.1, 0.7])) for s in range(2)]
    other = [one(method="other", seed=s, decision=decision, score=decision / 40_000, labels=decision) for s in range(2)]
    runs = [dataclasses.replace(own, steps=40_000) for own in (*rough, *other)]
    widths = [bar.get_width() for bar in figures.bars(runs).axes[0].patches]  # pyright: ignore[reportAttributeAccessIssue]
    table = score(made.results(*runs))
    assert widths == pytest.approx([table.entries["metaworld/door-close", name].value for name in ("ubp2", "other")])
    assert widths == pytest.approx([60, 75])


def test_a_method_that_meets_nobody_does_not_cost_the_others_their_profile() -> None:
    begun = one("metaworld/other", "begun", decision=np.array([500]), score=np.zeros(1), labels=np.zeros(1))
    drawn = text(figures.profiles([*many(1, 2), one("metaworld/other", "m0"), begun]))
    assert "m0 (3 seeds)" in drawn and "m1 (3 seeds)" in drawn and "begun" not in drawn


def test_bars_give_the_tables_numbers() -> None:
    level = [one(seed=s, score=np.full(8, 0.5 + 0.1 * s)) for s in range(3)]
    drawn = text(figures.bars([*level, one(method="one", score=np.full(8, 0.05))]))
    assert "60.0 (5.8)" in drawn and ">5.0<" in drawn and ">500<" in drawn and "Door Close" in drawn


def test_bonuses_are_read_from_run_folders(tmp_path: Path) -> None:
    runs = [one(seed=s, folder=make_run(tmp_path / str(s), seed=s)) for s in range(2)]
    figure = figures.bonuses([one(method="imported"), *runs])
    assert figure is not None and panels(figure) == ["Bonus, reward", "λ, reward"]
    assert figure.axes[0].lines[0].get_color() == look(1).colour, "as in the other figures"
    drawn = text(figure)
    assert "ubp2 (2 seeds)" in drawn and "imported" not in drawn
    assert figures.bonuses([one()]) is None


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(UserError, match="nothing to draw"):
        figures.learning_curves([one(score=np.full(8, np.nan))])
    with pytest.raises(UserError, match="door-close there are return and success"):
        figures.learning_curves([one(), one(method="mbp", metric="return")])
    with pytest.raises(UserError, match="only success rates can be summed up"):
        figures.profiles([one(metric="return")])
    with pytest.raises(UserError, match="drawn over decisions or labels, got 'time'"):
        figures.learning_curves([one()], over="time")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=r"as \.png, \.pdf or \.svg"):
        figures.save(figures.bars([one()]), Path("bars.jpg"))


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_same_figure_is_the_same_file(tmp_path: Path, suffix: str) -> None:
    for name in "ab":
        figures.save(figures.learning_curves(many(2, 2)), tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_bars_and_improvement_are_over_what_all_methods_have() -> None:
    """Longer runs of one method get no higher bar for the part of the training that the others have not."""
    runs = [one(method=method, seed=seed, end=20 if method == "short" else 40) for seed in (0, 1) for method in
            ("long", "short", "other")]  # fmt: skip
    for own in runs:
        own.score[:] = (own.decision / 40_000).clip(0, 1)
    figure = figures.bars(runs)
    widths = [bar.get_width() for bar in figure.axes[0].patches]  # pyright: ignore[reportAttributeAccessIssue]
    assert widths == pytest.approx([31.25] * 3), "5, 10, 15 and 20 of 40 thousand decisions"
    for own in runs:
        own.score[4:] = 1.0 if own.method == "long" else 0.0
    shares = [line.get_xdata() for line in figures.improvement(runs, "long").axes[0].lines if line.get_marker() == "o"]
    assert [float(np.squeeze(np.asarray(share))) for share in shares] == [0.5, 0.5]
