"""Sentences for runs whose questions taught them nothing: none was asked, none was answered, or all were ties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ubp2.config.schedule import first_session, labels_that_fit
from ubp2.preference.store import Answered
from ubp2.training.crew import Crew
from ubp2.training.state import Counters

__all__ = ["closing_note", "warn_of_ties"]


def closing_note(crew: Crew, counters: Counters) -> str | None:
    """A sentence on members that ended without learning from any question; None if there is none."""
    meant = crew.alive & (crew.budgets > 0)
    unasked, untaught = meant & (counters.sessions == 0), meant & (counters.labels == 0)
    silent = unasked if unasked.any() else untaught
    if crew.config.ceiling or not silent.any():
        return None
    names = ", ".join(crew.name(i) for i in np.flatnonzero(silent).tolist()) if not silent.all() else ""
    return (f"{names}: " if names else "") + _why_silent(crew, counters, silent)


def _why_silent(crew: Crew, counters: Counters, silent: np.ndarray) -> str:
    """Why these members [S] were not asked or, if they were, have no label."""
    first = crew.members[int(np.flatnonzero(silent)[0])]
    config, prefs, spec = first.config, first.config.preferences, first.spec
    if not counters.sessions[silent].any():
        early = (counters.episode > counters.decision // spec.episode_decisions)[silent].any()  # some ended early
        if not early and not labels_that_fit(prefs, config.steps, spec.episode_decisions):
            sooner = "every" if prefs.first is None else "first"
            return (
                f"nothing was asked: no episode ends between decision {first_session(prefs)}, the first session, and "
                f"the end; raise --steps or lower --preferences.{sooner}"
            )
        return (
            f"nothing was asked: episodes had no two segments of {prefs.segment_length} decisions; "
            f"lower --preferences.segment-length"
        )
    if crew.people:
        waiting = sum(crew.members[i].store.waiting() for i in np.flatnonzero(silent).tolist())
        why = f"{waiting} questions wait for an answer" if waiting else "nobody could tell the segments of a pair apart"
        return f"no label was given: {why}"
    advice = "; lower --teacher.skip" if first.teacher is None else ""
    return f"no label was given: the teacher skipped every question{advice}"


def warn_of_ties(crew: Crew, counters: Counters, answers: Mapping[int, Sequence[Answered]]) -> None:
    """Say so where a scripted teacher found no difference in a whole first session: there may be no reward at all."""
    if crew.people:
        return
    for i, own in answers.items():
        first = [each for each in own if each.weight] if not counters.sessions[i] else []
        if not first or crew.members[i].teacher is not None or any(each.label != 0.5 for each in first):
            continue
        whose = f"{crew.name(i)}: " if crew.size > 1 else ""
        crew.progress.note(
            f"{whose}all {len(first)} answers of the first session are ties: the environment's reward was the same in "
            f"both clips of each pair. If it gives no reward, let people answer (--teacher human), or a function of "
            f"yours (teacher=...)"
        )
