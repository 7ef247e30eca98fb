"""Sessions of questions: who asks when, who answers, and what is taken of the answers.

A scripted teacher answers at once. People answer when they do: the run waits for them, goes on with what is there, or
lets a scripted teacher answer after a while (`teacher.wait`). What they undo or change is taken back from the agent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from ubp2.agents.base import Agent
from ubp2.config.schedule import sessions_due
from ubp2.config.schema import given
from ubp2.preference.store import Answered
from ubp2.training import session
from ubp2.training.crew import Crew, Member
from ubp2.training.health import require_finite_fit
from ubp2.training.programs import Programs
from ubp2.training.records import Selection
from ubp2.training.seeds import take
from ubp2.training.silence import warn_of_ties
from ubp2.training.state import Counters, State

__all__ = ["announce", "ask", "awaited", "due", "fit", "learn_reward", "phase", "planning", "write_fit"]

POLL = 0.25  # seconds between two looks for answers
BEAT = 2.0  # seconds between two signs of life while waiting


def announce(crew: Crew, counters: Counters) -> None:
    """Tell whoever reads the label store where the run stands, once what came after its checkpoint is taken back."""

    def tell(i: int) -> None:
        spec = crew.members[i].spec._asdict()  # labels that are exported say what they are about
        crew.members[i].store.note({"environment": spec})
        if crew.people:
            _beat(crew, counters, crew.members[i], "running")

    crew.each(tell, range(crew.size))


def planning(crew: Crew, counters: Counters) -> np.ndarray:
    """Which members [S] plan once the warm-up is over: those with labels to ask for. The others have their policy."""
    if crew.config.ceiling:
        return np.ones(crew.size, bool)
    return counters.asked < crew.budgets


def phase(crew: Crew, counters: Counters) -> str:
    """The phase of the slowest member."""
    if counters.decision < given(crew.config.training.warmup):
        return "warm-up"
    return "planning" if planning(crew, counters)[crew.alive].any() else "policy"


def due(crew: Crew, counters: Counters, t: int) -> np.ndarray:
    """Which members [S] ask at the end of their episode, if that comes at decision `t`."""
    scheduled = np.array([sessions_due(member.config.preferences, t) for member in crew.members])
    return crew.alive & planning(crew, counters) & (scheduled > counters.sessions)


def ask(crew: Crew, agent: Agent, programs: Programs, state: State, ended: list[int]) -> None:
    """Sessions: the strategy chooses, the store keeps, the teacher answers, the agents take the answers."""
    counters, device, t = state.counters, state.device, state.counters.decision
    if crew.config.ceiling:
        return
    device.health.check(crew, device.agent, t + 1)  # what diverged is not asked
    is_due = due(crew, counters, t)
    ready = [i for i in ended if is_due[i] and not _busy(crew, counters, i)]
    selections = _selected(crew, programs, state, ready)
    answers = crew.each(lambda i: _converse(crew, programs, state, i, selections[i]), selections)
    if crew.people:
        for i in (i for i in ended if i not in selections):
            _wait(crew, counters, i)
            late = _arrived(crew, counters, i)
            if late.answers or late.anew:
                answers[i] = late
    if not answers:
        return
    warn_of_ties(crew, counters, {i: own.answers for i, own in answers.items()})
    taught = _take(crew, programs, state, answers, selections)
    if taught.any() and agent.fit is not None:
        fit(crew, programs, state, taught)


def _selected(crew: Crew, programs: Programs, state: State, ready: Sequence[int]) -> dict[int, Selection]:
    """The pairs that each of these members asks, chosen by one program."""
    ready = [i for i in ready if i not in crew.failed]
    if not ready:
        return {}
    device, members = state.device, np.zeros(crew.size, np.int32)
    members[: len(ready)] = ready
    found = jax.device_get(
        programs.select(device.agent, device.memory, members, np.int32(len(ready)), np.int32(state.counters.decision))
    )
    chosen = {i: take(found, place) for place, i in enumerate(ready)}
    # Without two places there is nothing to compare so far: the session stays due.
    return {i: own for i, own in chosen.items() if own.places > 1}


def awaited(crew: Crew, programs: Programs, state: State) -> np.ndarray:
    """Wait, before a resumed run goes on, for what it was stopped waiting for; which members [S] got labels.

    Also where the answers came while it stood still. What was changed or undone is for the end of an episode, as ever.
    """
    if not crew.people or crew.config.ceiling or crew.config.teacher.wait == "go-on":
        return np.zeros(crew.size, bool)
    answers: dict[int, Arrived] = {}
    for i in crew.working:
        _wait(crew, state.counters, i)
        arrived = _arrived(crew, state.counters, i)
        if arrived.answers and not arrived.anew:
            answers[i] = arrived
    if answers:
        state.device.wake(programs)
    return _take(crew, programs, state, answers, {})


def fit(crew: Crew, programs: Programs, state: State, taught: np.ndarray) -> None:
    """Let the members [S] that got labels learn their reward from all they have, and write how it went."""
    write_fit(crew, state, taught, learn_reward(crew, programs, state, taught))


def learn_reward(crew: Crew, programs: Programs, state: State, taught: np.ndarray) -> dict[str, np.ndarray]:
    """`fit` without a row; returns what would be in it."""
    device, t = state.device, state.counters.decision
    device.agent, metrics, finite = programs.fit(device.agent, device.memory, taught, np.int32(t))
    values: dict[str, np.ndarray] = jax.device_get(metrics)
    well = np.asarray(finite) | ~taught | ~crew.alive
    require_finite_fit(crew, device.agent, t, well, values, device.memory.preferences)
    return values


def write_fit(crew: Crew, state: State, taught: np.ndarray, values: dict[str, np.ndarray]) -> None:
    """One row for each member [S] that has learned its reward."""
    for i in np.flatnonzero(taught).tolist():
        row = {name: float(value[i]) for name, value in values.items()}
        if i not in crew.failed:
            crew.attempt(i, partial(crew.members[i].metrics.write, "fit", state.counters.decision, row))


def _busy(crew: Crew, counters: Counters, i: int) -> bool:
    """Whether a run that goes on has a whole session of questions open, so that no more should be asked.

    Questions of this decision, and later ones, are those of an earlier process, to which this run has not come yet.
    """
    if not crew.people or crew.config.teacher.wait != "go-on":
        return False
    open_ = crew.members[i].store.waiting(up_to_decision=counters.decision - 1)
    return open_ >= crew.members[i].config.preferences.per_session


class Arrived(NamedTuple):
    """What was said since the last look, up to the answer `newest`; anew: all that stands, to be taken from scratch."""

    answers: list[Answered]
    newest: int
    anew: bool = False


def _converse(crew: Crew, programs: Programs, state: State, i: int, selection: Selection) -> Arrived:
    """Ask the questions of one member's session, have them answered, and return the answers that are new."""
    member, counters = crew.members[i], state.counters
    t, number = counters.decision, int(counters.sessions[i])
    most = member.budget - int(counters.asked[i])
    counters.asked[i] += session.ask(member.config, selection, member.store, (t, number), most)
    if crew.people:
        _tell(crew, programs, state, i, number)
        _wait(crew, counters, i)
        return _arrived(crew, counters, i)
    length = member.spec.episode_decisions
    session.answer(member.config, member.teacher, member.archive, member.store, (t, number), length)
    answered = member.store.answers(after=int(counters.cursor[i]), up_to_decision=t)
    return Arrived(answered, answered[-1].id if answered else int(counters.cursor[i]))


