"""Scripted teachers, with numbers worked by hand."""

from __future__ import annotations

import logging
import math
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from ubp2.config.schema import TeacherConfig
from ubp2.errors import UserError
from ubp2.preference.teachers import TEACHERS, Situation, Teacher, Traits, checked, make_teacher, oracle, traits

# Segments of L = 4 decisions in episodes of T = 20 with a recent mean return of 50: the margin is 50 * 4 / 20 = 10,
# and a tenth of it is a return of 1.
NOW = Situation(session=0, recent_return=50.0, episode_length=20)
LATER = NOW._replace(session=1)


def teacher(now: Situation = NOW, **config: Any) -> Teacher:
    """The scripted teacher of these settings."""
    return make_teacher(TeacherConfig(**config), now)


def answers(pairs: list[tuple[list[float], list[float]]], now: Situation = NOW, **config: Any) -> list[float | None]:
    """The labels of pairs of segments; None where the teacher skips."""
    left, right = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    label, weight = teacher(now, **config)(0, left, right)
    assert set(weight) <= {0.0, 1.0} and label.shape == weight.shape == (len(pairs),)
    return [one if given else None for one, given in zip(label.tolist(), weight, strict=True)]


def test_oracle_prefers_the_larger_sum_and_ties_only_on_equality():
    left = np.array([[1.0, 2.0], [0.0, 0.0], [1.0, -1.0], [0.1, 0.2]])
    right = np.array([[0.0, 2.5], [0.0, 1e-300], [0.0, 0.0], [0.2, 0.1]])
    label, weight = oracle(0, left, right)
    assert label.tolist() == [1.0, 0.0, 0.5, 0.5]
    assert weight.tolist() == [1.0] * 4


def test_oracle_is_antisymmetric_and_ignores_the_seed():
    left, right = np.random.default_rng(0).normal(size=(2, 50, 10))
    assert np.array_equal(oracle(1, left, right)[0], 1 - oracle(2, right, left)[0])
    assert np.array_equal(oracle(1, left, right), teacher(name="oracle")(3, left, right))


def test_oracle_sums_in_double_precision():
    left = np.full((1, 3), 2**24, np.float32)
    right = left.copy()
    right[0, 2] = 1
    left[0, 2] = 2
    assert oracle(0, left, right)[0].tolist() == [1.0]


def test_names_have_the_values_of_b_pref():
    assert TEACHERS["oracle"] == Traits() == (math.inf, 1.0, 0.0, 0.0, 0.0)
    ones = {"noisy": ("beta", 1.0), "myopic": ("gamma", 0.9), "mistake": ("mistake", 0.1)}
    ones |= {"skip": ("skip", 0.1), "equal": ("equal", 0.1)}
    for name, (trait, value) in ones.items():
        assert TEACHERS[name] == Traits()._replace(**{trait: value})
    hints = get_type_hints(TeacherConfig)
    assert (*TEACHERS, "human") == get_args(hints["name"]), "a person has no traits to script"
    assert tuple(TEACHERS) == get_args(hints["fallback"])


def test_settings_lie_over_the_name():
    assert traits(TeacherConfig("noisy", mistake=0.2)) == Traits(beta=1.0, mistake=0.2)
    assert traits(TeacherConfig("skip", skip=0.0, gamma=0.5)) == Traits(gamma=0.5)
    with pytest.raises(UserError, match=r"unknown teacher 'orakle'\. Did you mean oracle"):
        traits(TeacherConfig("orakle"))  # type: ignore[arg-type]


def test_myopic_weighs_the_last_decision_most():
    # By 0.5^3, 0.5^2, 0.5, 1: 8 at first is 1, which loses against 1.1 at last and wins against 0.9.
    early = [8.0, 0.0, 0.0, 0.0]
    pairs = [(early, [0.0, 0.0, 0.0, 1.1]), (early, [0.0, 0.0, 0.0, 0.9]), (early, [0.0, 0.0, 2.0, 0.0])]
    assert answers(pairs, name="myopic", gamma=0.5) == [0.0, 1.0, 0.5]
    assert answers(pairs, name="oracle") == [1.0, 1.0, 1.0]
    # B-Pref's 0.9^3 = 0.729
    assert answers([([1.0, 0, 0, 0], [0, 0, 0, 0.73]), ([1.0, 0, 0, 0], [0, 0, 0, 0.728])], name="myopic") == [0, 1]


