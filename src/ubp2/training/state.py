"""The state of a run: what is on the device, what is on the host, and how both are saved and restored."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ubp2 import replay as replay_
from ubp2.archive import EpisodeArchive
from ubp2.envs.base import EnvSpec, VectorEnv
from ubp2.errors import UserError
from ubp2.preference import buffer
from ubp2.preference.store import LabelStore
from ubp2.runs import Metrics, Run
from ubp2.training import ceiling, checkpoint
from ubp2.training.programs import Memory, Programs
from ubp2.types import Episode, Frame, Step

__all__ = [
    "Counters",
    "Current",
    "Device",
    "check_environment",
    "episode_seed",
    "make_frame",
    "replay_current",
    "restore",
    "restore_agent",
    "save",
]

_CURRENT_FIELDS = ("obs", "action", "true_reward", "success", "scores")


@dataclass
class Counters:
    """Where the run stands."""

    decision: int = 0
    episode: int = 0  # index of the episode in progress
    sessions: int = 0
    asked: int = 0  # questions put into the label store
    labels: int = 0  # answers with weight that the agent has learned from
    cursor: int = 0  # last answer taken from the label store
    last_row: int = 0  # decision of the last training row
    broken: int = 0  # plan scores that were not finite


@dataclass
class Device:
    """What learning changes, on the accelerator."""

    agent: Any
    memory: Memory
    carry: jax.Array  # [1, ...] warm start of the next plan
    metrics: dict[str, jax.Array]  # of the last update


@dataclass
class Current:
    """The episode in progress, as lists that grow by one entry a decision."""

    seed: int
    obs: list[np.ndarray]
    action: list[np.ndarray] = field(default_factory=list)
    true_reward: list[float] = field(default_factory=list)
    success: list[bool] = field(default_factory=list)
    scores: list[np.ndarray] = field(default_factory=list)  # [5] terms of each plan
    terminated: bool = False

    def add(self, action: np.ndarray, step: Step) -> None:
        """Append one decision and what came of it."""
        self.action.append(action)
        self.obs.append(step.obs[0].copy())
        self.true_reward.append(float(step.true_reward[0]))
        self.success.append(bool(step.success[0]))
        self.terminated = bool(step.terminated[0])

    def finished(self, index: int) -> Episode:
        """The episode as it goes into the archive."""
        return Episode(
            index,
            self.seed,
            np.stack(self.obs),
            np.stack(self.action),
            np.array(self.true_reward, np.float64),
            np.array(self.success, bool),
            self.terminated,
        )


def episode_seed(run_seed: int, index: int) -> int:
    """Seed of the index-th training episode of a run."""
    return int(np.random.SeedSequence([run_seed, 1, index]).generate_state(1)[0] >> 1)


def save(run: Run, spec: EnvSpec, counters: Counters, device: Device, current: Current, metrics: Metrics) -> None:
    """Write a checkpoint: the agent, the counters and the episode in progress. The rest is in the two databases."""
    arrays = checkpoint.flatten((device.agent, device.carry, device.metrics))
    for name in _CURRENT_FIELDS:
        arrays[f"current/{name}"] = np.array(getattr(current, name))
    meta = {**dataclasses.asdict(counters), "seed": current.seed, "metrics_position": metrics.position()}
    meta["environment"] = spec._asdict()  # so that the agent can be loaded without its environment
    checkpoint.save(run.checkpoints, counters.decision, arrays, meta, run.config.checkpoint.keep)


def check_environment(trained: EnvSpec, here: EnvSpec) -> None:
    """Refuse an environment that the agent of a checkpoint was not trained on."""
    for name in ("obs_dim", "action_dim"):
        before, now = getattr(trained, name), getattr(here, name)
        if before != now:
            raise UserError(
                f"the run was trained on {trained.id} with {name} {before}, and {here.id} has {now}; "
                f"use the environment it was trained on"
            )


def restore_agent(saved: checkpoint.Checkpoint, like: Any) -> Any:
    """The agent's state alone; `like` is a fresh one of the same config."""
    own = {name.removeprefix("[0]"): array for name, array in saved.arrays.items() if name.startswith("[0]")}
    return checkpoint.unflatten(like, own)


def restore(
    saved: checkpoint.Checkpoint, device: Device, archive: EpisodeArchive, store: LabelStore, programs: Programs
) -> tuple[Counters, Device, Current]:
    """The state that `save` saw, with replay and labels rebuilt from the two databases."""
    meta = saved.meta
    counters = Counters(**{f.name: meta[f.name] for f in dataclasses.fields(Counters)})
    lists: dict[str, Any] = {name: list(saved.arrays[f"current/{name}"]) for name in _CURRENT_FIELDS}
    current = Current(meta["seed"], **lists)
    arrays = {name: array for name, array in saved.arrays.items() if not name.startswith("current/")}
    agent, carry, metrics = checkpoint.unflatten((device.agent, device.carry, device.metrics), arrays)

    archive.truncate(counters.episode)
    episodes = list(archive.iterate())
    replay = replay_.load(device.memory.replay, episodes)
    true_rewards = device.memory.true_rewards
    if true_rewards is not None:
        true_rewards = ceiling.load(true_rewards, episodes)
    preferences = device.memory.preferences
    for answered in store.answers(up_to=counters.cursor):
        preferences = buffer.append(preferences, answered.query, answered.label, answered.weight)
    memory = Memory(replay, preferences, true_rewards)
    scratch = jax.tree.map(jnp.copy, agent)  # `record` also feeds the normaliser, which has seen these frames already
    for i, action in enumerate(current.action):
        frame = make_frame(current.obs[i], action, False, counters.episode, i)
        reward = 0.0 if true_rewards is None else current.true_reward[i]
        scratch, memory = programs.record(scratch, memory, frame, np.float32(reward))
    return counters, Device(agent, memory, carry, metrics), current


def make_frame(obs: np.ndarray, action: np.ndarray, terminated: bool, episode: int, step: int) -> Frame:
    """A frame with the dtypes that the compiled programs expect."""
    return Frame(obs, action, np.bool_(terminated), np.int32(episode), np.int32(step))  # type: ignore[arg-type]


def replay_current(envs: VectorEnv, current: Current) -> None:
    """Bring the environment to where the episode in progress was: an episode is a function of its seed and actions."""
    seen = [envs.reset(0, current.seed)]
    for action in current.action:
        envs.send(action[None])
        seen.append(envs.receive().obs[0].copy())
    if not np.array_equal(np.stack(seen), np.stack(current.obs)):
        raise UserError(
            "the environment does not repeat itself: the episode in progress at the checkpoint, simulated again from "
            "its seed and actions, gave other observations; check that reset(seed=...) seeds everything random in it"
        )
