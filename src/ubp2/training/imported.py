"""Labels of other runs, which a run has from the start or got while it stood still; they cost no budget."""

from __future__ import annotations

import shlex

import numpy as np

from ubp2.errors import UserError
from ubp2.training import session
from ubp2.training.crew import Crew, Member
from ubp2.training.programs import Programs
from ubp2.training.state import State

__all__ = ["take"]


def take(crew: Crew, programs: Programs, state: State) -> np.ndarray:
    """Fill the memories with imported labels that are not there yet, before the next decision; who [S] got some.

    They are asked at decision 0, where no session is. Whatever else came since the cursor is taken along, which it
    passes; those taken before a checkpoint are restored with all others.
    """
    wanted, counters, device = crew.config.preferences.imported, state.counters, state.device
    told = np.zeros(crew.size, bool)
    if not wanted or crew.config.ceiling:
        return told
    for i, member in enumerate(crew.members):
        _require(member, wanted)
        answers = member.store.answers(after=int(counters.cursor[i]), up_to_decision=counters.decision)
        if not any(each.decision == 0 for each in answers):
            continue
        device.wake(programs)
        preferences = device.memory.preferences
        for rows in session.batches(crew.config, crew.envs.spec, answers):
            preferences = programs.remember(preferences, np.int32(i), rows)
        device.memory = device.memory._replace(preferences=preferences)
        counters.cursor[i] = answers[-1].id
        new = sum(each.weight > 0 for each in answers)
        counters.labels[i] += new
        told[i] = new > 0
        member.metrics.write("labels", counters.decision, {"labels/used": float(counters.labels[i])})
    if told.any():
        crew.progress.note(f"labels of other runs: {wanted} in each run's store, all taken")
    return told


def _require(member: Member, wanted: int) -> None:
    """Refuse to go on without labels that the configuration counts on."""
    there = member.store.imported()
    if there < wanted:
        raise UserError(
            f"{member.run.folder} has {there} labels of other runs, and its configuration counts on {wanted} "
            f"(preferences.imported): their copy was interrupted; put them there with: "
            f"ubp2 labels import {shlex.quote(str(member.run.folder))} FILE"
        )
