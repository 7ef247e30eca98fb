"""The state of a population: what is on the device, what is on the host, and how both are saved and restored."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ubp2 import replay as replay_
from ubp2.config.schema import given
from ubp2.envs.base import EnvSpec, Faulty, Lost, VectorEnv
from ubp2.envs.visual import is_visual
from ubp2.errors import UserError
from ubp2.preference.store import Answered
from ubp2.training import ceiling, checkpoint, session
from ubp2.training.crew import Crew
from ubp2.training.health import Health, not_finite
from ubp2.training.ongoing import Ongoing
from ubp2.training.programs import Programs
from ubp2.training.records import Memory, memory
from ubp2.training.seeds import join, take

__all__ = [
    "Counters",
    "Device",
    "State",
    "check_environment",
    "episode_seed",
    "remembered",
    "replay_current",
    "restore",
    "restore_agent",
    "save",
    "taken",
]


@dataclass
class Counters:
    """Where the runs stand: the decision is common, everything else is one number a seed, [S]."""

    decision: int
    episode: np.ndarray  # index of the episode in progress
    sessions: np.ndarray
    asked: np.ndarray  # questions that count against the budget
    labels: np.ndarray  # answers with weight that the agent has learned from
    cursor: np.ndarray  # last answer taken from the label store
    last_row: np.ndarray  # decision of the last training row
    broken: np.ndarray  # plan scores that were not finite
    restarts: np.ndarray  # episodes that were discarded because their environment was lost
    evaluated: np.ndarray  # decision of the last evaluation

    @classmethod
    def start(cls, seeds: int) -> Counters:
        """Nothing has happened."""
        return cls(0, *(np.zeros(seeds, np.int64) for _ in fields(cls)[1:]))

    @classmethod
    def join(cls, metas: Sequence[dict[str, Any]]) -> Counters:
        """What `of` gave for each seed, at one decision. Checkpoints of version 0.1.0 lack the last two counters."""
        metas = [{"restarts": 0, "evaluated": meta["decision"], **meta} for meta in metas]
        own = (np.array([meta[each.name] for meta in metas], np.int64) for each in fields(cls)[1:])
        return cls(metas[0]["decision"], *own)

    def of(self, seed: int) -> dict[str, int]:
        """The counters of one seed, for its checkpoint."""
        return {"decision": self.decision} | {f.name: int(getattr(self, f.name)[seed]) for f in fields(self)[1:]}


@dataclass
class Device:
    """What learning changes, on the accelerator; every array has the seed axis [S]."""

    agent: Any = None  # None before `wake`
    memory: Any = None  # Memory
    carry: Any = None  # [S, 1, ...] warm start of the next plan
    metrics: dict[str, jax.Array] = field(default_factory=dict)  # [S] of the last update; empty before the first
    health: Health = field(default_factory=Health)

    def wake(self, programs: Programs) -> None:
        """Make fresh parameters and empty memories, if there are none yet.

        A random decision needs neither, and so the first one does not wait for the program that makes them.
        """
        if self.agent is None:
            self.agent, self.memory, self.carry = programs.init()


@dataclass
class State:
    """All of it."""

    counters: Counters
    device: Device
    ongoing: Ongoing


def episode_seed(run_seed: int, index: int, restarts: int = 0) -> int:
    """Seed of the index-th training episode of a run, or of what takes its place after so many lost environments."""
    again = [restarts] if restarts else []
    return int(np.random.SeedSequence([run_seed, 1, index, *again]).generate_state(1)[0] >> 1)


def save(crew: Crew, programs: Programs, state: State) -> None:
    """Write a checkpoint of every member: agent, counters and episode in progress. The rest is in two databases.

    An agent that is not finite is never written: the run stops, and the checkpoints before it are intact.
    """
    device, counters = state.device, state.counters
    device.wake(programs)
    device.health.check(crew, device.agent, counters.decision + 1)
    metrics = device.metrics or {k: np.zeros(v.shape, v.dtype) for k, v in programs.update.outputs()[1].items()}
    held = jax.device_get((device.agent, device.carry, metrics))

    def write(seed: int) -> None:
        member, own = crew.members[seed], take(held, seed)
        for name in not_finite(own):
            raise UserError(
                f"{name} of the agent of {crew.name(seed)} is not finite at decision {counters.decision}; the "
                f"checkpoints before it are intact in {member.run.checkpoints}; look at {member.run.folder}"
            )
        spec = member.spec._asdict()  # so that the agent can be loaded without its environment
        arrays = checkpoint.flatten(own)
        arrays |= {f"current/{name}": array for name, array in state.ongoing.arrays(seed).items()}
        meta = counters.of(seed) | {"seed": int(state.ongoing.seed[seed]), "environment": spec}
        meta["metrics_position"] = member.metrics.position()
        meta["learned"] = bool(device.metrics)  # else those that are saved are zeros
        checkpoint.save(member.run.checkpoints, counters.decision, arrays, meta, crew.config.checkpoint.keep)

    crew.each(write, crew.working)


def check_environment(trained: EnvSpec, here: EnvSpec, *, going_on: bool = False) -> None:
    """Refuse an environment that the agent of a checkpoint was not trained on.

    going_on: it is to be trained on, so that an episode and an action must mean what they did.
    """
    meaning = ("episode_decisions", "action_repeat", "action_low", "action_high")
    for name in ("obs_dim", "action_dim", *(meaning if going_on else ())):
        before, now = getattr(trained, name), getattr(here, name)
        if before != now:
            raise UserError(
                f"the run was trained on {trained.id} with {name} {before}, and {here.id} has {now}; "
                f"use the environment it was trained on"
            )


def restore_agent(saved: Sequence[checkpoint.Checkpoint], like: Any) -> Any:
    """The agents alone, with a seed axis; `like` is one of the same config, arrays or their shapes."""
    own = ({n.removeprefix("[0]"): array for n, array in c.arrays.items() if n.startswith("[0]")} for c in saved)
    return join([checkpoint.unflatten(like, arrays) for arrays in own])


def restore(crew: Crew, programs: Programs, saved: Sequence[checkpoint.Checkpoint]) -> State:
    """The state that `save` saw, with replay and labels rebuilt from the two databases."""
    counters = Counters.join([each.meta for each in saved])
    answers = taken(crew, counters)
    for seed, member in enumerate(crew.members):
        _require(member.run.episodes, "episodes", len(member.archive), counters, counters.episode[seed])
        _require(member.run.labels, "labels", len(session.merged(answers[seed])), counters, counters.labels[seed])
    ongoing = Ongoing.empty(crew.size, crew.sizes)
    agent, _, carry = programs.init.outputs()
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), (agent, carry, programs.update.outputs()[1])
    )
    trees = []
    for seed, each in enumerate(saved):
        ongoing.restore(seed, each.meta["seed"], each.arrays)
        trees.append(checkpoint.unflatten(like, {n: a for n, a in each.arrays.items() if not n.startswith("current/")}))
        crew.members[seed].archive.truncate(int(counters.episode[seed]))
    agent, carry, metrics = join(trees)
    meta = saved[0].meta
    if not meta.get("learned", counters.decision > given(crew.config.training.warmup)):  # early ones do not say
        metrics = {}
    # Put together on the host: on the device the parts and the whole would take twice the memory of the replay.
    parts = [jax.device_get(remembered(crew, seed, ongoing)) for seed in range(crew.size)]
    held = jax.tree.map(lambda *own: jnp.array(np.stack(own)), *parts)
    preferences = session.relearned(crew.layout, programs, answers)
    return State(counters, Device(agent, held._replace(preferences=preferences), carry, metrics), ongoing)


def _require(database: Path, what: str, there: int, counters: Counters, wanted: int) -> None:
    """Refuse to go on without what was in a database at the checkpoint: the agent would forget it, and nobody know."""
    if there < wanted:
        raise UserError(
            f"{database} has {there} of the {wanted} {what} that the run had at decision {counters.decision}; put the "
            f"whole file back, or start a new run"
        )


def taken(crew: Crew, counters: Counters) -> list[list[Answered]]:
    """The answers that each member has taken, as they stood then."""
    return [
        member.store.answers(up_to=int(cursor), up_to_decision=counters.decision)
        for member, cursor in zip(crew.members, counters.cursor, strict=True)
    ]


def remembered(crew: Crew, seed: int, ongoing: Ongoing) -> Memory:
    """The replay of one member, from its archive and its episode in progress; no label yet.

    Episodes are read from the disk one at a time, so that a long run is not in memory twice.
    """
    archive = crew.members[seed].archive
    # Handed to the host at once, so that the device does not hold the empty one beside what it becomes.
    empty = jax.device_get(memory(crew.layout.config, *crew.layout.sizes))
    current = ongoing.episode(seed, len(archive))
    current = current._replace(obs=current.obs[:-1])  # where it stands now is not in the replay yet
    rewards = empty.true_rewards
    if rewards is not None:
        rewards = ceiling.load(rewards, itertools.chain(archive.iterate(), [current]))
    return Memory(replay_.load(empty.replay, itertools.chain(archive.iterate(), [current])), empty.preferences, rewards)


def replay_current(crew: Crew, ongoing: Ongoing) -> list[int]:
    """Bring the environments to where the episodes in progress were: each is a function of its seed and actions.

    Returns the members whose episode came out differently. Of features of frames that is to be expected: another device
    rounds otherwise, and no camera sees the same twice. Anything else is a mistake in the environment.
    """
    while True:
        try:
            differ = _replayed(crew.envs, ongoing, crew.working)
            break
        except Faulty as error:
            for each in error.all:
                crew.fail(each.index, each)
        except Lost as lost:
            crew.replace(lost)
            if crew.stopping():
                return []  # nobody will step them
    if is_visual(crew.config.env):
        return differ
    for i in differ:
        sentence = (
            "the environment does not repeat itself: the episode in progress at the checkpoint, simulated again from "
            "its seed and actions, gave other observations; check that reset(seed=...) seeds everything random in it"
        )
        crew.fail(i, UserError(sentence))
    return []


def _replayed(envs: VectorEnv, ongoing: Ongoing, which: Sequence[int]) -> list[int]:
    """Simulate the episodes in progress; the members for which they were not the same.

    One without a decision begins here: a run that was stopped may not have waited for its first observation.
    """
    envs.send_resets({i: int(ongoing.seed[i]) for i in which})
    begun, differ = envs.receive_resets(), set[int]()
    for i, obs in begun.items():
        if ongoing.length[i] == 0:
            ongoing.begin(i, int(ongoing.seed[i]), obs)
        elif not np.array_equal(obs, ongoing.obs[i, 0]):
            differ.add(i)
    for step in range(int(ongoing.length[list(which)].max())):
        behind = [i for i in which if ongoing.length[i] > step]
        envs.send(ongoing.action[:, step], behind)
        seen = envs.receive().obs
        differ |= {i for i in behind if not np.array_equal(seen[i], ongoing.obs[i, step + 1])}
    return sorted(differ)
