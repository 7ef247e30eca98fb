"""Algorithm 1 for S seeds in lock-step: act, step, learn, remember, ask, evaluate, write.

Everything under it is a compiled function of all seeds. A seed does exactly what it would do alone: episodes, sessions
and phases are its own, the decision alone is common.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from ubp2.agents.base import Agent
from ubp2.config.schema import given
from ubp2.errors import UserError
from ubp2.system import resident_megabytes
from ubp2.training import asking, evaluate, imported, stepping
from ubp2.training.beginning import begin
from ubp2.training.compilation import Program
from ubp2.training.crew import Crew
from ubp2.training.health import require_finite_actions
from ubp2.training.programs import Programs, compiled
from ubp2.training.records import STREAMS, unpacked
from ubp2.training.shared import shared_programs
from ubp2.training.silence import closing_note
from ubp2.training.startup import Stopwatch, prepare
from ubp2.training.state import (
    Counters,
    Device,
    State,
    save,
)
from ubp2.types import Episode, Frame, Step
from ubp2.vision import reels
from ubp2.vision.seeing import Seeing

__all__ = ["Result", "train"]

WAIT_EVERY = 10  # updates right after the warm-up between looks at what the device has done, so that a signal is heard
ROW_EVERY = 100  # decisions between training rows at least, so that short episodes do not flood the log


class Result(NamedTuple):
    """How the run of one member ended."""

    decisions: int
    labels: int
    finished: bool  # False: stopped by a signal or the clock, with a checkpoint, or failed
    evaluation: dict[str, float]  # of the last evaluation
    error: UserError | None = None  # why it failed, and the others went on


def train(crew: Crew, agent: Agent) -> list[Result]:
    """Run Algorithm 1 from the last checkpoint, or from the start, to config.steps; one result a member."""
    programs = shared_programs(crew.layout, agent)
    prepare(programs, agent, crew.layout)
    try:
        return _train(crew, agent, programs)
    finally:
        for program in programs:
            program.cancel()


def _train(crew: Crew, agent: Agent, programs: Programs) -> list[Result]:
    config, envs = crew.config, crew.envs
    state = begin(crew, agent, programs)
    counters, ongoing = state.counters, state.ongoing
    evaluations: list[dict[str, float]] = [{} for _ in crew.members]
    watch, started, first = Stopwatch(crew.progress, crew.waited), time.monotonic(), counters.decision
    late = evaluate.due(crew, counters, first)  # a signal had ended it
    evaluated = _evaluate(crew, agent, programs, state, evaluations)
    if late and evaluated:
        _save(crew, programs, state)
    while (
        evaluated
        and counters.decision < config.steps
        and not crew.stopping()
        and not _time_is_up(crew)
        and _ready(crew, agent, programs, counters)
    ):
        t = counters.decision
        if t == given(config.training.warmup) and not _catch_up(crew, agent, programs, state):
            break
        decided = _act(crew, programs, state)  # Algorithm 1, lines 6-10: a plan, or the policy
        # Lines 13-15 come before 11 and 12:
        # the device has its next work before it is asked for the action, and learns while the environments step.
        _learn(crew, programs, state.device, t)
        action = _actions(crew, agent, state, decided)
        envs.send(action, crew.working if crew.failed else None)  # line 11
        watch.decided(planned=agent.plans and asking.phase(crew, counters) == "planning")
        state.device.wake(programs)
        step, lost = stepping.receive(crew, state, action)
        ended = step.terminated | step.truncated
        _record(crew, agent, programs, state, (action, step, ended))  # line 12
        ongoing.add(action, step, crew.alive)
        counters.decision = t = t + 1
        crew.limit.decided()
        if lost:
            stepping.discard(crew, state, lost)
        if ended.any():
            rate = (t - first) / (time.monotonic() - started)
            timing = {"time/decisions_per_second": rate, "time/compiled": compiled(programs)}
            # Lines 16-22, the questions, are asked where episodes end.
            _end_episodes(crew, agent, programs, state, np.flatnonzero(ended).tolist(), timing, watch)
        evaluated = _evaluate(crew, agent, programs, state, evaluations)
        if evaluated and (t % config.checkpoint.every == 0 or t == config.steps):
            _save(crew, programs, state)
        # The updates after the warm-up and the wait for the first plan come but once: the rate begins after them.
        settled, phase = t > given(config.training.warmup), _in_words(crew, agent, counters)
        crew.progress.update(t, phase=phase, steady=settled, labels=int(counters.labels.sum()))
    finished = evaluated and counters.decision >= config.steps
    if not finished:
        _stop_early(crew, agent, programs, state, evaluations)
    elif note := closing_note(crew, counters):
        crew.progress.note(note)
    if crew.failed:
        crew.progress.note(_who_failed(crew))
    return [
        Result(counters.decision, int(counters.labels[i]), finished and i not in crew.failed, own, crew.failed.get(i))
        for i, own in enumerate(evaluations)
    ]


def _time_is_up(crew: Crew) -> bool:
    """Whether the rest of the time is needed for the last evaluation and a checkpoint."""
    if math.isinf(crew.limit.end):
        return False
    evaluation = crew.config.evaluation
    # With several workers a round of episodes takes longer, and there are fewer rounds: as if there were one, at most.
    rounds = evaluation.episodes * len(evaluation.controllers)
    return crew.limit.near(rounds * crew.sizes.episode_decisions * crew.limit.pace())


def _stop_early(
    crew: Crew, agent: Agent, programs: Programs, state: State, evaluations: list[dict[str, float]]
) -> None:
    """End before the last decision with a checkpoint; if the clock ended the run, evaluate first."""
    t = state.counters.decision
    learned = t > given(crew.config.training.warmup) and (state.counters.evaluated < t)[crew.alive].any()
    if crew.limit.left() < math.inf and not crew.stopping() and learned:
        evaluations[:] = evaluate.evaluate(crew, agent, programs, state) or evaluations
    _save(crew, programs, state)
    if crew.limit.near(0.0):
        crew.progress.note(f"stopped at decision {t:,} of {crew.config.steps:,}: the time is up; --resume goes on")


def _save(crew: Crew, programs: Programs, state: State) -> None:
    began = time.monotonic()
    save(crew, programs, state)
    crew.limit.saving = time.monotonic() - began


def _who_failed(crew: Crew) -> str:
    """Which members are missing at the end."""
    names = ", ".join(crew.name(i) for i in crew.failed)
    return f"{len(crew.failed)} of {crew.size} runs stopped early with an error ({names}); resume goes on with them"


def _in_words(crew: Crew, agent: Agent, counters: Counters) -> str:
    """The phase as a person is told: an agent without a planner asks, or learns from the true reward."""
    phase = asking.phase(crew, counters)
    if phase != "planning" or agent.plans:
        return phase
    return "learning" if crew.config.ceiling else "asking"


def _ready(crew: Crew, agent: Agent, programs: Programs, counters: Counters) -> bool:
    """Wait for what the next decision may call; False where a signal came before it was compiled."""
    t, warmup, needed = counters.decision, given(crew.config.training.warmup), []
    fits = t == warmup and _to_fit(crew, agent, counters).any()
    if t >= warmup:
        deciding = _deciding(programs, asking.planning(crew, counters)[crew.alive])
        needed += [*deciding, programs.update, *([programs.pick] if len(deciding) > 1 else [])]
    if not crew.config.ceiling and asking.due(crew, counters, t + 1).any():
        needed += [programs.select, programs.judge, programs.remember]
        needed += [programs.predict_reward] if crew.people else []
        fits |= agent.fit is not None
    needed += [programs.fit] if fits else []
    if evaluate.due(crew, counters, t + 1):
        needed += evaluate.needed(crew, programs)
    return all(program.ready(crew.stopping) for program in needed)


def _evaluate(crew: Crew, agent: Agent, programs: Programs, state: State, evaluations: list[dict[str, float]]) -> bool:
    """Evaluate if it is time to, and put the outcome in place of the last one; False where a signal ended it."""
    if not evaluate.due(crew, state.counters, state.counters.decision):
        return True
    began = time.monotonic()
    outcome = evaluate.evaluate(crew, agent, programs, state)
    crew.limit.evaluating = time.monotonic() - began
    evaluations[:] = outcome or evaluations
    return outcome is not None


def _act(crew: Crew, programs: Programs, state: State) -> Array | None:
    """Let the device decide, by plans while there are labels to ask for and by the policy afterwards.

    None while warming up: the actions are random. Else `Acted.decided`, which is not waited for here.
    """
    t, device, ongoing = state.counters.decision, state.device, state.ongoing
    if t < given(crew.config.training.warmup):
        return None
    device.wake(programs)
    planning = asking.planning(crew, state.counters)
    first = (ongoing.length == 0)[:, None]
    now = (ongoing.now()[:, None], first, np.float32(1.0), np.int32(STREAMS["act"]), np.int32(t))
    acted = [program(device.agent, device.carry, *now) for program in _deciding(programs, planning[crew.alive])]
    # Members in different phases: each keeps the outcome of its own.
    device.carry, decided = acted[0] if len(acted) == 1 else programs.pick(planning, *acted)
    return decided


def _deciding(programs: Programs, planning: np.ndarray) -> list[Program]:
    """What decides for members [S] of which these plan; of an agent without a planner both are one program."""
    both = ((programs.plan, planning.any()), (programs.react, not planning.all()))
    return list(dict.fromkeys(program for program, called in both if called))


def _actions(crew: Crew, agent: Agent, state: State, decided: Array | None) -> np.ndarray:
    """Actions [S, A]: what the device decided, once it has, or random ones."""
    if decided is None:
        t, size = state.counters.decision, crew.sizes.action_dim
        draws = [np.random.default_rng([member.seed, 2, t]).uniform(-1.0, 1.0, size) for member in crew.members]
        return np.array(draws, np.float32)
    action, terms, broken = (part[:, 0] for part in unpacked(decided))
    t, device, planning = state.counters.decision, state.device, asking.planning(crew, state.counters)
    device.health.check(crew, device.agent, t)  # updates before this decision are done: the action came out of them
    require_finite_actions(crew, device.agent, t, state.ongoing.now(), action)
    if crew.failed:
        action = np.where(crew.alive[:, None], action, 0.0)
    planning &= crew.alive
    if planning.any() and agent.plans:
        state.ongoing.plan(planning, terms)
        state.counters.broken += np.where(planning, broken, 0).astype(np.int64)
    return action


def _catch_up(crew: Crew, agent: Agent, programs: Programs, state: State) -> bool:
    """The gradient steps right after the warm-up. False where a signal came: the agent is as it was before them.

    An agent that learns its reward at sessions learns here from labels that were there before the first session.
    """
    device, t = state.device, state.counters.decision
    device.wake(programs)
    before = jax.device_get(device.agent)
    taught, learned = _to_fit(crew, agent, state.counters), {}
    if taught.any():
        learned = asking.learn_reward(crew, programs, state, taught)
    for repetition in range(given(crew.config.training.warmup_updates)):
        _update(programs, device, t, repetition)
        if crew.stopping():
            device.agent = jax.device_put(before)
            device.health.updates.clear()
            return False
        if repetition % WAIT_EVERY == 0:
            jax.block_until_ready(device.metrics)
            device.health.check(crew, device.agent, t + 1)
    asking.write_fit(crew, state, taught, learned)
    return True


def _to_fit(crew: Crew, agent: Agent, counters: Counters) -> np.ndarray:
    """Which members [S] learn their reward right after the warm-up, from labels that were there from the start."""
    if agent.fit is None:
        return np.zeros(crew.size, bool)
    return (counters.labels > 0) & ~imported.fitted(crew, counters)


def _learn(crew: Crew, programs: Programs, device: Device, t: int) -> None:
    """One gradient step every so many decisions."""
    training = crew.config.training
    since = t - given(training.warmup)
    if since > 0 and since % training.update_every == 0:
        _update(programs, device, t, 0)


def _update(programs: Programs, device: Device, t: int, repetition: int) -> None:
    counters = (np.int32(t), np.int32(repetition))
    device.agent, device.metrics, seen = programs.update(device.agent, device.memory, *counters)
    device.health.learned(t, repetition, device.metrics, seen)


def _record(
    crew: Crew, agent: Agent, programs: Programs, state: State, outcome: tuple[np.ndarray, Step, np.ndarray]
) -> None:
    """Put the decision, and where it was the last one what it led to, into the memory of each member."""
    action, step, ended = outcome
    device, numbers = state.device, (state.counters.episode, state.ongoing.length)
    frame = Frame(state.ongoing.now(), action, step.terminated, *(n.astype(np.int32) for n in numbers))  # type: ignore
    reward = step.true_reward if crew.config.ceiling else np.zeros(crew.size)  # else the device is handed nothing
    seen, device.memory = programs.record(
        agent.seen(device.agent), device.memory, frame, step.obs, ended, reward.astype(np.float32)
    )
    device.agent = agent.with_seen(device.agent, seen)


def _end_episodes(
    crew: Crew,
    agent: Agent,
    programs: Programs,
    state: State,
    ended: list[int],
    timing: dict[str, float],
    watch: Stopwatch,
) -> None:
    """Archive episodes, ask where a session is due, and write a row, all while the environments reset."""
    counters, ongoing = state.counters, state.ongoing
    counters.episode[ended] += 1
    following = stepping.send_resets(crew, state, ended)
    crew.each(lambda i: _archive(crew, ongoing.episode(i, int(counters.episode[i]) - 1), i), ended)
    asking.ask(crew, agent, programs, state, ended)
    _write_rows(crew, state, ended, timing, watch)
    stepping.begin(crew, state, following)


def _archive(crew: Crew, episode: Episode, i: int) -> None:
    """Put an episode of one member on the disk, its frames first: whoever finds the episode may want to see it."""
    reel = crew.envs.reel(i) if isinstance(crew.envs, Seeing) else None
    if reel is not None:
        reels.write(crew.members[i].run.folder, episode.index, reel, crew.members[i].spec.fps)
    crew.members[i].archive.append(episode)


def _write_rows(crew: Crew, state: State, ended: list[int], timing: dict[str, float], watch: Stopwatch) -> None:
    """One training row at the end of an episode."""
    counters, t = state.counters, state.counters.decision
    due = [i for i in ended if t - counters.last_row[i] >= ROW_EVERY or t >= crew.config.steps]
    due = [i for i in due if i not in crew.failed]
    if not due:
        return
    counters.last_row[due] = t
    state.device.health.check(crew, state.device.agent, t)
    learned: dict[str, np.ndarray] = jax.device_get(state.device.metrics)
    timing = timing | {"time/resident_megabytes": resident_megabytes()} | watch.untold()

    def write(i: int) -> None:
        member = crew.members[i]
        values = {name: float(value[i]) for name, value in learned.items()}
        values |= {"labels/used": int(counters.labels[i]), "plan/broken": int(counters.broken[i])}
        values["env/restarts"] = int(counters.restarts[i])
        member.metrics.write("train", t, values | state.ongoing.summary(i, member.spec.has_success) | timing)

    crew.each(write, due)
