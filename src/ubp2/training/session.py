"""A session of questions: choose pairs, put them into the label store, let the teacher answer, take the answers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ubp2.archive import EpisodeArchive
from ubp2.configs import Config
from ubp2.preference import buffer
from ubp2.preference.store import Answered, LabelStore
from ubp2.preference.teachers import Teacher
from ubp2.training.programs import Programs, Selection
from ubp2.types import Preferences, Query, Segments

__all__ = ["Outcome", "answer", "ask", "collect"]


class Outcome(NamedTuple):
    """What a session brought."""

    preferences: Preferences
    cursor: int  # the last answer taken from the store
    labels: int  # answers taken that carry weight
    accuracy_before: float  # share of the new labels that the reward ensemble had right; NaN without labels


def ask(config: Config, selection: Selection, store: LabelStore, at: tuple[int, int], most: int) -> int:
    """Put this session's pairs into the store, at = (decision, session); returns how many were asked."""
    queries = _queries(selection, min(config.preferences.per_session, most))
    store.ask(*at, queries, config.preferences.strategy)
    return len(queries)


def _queries(selection: Selection, count: int) -> list[Query]:
    left, right = selection.left, selection.right

    def side(segments: Segments, i: int) -> tuple[np.ndarray, np.ndarray, int, int]:
        return segments.obs[i], segments.action[i], int(segments.episode[i]), int(segments.start[i])  # type: ignore

    rows = []
    for i in range(count):
        (l_obs, l_action, l_episode, l_start), (r_obs, r_action, r_episode, r_start) = side(left, i), side(right, i)
        rows.append(
            Query(l_obs, l_action, r_obs, r_action, l_episode, l_start, r_episode, r_start, float(selection.score[i]))
        )
    return rows


def answer(
    config: Config, teacher: Teacher, archive: EpisodeArchive, store: LabelStore, decision: int, session: int
) -> None:
    """Let a scripted teacher answer the questions of a session. It alone reads the true reward, from the archive.

    It sees the whole session even if a kill came between two answers, so that a teacher who draws noise draws the
    same; an answer that is there already is left as it is.
    """
    asked = store.session(session)
    if not asked:
        return
    length = config.preferences.segment_length
    left = np.stack([archive.rewards(p.query.left_episode, p.query.left_start, length) for p in asked])
    right = np.stack([archive.rewards(p.query.right_episode, p.query.right_start, length) for p in asked])
    seed = int(np.random.SeedSequence([config.seed, 7, decision]).generate_state(1)[0])
    labels, weights = teacher(seed, left, right)
    for question, label, weight in zip(asked, labels, weights, strict=True):
        store.answer(question.id, float(label), float(weight), annotator=config.preferences.teacher)


def collect(programs: Programs, state: Any, preferences: Preferences, answers: list[Answered], cursor: int) -> Outcome:
    """Move new answers from the store to the device, judging first how many the reward model foresaw."""
    right, weighted = 0.0, 0
    for answered in answers:
        query = answered.query
        if answered.weight > 0:
            left = float(np.sum(programs.predict_reward(state, query.left_obs, query.left_action)))
            other = float(np.sum(programs.predict_reward(state, query.right_obs, query.right_action)))
            right += 0.5 if answered.label == 0.5 else float((left > other) == (answered.label > 0.5))
            weighted += 1
        preferences = buffer.append(preferences, query, answered.label, answered.weight)
        cursor = answered.id
    return Outcome(preferences, cursor, weighted, right / weighted if weighted else float("nan"))