def _arrived(crew: Crew, counters: Counters, i: int) -> Arrived:
    """Answers of people since the last look; a sign of life for their page.

    How far they go is settled first: what is said while they are read and taken is for the next look. Where an answer
    that the agent has was changed or undone, it forgets all, and takes what stands now.
    """
    store, t, cursor = crew.members[i].store, counters.decision, int(counters.cursor[i])
    _beat(crew, counters, crew.members[i], "running")
    newest = max(store.newest(up_to_decision=t), cursor)
    anew = store.corrected(cursor, up_to=newest, up_to_decision=t)
    return Arrived(store.answers(0 if anew else cursor, up_to_decision=t, up_to=newest), newest, anew)


def _take(
    crew: Crew,
    programs: Programs,
    state: State,
    answers: Mapping[int, Arrived],
    selections: Mapping[int, Selection],
) -> np.ndarray:
    """Let members learn from their new answers; which of them [S] have labels that they had not."""
    device, layout, taught = state.device, crew.layout, np.zeros(crew.size, bool)
    outcomes = {i: _forgotten(crew, programs, state, i, own) for i, own in answers.items() if own.anew}
    packed = {i: session.batches(layout, own.answers) for i, own in answers.items() if not own.anew}
    if packed:
        held = device.memory.preferences
        held, collected = session.collect(layout, programs, device.agent, held, packed)
        device.memory = device.memory._replace(preferences=held)
        outcomes |= collected
    for i, arrived in answers.items():
        took = partial(_took, crew, state, i, arrived, outcomes[i], selections.get(i))
        taught[i] = bool(crew.attempt(i, took))
    return taught


