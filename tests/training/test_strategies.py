"""Runs with each query strategy and each source of candidates; all but a few are marked slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.helpers import rows, table, tiny
from ubp2 import api
from ubp2.preference.queries import STRATEGIES
from ubp2.storage import population

FAST = {"kcenter-disagreement"}
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in STRATEGIES]
ASKED = "SELECT session, strategy, score, left_episode, left_start, right_episode, right_start FROM queries ORDER BY id"


def questions(folder: Path, strategy: str) -> Iterator[list[tuple[Any, ...]]]:
    """(left episode, left start, right episode, right start) of each session's questions, after what holds for all."""
    asked = table(folder / "labels.sqlite", ASKED)
    assert len(asked) == 14 and {row[1] for row in asked} == {strategy}
    assert np.isfinite([row[2] for row in asked]).all()
    assert all(np.isfinite(row["labels/score"]) for row in rows(folder, "labels"))
    for session in range(4):
        own = [row[3:] for row in asked if row[0] == session]
        pairs = {frozenset([row[:2], row[2:]]) for row in own}
        assert len(pairs) == len(own) == (4 if session < 3 else 2), "no question is asked twice, in whatever order"
        for left_episode, left_start, right_episode, right_start in own:
            assert left_episode != right_episode or abs(left_start - right_start) >= 5, "the two segments overlap"
        yield own


@pytest.mark.parametrize("name", NAMES)
def test_a_run_with_each_strategy(name: str, tmp_path: Path) -> None:
    config = tiny(preferences={"strategy": name}, evaluation={"every": 0})
    result = api.train(config, out=tmp_path / "run", progress=False)
    assert result.finished and result.labels == 14
    assert len(list(questions(tmp_path / "run", name))) == 4


@pytest.mark.slow
def test_seeds_side_by_side_have_labelled_pairs_of_their_own(tmp_path: Path) -> None:
    config = tiny(preferences={"strategy": "kcenter"}, evaluation={"every": 0})
    api.train(config, seeds=2, out=tmp_path / "runs", progress=False)
    one, other = (list(questions(folder, "kcenter")) for folder in population.members(tmp_path / "runs"))
    assert one != other


@pytest.mark.parametrize(("source", "episodes"), [("local", 2), pytest.param("recent", 2, marks=pytest.mark.slow)])
def test_a_run_with_each_source_of_candidates(source: str, episodes: int, tmp_path: Path) -> None:
    """Episodes have 20 decisions and sessions come every 40: two are new at each."""
    preferences = {"strategy": "thompson", "candidates_from": source, "candidate_episodes": episodes}
    config = tiny(preferences=preferences, evaluation={"every": 0})
    assert api.train(config, out=tmp_path / "run", progress=False).labels == 14
    for session, own in enumerate(questions(tmp_path / "run", "thompson")):
        for left, _, right, _ in own:
            assert left // 2 == right // 2 if source == "local" else min(left, right) >= 2 * session


def test_one_episode_to_draw_from_is_asked_about_different_pairs(tmp_path: Path) -> None:
    """Sixteen places: of 400 candidates most have been drawn before, and the best score is that of several."""
    preferences = {"strategy": "entropy", "candidates": 400, "candidates_from": "recent", "candidate_episodes": 1}
    config = tiny(steps=170, preferences=preferences, evaluation={"every": 0})
    assert api.train(config, out=tmp_path / "run", progress=False).labels == 14
    assert len(list(questions(tmp_path / "run", "entropy"))) == 4
