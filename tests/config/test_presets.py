"""Presets from Python: named configurations, of which some settings may be said otherwise."""

from __future__ import annotations

import dataclasses

import pytest

from ubp2.config.presets import preset
from ubp2.errors import UserError


def test_settings_are_laid_over_a_preset() -> None:
    plain = preset("cpu", "gym/Pendulum-v1")
    changed = preset("cpu", "gym/Pendulum-v1", steps=4000, planner={"horizon": 5}, teacher="human")
    assert (changed.steps, changed.planner.horizon, changed.teacher.name) == (4000, 5, "human")
    assert dataclasses.replace(changed, steps=plain.steps, planner=plain.planner, teacher=plain.teacher) == plain


def test_a_setting_that_there_is_not_is_named() -> None:
    with pytest.raises(UserError, match=r"unknown setting 'stpes'\. Did you mean steps\?"):
        preset("cpu", stpes=4000)
    with pytest.raises(UserError, match=r"unknown setting 'planner\.horizons'\. Did you mean horizon\?"):
        preset("cpu", planner={"horizons": 5})


def test_a_word_that_is_like_no_preset_brings_none_up() -> None:
    """`best`, which needs a GPU, was offered for `fast`."""
    with pytest.raises(UserError, match=r"^unknown preset 'fast'\. Known: best, cpu"):
        preset("fast")