def _forgotten(crew: Crew, programs: Programs, state: State, i: int, arrived: Arrived) -> session.Outcome:
    """Put what stands now in the place of all labels of a member: some of them were changed or undone."""
    device = state.device
    own = [arrived.answers if i == each else [] for each in range(crew.size)]
    fresh = session.relearned(crew.layout, programs, own)
    put = jax.tree.map(lambda all_, new: all_.at[i].set(new[i]), device.memory.preferences, fresh)
    device.memory = device.memory._replace(preferences=put)
    return session.Outcome(len(session.merged(arrived.answers)), None)


def _took(
    crew: Crew, state: State, i: int, arrived: Arrived, outcome: session.Outcome, selection: Selection | None
) -> bool:
    """Count the answers that a member has taken; True where it has labels that it had not."""
    member, counters, t = crew.members[i], state.counters, state.counters.decision
    before = 0 if arrived.anew else int(counters.labels[i])
    counters.labels[i], late = session.held(member.capacity, before + outcome.labels)
    if late:  # what one person skips costs no label, and another may still tell
        crew.progress.note(f"{late} labels came when the budget was spent: the agent does not learn from them")
    counters.cursor[i] = arrived.newest
    if crew.people:
        counters.asked[i] = member.store.spent(up_to_decision=t, up_to=arrived.newest)
    elif member.config.teacher.compat == "none":  # a skipped question costs no label
        counters.asked[i] -= sum(each.weight == 0 for each in arrived.answers)
    values = {"labels/used": float(counters.labels[i])}
    if selection is not None:
        counters.sessions[i] += 1
        asked = member.config.preferences.per_session
        values["labels/score"] = float(np.mean(selection.score[:asked]))
    if outcome.accuracy_before is not None:
        values["labels/accuracy_before"] = outcome.accuracy_before
    member.metrics.write("labels", t, values)
    return bool(counters.labels[i] > before)


def _tell(crew: Crew, programs: Programs, state: State, i: int, number: int) -> None:
    """Leave for the page what the reward model thinks of each question, to be shown after it was answered.

    A model that has learned from no label thinks nothing: it would agree by chance.
    """
    if not state.counters.labels[i]:
        return
    member, agent = crew.members[i], state.device.agent
    asked = member.store.session(number)
    queries = [pending.query for pending in asked]
    left, right = jax.device_get(programs.judge(agent, session.questions(crew.layout, i, queries)))[i]
    chance = 1 / (1 + np.exp(np.clip(right - left, -50, 50)))
    notes: dict[str, Any] = {f"judged:{each.id}": float(p) for each, p in zip(asked, chance, strict=False)}
    along = session.rewards_along(programs, agent, queries, member.spec.episode_decisions)
    notes |= {f"reward:{each.id}": own for each, own in zip(asked, along, strict=True)}
    member.store.note(notes)


def _wait(crew: Crew, counters: Counters, i: int) -> None:
    """Wait for people as `teacher.wait` says; a signal to stop ends it, and the questions stay open.

    Also for what an earlier process of this run asked, up to the decision at which it stands now.
    """
    member, t = crew.members[i], counters.decision
    teacher = member.config.teacher
    if teacher.wait == "go-on":
        return
    began, beat = time.monotonic(), float("-inf")
    while (left := member.store.waiting(up_to_decision=t)) and not crew.stopping():
        now = time.monotonic()
        if teacher.wait == "fallback" and now - began >= teacher.patience:
            session.fall_back(member.config, member.archive, member.store, t, member.spec.episode_decisions)
            crew.progress.note(f"nobody answered {left} questions in {teacher.patience:g} s: {teacher.fallback} did")
            return
        if now - beat >= BEAT:
            beat = now
            _beat(crew, counters, member, "waiting for answers")
            crew.progress.update(t, phase=f"waiting for a person, {left} question{'s' * (left > 1)} open", steady=False)
        time.sleep(POLL)


def _beat(crew: Crew, counters: Counters, member: Member, doing: str) -> None:
    """A sign of life, and where the run stands, for the page."""
    member.store.note(
        {
            "trainer": doing,
            "phase": phase(crew, counters),
            "beat": time.time(),
            "decision": counters.decision,
            "steps": member.config.steps,
            "budget": member.budget,
            "waiting": member.config.teacher.wait,
        }
    )
