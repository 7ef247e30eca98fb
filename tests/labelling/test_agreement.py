"""Kappa and alpha against examples worked by hand and published ones."""

from __future__ import annotations

import math
from itertools import zip_longest

import pytest

from ubp2.labelling.agreement import cohen_kappa, krippendorff_alpha, summary
from ubp2.preference.store import Given


def units(*observers: str) -> list[list[str]]:
    """Columns of a table of observers, a dot for a missing value."""
    return [[value for value in unit if value != "."] for unit in zip_longest(*(o.split() for o in observers))]


def test_kappa_of_a_table_worked_by_hand():
    """20 both yes, 15 both no, 5 and 10 apart: 35/50 seen, (25*30 + 25*20)/50^2 = 1/2 by chance."""
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)


def test_kappa_with_three_values_worked_by_hand():
    """Seen 3/6, then 5/6; chance (3*2 + 2*2 + 1*2)/36 = 1/3."""
    assert cohen_kappa([1, 1, 1, 0, 0, 0.5], [1, 1, 0.5, 0, 0.5, 0]) == pytest.approx((0.5 - 12 / 36) / (1 - 12 / 36))
    assert cohen_kappa([1, 1, 1, 0, 0, 0.5], [1, 1, 0.5, 0, 0, 0.5]) == pytest.approx((5 / 6 - 12 / 36) / (2 / 3))


@pytest.mark.parametrize(
    ("first", "second", "kappa"), [("abab", "abab", 1.0), ("aabb", "abab", 0.0), ("ab", "ba", -1.0)]
)
def test_kappa_at_its_ends(first: str, second: str, kappa: float):
    assert cohen_kappa(first, second) == pytest.approx(kappa)


def test_kappa_that_nothing_can_be_said_of():
    assert math.isnan(cohen_kappa([], [])) and math.isnan(cohen_kappa("aaa", "aaa"))
    with pytest.raises(ValueError, match="same units"):
        cohen_kappa("ab", "a")


def test_alpha_of_the_published_examples():
    """Krippendorff (2011): binary, nominal with two observers, and four observers with missing values."""
    assert krippendorff_alpha(units("0 1 0 0 0 0 0 0 1 0", "1 1 1 0 0 1 0 0 0 0")) == pytest.approx(0.095, abs=5e-4)
    two = units("a a b b d c c c e d d a", "b a b b b c c c e d d d")
    assert krippendorff_alpha(two) == pytest.approx(0.692, abs=5e-4)
    four = units(
        "1 2 3 3 2 1 4 1 2 . . .",
        "1 2 3 3 2 2 4 1 2 5 . 3",
        ". 3 3 3 2 3 4 2 2 5 1 .",
        "1 2 3 3 2 4 4 1 2 5 1 .",
    )
    assert krippendorff_alpha(four) == pytest.approx(0.743, abs=5e-4)


def test_alpha_that_nothing_can_be_said_of():
    assert math.isnan(krippendorff_alpha([])) and math.isnan(krippendorff_alpha([["a"], ["b"]]))
    assert math.isnan(krippendorff_alpha([["a", "a"], ["a", "a"]]))
    assert krippendorff_alpha([["a", "a"], ["b", "b"]]) == 1.0


def given(query: int, who: str, label: float, weight: float = 1.0, swapped: bool = False) -> Given:
    return Given(query, query, 0, who, label, weight, 2.0, swapped, 0.0)


def test_summary_of_two_people():
    answers = [given(i, "ann", label) for i, label in enumerate([1, 1, 0, 0])]
    answers += [given(i, "bob", label, swapped=True) for i, label in enumerate([1, 0, 0, 0])]
    answers += [given(9, "ann", 0.5, weight=0.0)]
    data = summary(answers, [given(0, "ann", 1.0), given(1, "ann", 0.0), given(7, "ann", 0.0)])
    (pair,) = data["pairs"]
    assert pair == {"a": "ann", "b": "bob", "both": 4, "agree": 3, "kappa": pytest.approx(0.5)}
    assert data["shared"] == 4 and data["alpha"] == pytest.approx(1 - 7 * 2 / (64 - 9 - 25))
    ann, bob = data["annotators"]
    assert (ann["answers"], ann["cannot_tell"], ann["shown_left"], ann["seconds"]) == (5, 1, 0.5, 2.0)
    assert (ann["repeated"], ann["consistent"], bob["repeated"]) == (2, 1, 0)
    assert bob["shown_left"] == 0.75  # three times right of the question, which was shown on the left


def test_summary_of_nobody():
    assert summary([], []) == {"alpha": None, "shared": 0, "pairs": [], "annotators": []}
