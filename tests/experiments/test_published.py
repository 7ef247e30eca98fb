"""The transcribed numbers of the paper agree with one another and with its printed last columns."""

from __future__ import annotations

import numpy as np
import pytest

from ubp2.config.presets import PAPER_TASKS
from ubp2.evaluation.protocol import check_vary
from ubp2.evaluation.statistics import average_rank, worst_case_regret
from ubp2.experiments.catalogue import EXPERIMENTS
from ubp2.experiments.published import ABLATION, CONSERVATIVE, HORIZON, MAIN, PRINTED, Table

# Averages of the printed entries that lie on a half, and were printed the lower way: before rounding, the paper's own
# entries had more digits.
ROUNDED_DOWN = {("table1", "rune"): 60.85, ("table2", "1110"): 69.35}


def values(table: Table) -> np.ndarray:
    return np.array([[entry.value for entry in row.values()] for row in table.values()])


def test_every_task_has_every_method() -> None:
    for table in (MAIN, ABLATION):
        assert all(list(row) == list(PAPER_TASKS) for row in table.values())
    assert values(MAIN).shape == (4, 10) and values(ABLATION).shape == (9, 10)


@pytest.mark.parametrize(("name", "table"), [("table1", MAIN), ("table2", ABLATION)])
def test_averages_are_the_printed_ones(name: str, table: Table) -> None:
    for method, average in zip(table, values(table).mean(axis=1), strict=True):
        printed = PRINTED[name][method][0]
        if (name, method) in ROUNDED_DOWN:
            assert average == pytest.approx(ROUNDED_DOWN[name, method])
            assert printed == pytest.approx(average - 0.05)
        else:
            assert abs(average - printed) <= 0.05 + 1e-9


def test_average_ranks_are_the_printed_ones() -> None:
    ranks = average_rank(values(MAIN))
    assert ranks == pytest.approx([PRINTED["table1"][method][1] for method in MAIN], abs=0.005)


def test_worst_case_regrets_are_the_printed_ones() -> None:
    regrets = worst_case_regret(values(ABLATION))
    assert regrets == pytest.approx([PRINTED["table2"][method][1] for method in ABLATION], abs=0.05)


def test_rows_that_stand_in_several_tables_are_the_same() -> None:
    assert ABLATION["1111"] == MAIN["ubp2"]
    plain = {task: entry._replace(significant=False) for task, entry in MAIN["mbp"].items()}
    assert ABLATION["0000"] == plain
    for table, row in ((CONSERVATIVE, "ubp2"), (HORIZON, "horizon-7")):
        assert all(MAIN["ubp2"][task] == entry for task, entry in table[row].items())


def test_stars_are_where_the_paper_has_them() -> None:
    stars = {method: sum(entry.significant for entry in row.values()) for method, row in MAIN.items()}
    assert stars == {"ubp2": 0, "mbp": 6, "rune": 8, "mrn": 7}


def test_published_names_are_names_of_the_experiment() -> None:
    for experiment in EXPERIMENTS.values():
        names = {method.name for method in experiment.methods}
        assert set(experiment.published) <= names
        for row in experiment.published.values():
            assert set(row) <= set(experiment.tasks)


def test_horizons_of_the_figures_are_those_of_the_appendix() -> None:
    assert {PAPER_TASKS[task].horizon for task in EXPERIMENTS["fig-horizon"].tasks} == {11}
    assert {PAPER_TASKS[task].horizon for task in EXPERIMENTS["table-horizon"].tasks} == {7}


def test_what_methods_differ_in_is_the_protocol_or_a_method() -> None:
    """`vary` is for settings of the protocol; anything else there, and no report could be written."""
    for experiment in EXPERIMENTS.values():
        check_vary(experiment.vary)