def test_skip_leaves_out_pairs_of_which_neither_is_good():
    pairs = [([0.25] * 4, [0.0] * 4), ([0.25] * 4, [0.26] * 4), ([0.0] * 4, [5.0] * 4), ([-9.0] * 4, [0.1] * 4)]
    assert answers(pairs, name="skip") == [None, 0.0, 0.0, None]  # a return of exactly 1 is not above the threshold
    assert answers(pairs, name="skip", skip=1.0) == [None, None, 0.0, None]
    assert answers(pairs, name="oracle") == [1.0, 0.0, 0.0, 0.0]


def test_equal_is_a_tie_where_returns_hardly_differ():
    pairs = [([1.0] * 4, [1.25] * 4), ([1.0] * 4, [1.2] * 4), ([1.2] * 4, [1.0] * 4), ([3.0] * 4, [1.0] * 4)]
    assert answers(pairs, name="equal") == [0.0, 0.5, 0.5, 1.0]  # a difference of exactly 1 is one
    assert answers(pairs, name="equal", equal=0.0) == [0.0, 0.0, 1.0, 1.0]


def test_thresholds_follow_the_agent_and_the_lengths():
    pair = [([1.0] * 4, [1.5] * 4)]  # returns 4 and 6
    for change, skipped in (
        ({"recent_return": 290.0}, False),  # a tenth of 290 * 4 / 20 is 5.8
        ({"recent_return": 310.0}, True),
        ({"recent_return": 310.0, "episode_length": 21}, False),
        ({"recent_return": 0.0}, False),
        ({"recent_return": -310.0}, False),
    ):
        assert (answers(pair, NOW._replace(**change), name="skip") == [None]) == skipped
    short = [([1.0], [5.0])]  # one decision: the margin is 310 / 20
    assert answers(short, NOW._replace(recent_return=310.0), name="skip", skip=0.33) == [None]
    assert answers(short, NOW._replace(recent_return=310.0), name="skip", skip=0.32) == [0.0]


def test_a_negative_return_is_told_once(caplog: pytest.LogCaptureFixture):
    bad = NOW._replace(recent_return=-3.0)
    with caplog.at_level(logging.WARNING):
        for now, name in ((bad, "oracle"), (NOW, "skip"), (bad._replace(session=1), "skip")):
            teacher(now, name=name)
        assert not caplog.records
        teacher(bad, name="equal")
    assert "shares of the recent mean return, which is -3: below 0 they do nothing" in caplog.text


def test_noise_is_bradley_terry():
    """At beta 0.5 and returns that differ by 2, left is preferred with probability sigmoid(1) = 0.7311."""
    left, right = np.full((20_000, 4), 1.0), np.full((20_000, 4), 0.5)
    label, weight = teacher(name="noisy", beta=0.5)(5, left, right)
    assert set(label) == {0.0, 1.0} and weight.all()
    assert label.mean() == pytest.approx(1 / (1 + math.exp(-1)), abs=0.01)  # three standard errors
    assert teacher(name="noisy")(5, left, left)[0].mean() == pytest.approx(0.5, abs=0.011)
    assert teacher(name="noisy", beta=1e6)(5, right, left)[0].mean() == 0.0
    assert set(teacher(name="noisy", beta=math.inf)(5, left, left)[0]) == {0.5}


def test_mistakes_turn_answers_round():
    left, right = np.full((20_000, 4), 1.0), np.full((20_000, 4), 0.5)
    wrong = 1 - teacher(name="mistake")(6, left, right)[0]
    assert wrong.mean() == pytest.approx(0.1, abs=0.0064)  # three standard errors
    assert np.array_equal(teacher(name="mistake")(6, right, left)[0], wrong)
    assert teacher(name="mistake", mistake=1.0)(6, left, right)[0].max() == 0.0
    assert set(teacher(name="mistake", mistake=1.0)(6, left, left)[0]) == {0.5}  # a tie has no other side


def test_noise_and_mistakes_are_independent():
    """P(left) = 0.9 * 0.7311 + 0.1 * 0.2689."""
    left, right = np.full((20_000, 4), 1.0), np.full((20_000, 4), 0.5)
    label, _ = teacher(name="noisy", beta=0.5, mistake=0.1)(7, left, right)
    assert label.mean() == pytest.approx(0.6849, abs=0.01)


