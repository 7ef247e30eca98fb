"""A session of questions: choose pairs, put them into the label store, let the teacher answer, take the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ubp2.config.schema import Config, TeacherConfig
from ubp2.preference.store import Answered, LabelStore
from ubp2.preference.teachers import Situation, Teacher, checked, make_teacher
from ubp2.storage.archive import EpisodeArchive
from ubp2.training.member_axis import Layout
from ubp2.training.programs import Programs
from ubp2.training.records import Selection, empty_preferences
from ubp2.training.seeds import join
from ubp2.training.startup import empty_rows
from ubp2.types import Preferences, Query, Segments

__all__ = [
    "Outcome",
    "answer",
    "ask",
    "batches",
    "collect",
    "fall_back",
    "held",
    "merged",
    "questions",
    "relearned",
    "rewards_along",
]

RECENT = 10  # episodes whose mean return a scripted teacher goes by (B-Pref)


class Outcome(NamedTuple):
    """The outcome of a session for a member."""

    labels: int  # answers taken that carry weight
    accuracy_before: float | None  # share of the new labels that the reward ensemble had right; None without labels


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
    config: Config,
    teacher: Teacher | None,
    archive: EpisodeArchive,
    store: LabelStore,
    at: tuple[int, int],
    episode_length: int,
) -> None:
    """Let the teacher answer the questions of a session, at = (decision, session); None: that of the config.

    It alone reads the true reward, from the archive. It sees the whole session even if a kill came between two answers,
    so that a teacher who draws noise draws the same; an answer that is there already is left as it is.
    """
    decision, session = at
    asked = store.session(session)
    if not asked:
        return
    left, right = _rewards(config, archive, [pending.query for pending in asked])
    annotator = "custom" if teacher else config.teacher.name
    if teacher is None:
        teacher = _scripted(config.teacher, archive, session, episode_length)
    labels, weights = checked(teacher(_seed(config, decision), left, right), len(asked))
    store.answer_all(zip((each.id for each in asked), labels, weights, strict=True), annotator)


def _scripted(teacher: TeacherConfig, archive: EpisodeArchive, session: int, episode_length: int) -> Teacher:
    """The scripted teacher of a session, who goes by what the agent got of late."""
    recent_return = float(np.mean(archive.returns(RECENT)))
    return make_teacher(teacher, Situation(session, recent_return, episode_length))


def _rewards(config: Config, archive: EpisodeArchive, queries: Sequence[Query]) -> tuple[np.ndarray, np.ndarray]:
    """True rewards [N, L] of the left and the right segments."""
    length = config.preferences.segment_length
    left = np.stack([archive.rewards(query.left_episode, query.left_start, length) for query in queries])
    right = np.stack([archive.rewards(query.right_episode, query.right_start, length) for query in queries])
    return left, right


def _seed(config: Config, decision: int) -> int:
    return int(np.random.SeedSequence([config.seed, 7, decision]).generate_state(1)[0])


def fall_back(config: Config, archive: EpisodeArchive, store: LabelStore, decision: int, episode_length: int) -> None:
    """Let the scripted teacher that the config names for this answer every question that people left open."""
    asked = [each for each in store.pending() if each.decision <= decision]  # later ones are an earlier process's
    if not asked:
        return
    rewards = _rewards(config, archive, [pending.query for pending in asked])
    script = dataclasses.replace(config.teacher, name=config.teacher.fallback)
    teacher = _scripted(script, archive, asked[0].session, episode_length)
    labels, weights = teacher(_seed(config, decision), *rewards)
    store.answer_all(zip((each.id for each in asked), labels, weights, strict=True), script.name)


def merged(answers: Sequence[Answered]) -> list[Answered]:
    """One answer a question: of several people the mean, in the order of the first; skipped pairs are left out."""
    groups: dict[int, list[Answered]] = {}
    for answered in answers:
        if answered.weight > 0:
            groups.setdefault(answered.query_id, []).append(answered)
    return [own[0]._replace(label=float(np.mean([each.label for each in own]))) for own in groups.values()]


def held(budget: int, labels: int) -> tuple[int, int]:
    """How many of so many labels a member may learn from, the first ones, and how many are left out."""
    return min(labels, budget), max(labels - budget, 0)


def batches(layout: Layout, answers: Sequence[Answered]) -> list[Preferences]:
    """Answers of a member as rows of one fixed shape, that of a session, the last ones padded; skips are left out."""
    size, answers = layout.config.preferences.per_session, merged(answers)
    return [
        _rows(layout, [(*each.query[:4], each.label, each.weight) for each in answers[first : first + size]])
        for first in range(0, len(answers), size)
    ]


def relearned(layout: Layout, programs: Programs, answers: Sequence[Sequence[Answered]]) -> Preferences:
    """The memory of labels [S, ...] that holds these answers of each member, and nothing else."""
    preferences = join([empty_preferences(layout.config, *layout.sizes[:2])] * layout.size)
    for rows in _together(layout, {i: batches(layout, own) for i, own in enumerate(answers)}):
        preferences = programs.remember(preferences, rows)
    return preferences


def _together(layout: Layout, packed: Mapping[int, Sequence[Preferences]]) -> Iterator[Preferences]:
    """Rows [S, K] of all members at a time; those of members who have none left are empty."""
    empty = empty_rows(layout)
    for batch in range(max(map(len, packed.values()), default=0)):
        own = (packed.get(i, ()) for i in range(layout.size))
        rows = [rows[batch] if batch < len(rows) else empty for rows in own]
        yield jax.tree.map(lambda *parts: np.stack(parts), *rows)


def questions(layout: Layout, member: int, queries: Sequence[Query]) -> Preferences:
    """Questions of one session of a member as rows [S, K], without an answer."""
    content = [(*query[:4], 0.5, 1.0) for query in queries[: layout.config.preferences.per_session]]
    return next(_together(layout, {member: [_rows(layout, content)]}))


def rewards_along(
    programs: Programs, state: Any, queries: Sequence[Query], length: int
) -> list[dict[str, list[float]]]:
    """The learned reward at each decision of both sides of each question; of a run of one seed.

    All decisions go through the program that evaluation has for episodes of this `length`, as if they were episodes.
    """
    obs = np.concatenate([side for query in queries for side in (query.left_obs, query.right_obs)])
    action = np.concatenate([side for query in queries for side in (query.left_action, query.right_action)])
    missing = -len(obs) % length
    obs, action = (np.concatenate([x, np.zeros((missing, x.shape[1]), x.dtype)]) for x in (obs, action))
    parts = [
        np.asarray(programs.predict_reward(state, obs[None, at : at + length], action[None, at : at + length]))[0]
        for at in range(0, len(obs), length)
    ]
    sides = np.concatenate(parts)[: len(obs) - missing].reshape(len(queries), 2, -1).round(4).tolist()
    return [{"left": left, "right": right} for left, right in sides]


def _rows(layout: Layout, content: Sequence[tuple[Any, ...]]) -> Preferences:
    rows = empty_rows(layout)
    for i, values in enumerate(content):
        for array, value in zip(rows[:6], values, strict=True):
            array[i] = value  # type: ignore[index]
    return rows._replace(count=np.int32(len(content)))  # type: ignore[arg-type]


def collect(
    layout: Layout,
    programs: Programs,
    state: Any,
    preferences: Preferences,
    packed: Mapping[int, Sequence[Preferences]],
) -> tuple[Preferences, dict[int, Outcome]]:
    """Move new answers to the device, and judge first how many of each member's its reward model foresaw."""
    right, weighted = dict.fromkeys(packed, 0.0), dict.fromkeys(packed, 0)
    for rows in _together(layout, packed):
        returns = jax.device_get(programs.judge(state, rows))  # [S, 2, K]
        for i in packed:
            (left, other), label = returns[i], rows.label[i]
            foreseen = np.where(label == 0.5, 0.5, (left > other) == (label > 0.5))
            given = np.asarray(rows.weight[i]) > 0  # padding has none
            right[i] += float(foreseen[given].sum())
            weighted[i] += int(given.sum())
        preferences = programs.remember(preferences, rows)
    return preferences, {i: Outcome(n, right[i] / n if n else None) for i, n in weighted.items()}
