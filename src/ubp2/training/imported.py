"""Labels of other runs, which a run has from the start or got while it stood still; they cost no budget."""

from __future__ import annotations

import shlex

import numpy as np

from ubp2.config.schema import given
from ubp2.errors import UserError
from ubp2.training import session
from ubp2.training.crew import Crew, Member
from ubp2.training.programs import Programs
from ubp2.training.state import Counters, State, taken

__all__ = ["fitted", "take"]


def take(crew: Crew, programs: Programs, state: State) -> np.ndarray:
    """Let the members learn from imported labels that they have not yet, from the next decision on; who [S] got some.

    Imported questions are those of decision 0, where no session is. The memory of labels is made anew: one may be the
    answer of a second person to a question that is in it, and the two are one label. Other answers that came since the
    cursor are taken along, which passes them.
    """
    counters, device = state.counters, state.device
    taught = np.zeros(crew.size, bool)
    wanted = {i: crew.members[i].config.preferences.imported for i in crew.working}
    wanted = {i: count for i, count in wanted.items() if count}
    if not wanted or crew.config.ceiling:
        return taught
    for i, count in wanted.items():
        member = crew.members[i]
        _require(member, count)
        new = member.store.answers(after=int(counters.cursor[i]), up_to_decision=counters.decision)
        taught[i] = any(each.decision == 0 for each in new)
        counters.cursor[i] = new[-1].id if taught[i] else counters.cursor[i]
    if not taught.any():
        return taught
    device.wake(programs)
    answers = taken(crew, counters)
    for i in np.flatnonzero(taught).tolist():
        counters.labels[i], _ = session.held(crew.members[i].capacity, len(session.merged(answers[i])))
        values = {"labels/used": float(counters.labels[i])}
        crew.members[i].metrics.write("labels", counters.decision, values)
    preferences = session.relearned(crew.layout, programs, answers)
    device.memory = device.memory._replace(preferences=preferences)
    least, most = min(wanted.values()), max(wanted.values())
    count = f"{most}" if least == most else f"{least} to {most}"
    crew.progress.note(f"learns from {count} labels of other runs{' each' if crew.size > 1 else ''}")
    return taught


def fitted(crew: Crew, counters: Counters) -> np.ndarray:
    """Which members [S] are past their first fit: it is at their first session, or after the warm-up before it."""
    return (counters.sessions > 0) | (counters.decision > given(crew.config.training.warmup))


def _require(member: Member, wanted: int) -> None:
    """Refuse to go on without labels that the configuration counts on."""
    there = len(member.store.imported())
    if there < wanted:
        raise UserError(
            f"{member.run.folder} has {there} labels of other runs, and its configuration counts on {wanted} "
            f"(preferences.imported): their copy was interrupted; put them there with: "
            f"ubp2 labels import {shlex.quote(str(member.run.folder))} FILE"
        )
