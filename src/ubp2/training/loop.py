"""Algorithm 1: act, step, learn, remember, ask, evaluate, write. Everything under it is a pure jitted function."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from ubp2.agents.base import Agent
from ubp2.archive import EpisodeArchive
from ubp2.configs import Config, given
from ubp2.envs.base import EnvSpec, VectorEnv
from ubp2.errors import UserError
from ubp2.preference.store import LabelStore
from ubp2.preference.teachers import Teacher
from ubp2.progress import Progress
from ubp2.runs import Metrics, Run
from ubp2.system import resident_megabytes
from ubp2.training import checkpoint, session
from ubp2.training.evaluate import evaluate
from ubp2.training.programs import STREAMS, Programs, compiled, make_programs, memory
from ubp2.training.state import (
    Counters,
    Current,
    Device,
    check_environment,
    episode_seed,
    make_frame,
    replay_current,
    restore,
    save,
)

__all__ = ["Crew", "Result", "train"]

ROW_EVERY = 100  # decisions between training rows at least, so that short episodes do not flood the log


class Result(NamedTuple):
    """How a run ended."""

    decisions: int
    labels: int
    finished: bool  # False: stopped by a signal, with a checkpoint
    evaluation: dict[str, float]  # of the last evaluation


@dataclass(frozen=True)
class Crew:
    """Everything outside the device that a run works with."""

    config: Config  # resolved
    run: Run
    envs: VectorEnv  # the one environment that the agent lives in
    eval_envs: VectorEnv
    archive: EpisodeArchive
    store: LabelStore
    teacher: Teacher
    metrics: Metrics
    progress: Progress
    stopping: Callable[[], bool]  # a signal asked for the end


def train(crew: Crew, agent: Agent) -> Result:
    """Run Algorithm 1 from the last checkpoint, or from the start, to config.steps."""
    config, envs = crew.config, crew.envs
    programs = make_programs(config, agent)
    counters, device, current = _begin(crew, agent, programs)
    evaluation: dict[str, float] = {}
    started, first = time.monotonic(), counters.decision
    while counters.decision < config.steps and not crew.stopping():
        t = counters.decision
        action = _act(config, programs, counters, device, current)
        envs.send(action[None])
        _learn(config, programs, device, t)  # the device works while the environment steps
        step = envs.receive()
        frame = make_frame(current.obs[-1], action, bool(step.terminated[0]), counters.episode, len(current.action))
        reward = step.true_reward[0] if config.ceiling else 0.0  # an ordinary run hands the device nothing
        device.agent, device.memory = programs.record(device.agent, device.memory, frame, np.float32(reward))
        current.add(action, step)
        counters.decision = t = t + 1
        if step.terminated[0] or step.truncated[0]:
            _end_episode(crew, programs, counters, device, current)
            rate = (t - first) / (time.monotonic() - started)
            timing = {
                "decisions_per_second": rate,
                "compiled": compiled(programs),
                "resident_megabytes": resident_megabytes(),
            }
            _write_row(crew, counters, device, current, timing)
            current = Current(episode_seed(config.seed, counters.episode), [])
            current.obs.append(envs.reset(0, current.seed).copy())
            device.carry = agent.carry()[None]
        if t == config.steps or (config.evaluation.every and t % config.evaluation.every == 0):
            evaluation = evaluate(crew, agent, programs, device, t)
        if t % config.checkpoint.every == 0 or t == config.steps:
            _require_finite(crew, device, t)
            save(crew.run, envs.spec, counters, device, current, crew.metrics)
        crew.progress.update(t, phase=_phase(config, counters), labels=counters.labels)
    finished = counters.decision >= config.steps
    if finished and not config.ceiling and counters.asked == 0:
        crew.progress.note(
            f"nothing was asked: no episode had {config.preferences.segment_length} decisions; "
            f"lower --preferences.segment-length"
        )
    if not finished:
        _require_finite(crew, device, counters.decision)
        save(crew.run, envs.spec, counters, device, current, crew.metrics)
    return Result(counters.decision, counters.labels, finished, evaluation)


def _begin(crew: Crew, agent: Agent, programs: Programs) -> tuple[Counters, Device, Current]:
    """Fresh state, or that of the newest intact checkpoint."""
    config, spec = crew.config, crew.envs.spec
    state = programs.init()
    empty = memory(config, spec.obs_dim, spec.action_dim, spec.episode_decisions)
    _, shapes = jax.eval_shape(programs.update, state, empty, np.int32(0), np.int32(0))
    metrics = {name: np.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
    device = Device(state, empty, agent.carry()[None], metrics)  # type: ignore[arg-type]
    saved = checkpoint.load_latest(crew.run.checkpoints)
    if saved is None:
        crew.archive.truncate(0)
        crew.metrics.truncate(0)
        counters = Counters()
        current = Current(episode_seed(config.seed, 0), [])
        current.obs.append(crew.envs.reset(0, current.seed).copy())
        return counters, device, current
    check_environment(EnvSpec.from_dict(saved.meta["environment"]), spec)
    crew.metrics.truncate(saved.meta["metrics_position"])
    counters, device, current = restore(saved, device, crew.archive, crew.store, programs)
    replay_current(crew.envs, current)
    crew.progress.resume(counters.decision)
    crew.progress.note(f"resumed at decision {counters.decision} with {counters.labels} labels")
    return counters, device, current


def _phase(config: Config, counters: Counters) -> str:
    if counters.decision < given(config.training.warmup):
        return "warm-up"
    if config.ceiling or counters.asked < given(config.preferences.budget):
        return "planning"
    return "policy"


def _act(config: Config, programs: Programs, counters: Counters, device: Device, current: Current) -> np.ndarray:
    """Random while warming up, planning while there are labels to ask for, the policy afterwards."""
    t, phase = counters.decision, _phase(config, counters)
    if phase == "warm-up":
        action_dim = device.memory.replay.frames.action.shape[-1]
        uniform = np.random.default_rng([config.seed, 2, t]).uniform(-1.0, 1.0, action_dim)
        return uniform.astype(np.float32)
    act = programs.plan if phase == "planning" else programs.react
    obs = current.obs[-1][None]
    decision = act(device.agent, device.carry, obs, np.float32(1.0), np.int32(STREAMS["act"]), np.int32(t))
    device.carry = decision.carry
    action, scores, broken = jax.device_get((decision.action[0], decision.scores, decision.broken))
    if phase == "planning":
        current.scores.append(np.array([term[0] for term in scores]))
        counters.broken += int(broken[0])
    return action


def _learn(config: Config, programs: Programs, device: Device, t: int) -> None:
    """One gradient step a decision; after the warm-up, as many at once as it had decisions."""
    training = config.training
    warmup = given(training.warmup)
    if t < warmup or (t - warmup) % training.update_every:
        return
    for repetition in range(given(training.warmup_updates)) if t == warmup else range(1):
        device.agent, device.metrics = programs.update(device.agent, device.memory, np.int32(t), np.int32(repetition))


def _end_episode(crew: Crew, programs: Programs, counters: Counters, device: Device, current: Current) -> None:
    """Remember the last observation, archive the episode, and ask if a session is due."""
    config = crew.config
    last = make_frame(current.obs[-1], np.zeros_like(current.action[-1]), False, counters.episode, len(current.action))
    device.agent, device.memory = programs.record(device.agent, device.memory, last, np.float32(0.0))
    crew.archive.append(current.finished(counters.episode))
    counters.episode += 1
    budget = given(config.preferences.budget)
    due = counters.decision // config.preferences.every > counters.sessions and counters.asked < budget
    if due and not config.ceiling:
        _ask(crew, programs, counters, device)


def _ask(crew: Crew, programs: Programs, counters: Counters, device: Device) -> None:
    """One session: Algorithm 2 chooses, the store keeps, the teacher answers, the agent takes the answers."""
    config, t = crew.config, counters.decision
    selection = jax.device_get(programs.select(device.agent, device.memory.replay, np.int32(t)))
    if selection.places == 0:  # no episode was long enough so far: the session stays due
        return
    most = given(config.preferences.budget) - counters.asked
    counters.asked += session.ask(config, selection, crew.store, (t, counters.sessions), most)
    session.answer(config, crew.teacher, crew.archive, crew.store, t, counters.sessions)
    counters.sessions += 1
    answers = crew.store.answers(after=counters.cursor, up_to_decision=t)
    outcome = session.collect(programs, device.agent, device.memory.preferences, answers, counters.cursor)
    device.memory = device.memory._replace(preferences=outcome.preferences)
    counters.cursor = outcome.cursor
    counters.labels += outcome.labels
    crew.metrics.write(
        "labels",
        t,
        {
            "labels/used": counters.labels,
            "labels/accuracy_before": outcome.accuracy_before,
            "labels/score": float(np.mean(selection.score)),
        },
    )


def _require_finite(crew: Crew, device: Device, t: int) -> dict[str, float]:
    """The metrics of the last update; stops the run, before it can write a checkpoint, if one is not finite."""
    values = {name: float(value) for name, value in jax.device_get(device.metrics).items()}
    broken = [name for name, value in values.items() if not np.isfinite(value)]
    if broken:
        raise UserError(
            f"learning diverged: {broken[0]} is not finite at decision {t}; the checkpoints before it are intact, "
            f"lower --training.learning-rate or look at {crew.run.folder / 'metrics.jsonl'}"
        )
    return values


def _write_row(crew: Crew, counters: Counters, device: Device, current: Current, timing: dict[str, float]) -> None:
    """One training row at the end of an episode."""
    t = counters.decision
    if t - counters.last_row < ROW_EVERY and t < crew.config.steps:
        return
    counters.last_row = t
    learned = _require_finite(crew, device, t)
    values = learned if t > given(crew.config.training.warmup) else {}  # before that there is nothing to report
    values |= {
        "labels/used": counters.labels,
        "episode/return": sum(current.true_reward),
        "episode/length": len(current.action),
        "plan/broken": counters.broken,
    }
    if crew.envs.spec.has_success:
        values["episode/success_any"] = float(any(current.success))
        values["episode/success_last"] = float(current.success[-1])
    if current.scores:
        terms = np.mean(current.scores, axis=0)
        names = ("plan/reward", "bonus/reward", "bonus/dynamics", "plan/value", "bonus/value")
        values |= {name: float(term) for name, term in zip(names, terms, strict=True)}
    values |= {f"time/{name}": value for name, value in timing.items()}
    crew.metrics.write("train", t, values)
