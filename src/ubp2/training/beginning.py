"""Where a run begins: at decision 0, or at the newest checkpoint that all members have."""

from __future__ import annotations

from ubp2.agents.base import Agent
from ubp2.envs.base import EnvSpec
from ubp2.training import asking, checkpoint, imported, stepping
from ubp2.training.crew import Crew
from ubp2.training.ongoing import Ongoing
from ubp2.training.programs import Programs
from ubp2.training.state import Counters, Device, State, check_environment, replay_current, restore

__all__ = ["begin"]


def begin(crew: Crew, agent: Agent, programs: Programs) -> State:
    """Fresh state, or that of the newest checkpoint that all members have."""
    folders = [member.run.checkpoints for member in crew.members]
    saved = checkpoint.load_common(folders)
    start = saved[0].decision if saved else 0
    if any([checkpoint.drop_after(folder, start) for folder in folders]):
        crew.progress.note(
            f"a kill came while the seeds were saved; all go on from decision {start}, the newest that each has"
        )
    if saved is None:
        if any(len(member.archive) for member in crew.members):
            crew.progress.note("there is no checkpoint yet: the run begins again at decision 0")
        crew.progress.note(crew.headline())
        for member in crew.members:
            member.archive.truncate(0)
            member.metrics.truncate(0)
        state = State(Counters.start(crew.size), Device(), Ongoing.empty(crew.size, crew.sizes))
        imported.take(crew, programs, state)
        stepping.begin(crew, state, stepping.send_resets(crew, state, list(range(crew.size))))
        asking.announce(crew, state.counters)
        return state
    for member, own in zip(crew.members, saved, strict=True):
        check_environment(EnvSpec.from_dict(own.meta["environment"]), member.spec, going_on=True)
        member.metrics.truncate(own.meta["metrics_position"])
    state = restore(crew, programs, saved)
    differ = replay_current(crew, state.ongoing)
    if differ:
        stepping.discard(crew, state, differ, "what is seen is not what was seen before the run was stopped")
    asking.announce(crew, state.counters)
    taught = imported.take(crew, programs, state) & imported.fitted(crew, state.counters)
    decision, labels = state.counters.decision, int(state.counters.labels.sum())
    crew.progress.resume(decision, labels=labels, steady=False)
    crew.progress.note(f"resumed at decision {decision} with {labels} labels")
    taught |= asking.awaited(crew, programs, state)
    if taught.any() and agent.fit is not None:
        asking.fit(crew, programs, state, taught)
    return state