def test_all_traits_together():
    """Thresholds of 1; skip and equal go by plain returns, what is preferred, always wrongly, by what is remembered."""
    combined: dict[str, Any] = {"name": "myopic", "gamma": 0.5, "mistake": 1.0, "skip": 0.1, "equal": 0.1}
    pairs = [
        ([0.5, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.9]),  # neither reaches 1: skipped
        ([8.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0]),  # remembered 1 and 3: right, and mistaken left
        ([0.0, 0.0, 0.0, 8.0], [3.0, 3.0, 0.0, 0.0]),  # remembered 8 and 1.125: left, and mistaken right
        ([8.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 8.5]),  # returns 8 and 8.5: equal, whatever is remembered
        ([0.5, 0.0, 0.0, 0.0], [0.5, 0.0, 0.0, 0.0]),  # equal and skipped: skipped
    ]
    assert answers(pairs, **combined) == [None, 1.0, 0.0, 0.5, None]
    assert answers(pairs, beta=1e6, **combined) == [None, 1.0, 0.0, 0.5, None]


def test_compat_squares_the_thresholds_after_the_first_session():
    pairs = [([0.1] * 4, [0.2] * 4), ([1.0] * 4, [1.1] * 4), ([0.01] * 4, [0.02] * 4)]  # 0.4, 0.8; 4, 4.4; 0.04, 0.08
    both: dict[str, Any] = {"skip": 0.1, "equal": 0.1}
    for compat, now, expected in (
        ("none", NOW, [None, 0.5, None]),
        ("none", LATER, [None, 0.5, None]),
        ("bpref-code", NOW, [None, 0.5, None]),
        ("bpref-code", LATER, [0.0, 0.0, None]),  # thresholds of 0.1 in place of 1
    ):
        assert answers(pairs, now, compat=compat, **both) == expected


def test_compat_gives_a_tie_to_the_first():
    tie = [([1.0] * 4, [1.0] * 4)]
    assert answers(tie, compat="bpref-code") == [1.0]
    assert answers(tie, compat="bpref-code", mistake=1.0) == [0.0]
    assert answers(tie, compat="bpref-code", equal=0.1) == [0.5]


def test_what_is_drawn_depends_on_the_seed_alone():
    left, right = np.random.default_rng(0).normal(size=(2, 200, 4))
    noisy: dict[str, Any] = {"beta": 1.0, "mistake": 0.1}
    first, again, other = (teacher(**noisy)(seed, left, right)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    # Skipped pairs and equal ones take their draws with them: the others get the same answer.
    label, weight = teacher(**noisy, skip=0.1, equal=0.1)(1, left, right)
    kept = (weight > 0) & (label != 0.5)
    assert 0 < kept.sum() < 200 and np.array_equal(label[kept], first[kept])


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (None, "a teacher returns two arrays, labels [N] and weights [N], got NoneType; end it with: return labels"),
        ((np.ones(2),), "a teacher returns two arrays"),
        ((np.ones(3), np.ones(2)), "the teacher's labels must be one for each of the 2 pairs, got (3,)"),
        ((np.ones(2), np.ones((2, 1))), "the teacher's weights must be one for each of the 2 pairs, got (2, 1)"),
        ((np.array([1.0, -1.0]), np.ones(2)), "0 (right preferred), 0.5 (tie) or 1 (left preferred), got -1.0"),
        ((np.array([1.0, np.nan]), np.ones(2)), "labels must be 0 (right preferred)"),
        ((np.ones(2), np.array([1.0, -0.5])), "weights must be at least 0, where 0 skips the pair, got -0.5"),
        ((np.ones(2), np.array([1.0, np.inf])), "weights must be at least 0"),
    ],
)
def test_answers_of_a_teacher_of_ones_own_are_checked(returned: Any, sentence: str):
    with pytest.raises(UserError) as error:
        checked(returned, 2)
    assert sentence in str(error.value)
    label, weight = checked(([True, False], [1, 0]), 2)
    assert (label.tolist(), weight.tolist()) == ([1.0, 0.0], [1.0, 0.0])
