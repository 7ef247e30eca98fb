"""The environments of a run: steps and resets, and what becomes of a member whose environment is lost.

A process that died or hung has been replaced when these functions return. Its episode is discarded as if it had never
begun: neither the archive nor the memory keeps any of it, so that a resumed run, which rebuilds the memory from the
archive, has the same one. What the agent has learned meanwhile, it has learned. The decision counts, and the episode
that takes the place has a seed of its own: one that kills its simulator should not be tried again.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np

from ubp2.envs.base import Faulty, Lost
from ubp2.errors import UserError
from ubp2.training import evidence
from ubp2.training.crew import Crew
from ubp2.training.records import Memory
from ubp2.training.state import State, episode_seed, remembered
from ubp2.types import Step

__all__ = ["begin", "discard", "receive", "send_resets"]


def receive(crew: Crew, state: State, action: np.ndarray) -> tuple[Step, list[int]]:
    """What the decision [S, A] led to, and the members whose environment was lost over it.

    Those stand where they stood, without reward or end, until `discard`; and so do members that have failed.
    """
    try:
        step, gone = crew.envs.receive(), []
    except Faulty as error:
        for each in error.all:
            crew.blame(each.index, partial(_while_stepping, crew, state, each, action))
        step, gone = error.step, crew.replace(error.lost) if error.lost else []
    except Lost as lost:
        step, gone = lost.step, crew.replace(lost)
    assert step is not None
    still = sorted({*gone, *crew.failed})
    step.obs[still] = state.ongoing.now()[still]
    for array in (step.true_reward, step.terminated, step.truncated, step.success):
        array[still] = 0
    return step, gone


def _while_stepping(crew: Crew, state: State, error: Faulty, action: np.ndarray) -> UserError:
    own = state.ongoing.arrays(error.index)
    actions = np.concatenate([own["action"], action[error.index][None]])
    return _at_fault(crew, state, error, int(state.ongoing.seed[error.index]), own["obs"], actions)


def discard(crew: Crew, state: State, gone: list[int], why: str = "its environment was lost") -> None:
    """Forget the episodes in progress of these members, count them, and begin others."""
    counters, device = state.counters, state.device
    for i in gone:
        crew.progress.note(
            f"the episode of {crew.name(i)} is discarded after {state.ongoing.length[i]} decisions: {why}"
        )
    counters.restarts[gone] += 1
    seeds = {i: _seed(crew, state, i) for i in gone}
    for i in gone:
        state.ongoing.clear(i)
        device.memory = _with_member(device.memory, i, remembered(crew, i, state.ongoing))
    _begin_anew(crew, state, seeds)


def send_resets(crew: Crew, state: State, members: list[int]) -> dict[int, int]:
    """Let the environments of these members begin their next episode; returns the seeds, for `begin`."""
    members = [i for i in members if i not in crew.failed]
    seeds = {i: episode_seed(crew.members[i].seed, int(state.counters.episode[i])) for i in members}
    crew.envs.send_resets(seeds)
    return seeds


def begin(crew: Crew, state: State, seeds: dict[int, int]) -> None:
    """Wait for the resets that were sent, and begin the episodes."""
    try:
        begun, lost = crew.envs.receive_resets(), None
    except Faulty as error:
        for each in error.all:
            crew.blame(each.index, partial(_at_fault, crew, state, each, seeds[each.index]))
        begun, lost = error.observations, error.lost
    except Lost as error:
        begun, lost = error.observations, error
    for i, obs in begun.items():
        state.ongoing.begin(i, seeds[i], obs)
    if lost is not None:
        gone = crew.replace(lost)
        state.counters.restarts[gone] += 1
        _begin_anew(crew, state, {i: _seed(crew, state, i) for i in gone})


def _begin_anew(crew: Crew, state: State, seeds: dict[int, int]) -> None:
    """Begin episodes in place of lost ones; where the run is to stop, those of the process that goes on with it."""
    if crew.stopping():
        for i, seed in seeds.items():
            state.ongoing.await_reset(i, seed)
        return
    crew.envs.send_resets(seeds)
    begin(crew, state, seeds)


def _seed(crew: Crew, state: State, i: int) -> int:
    return episode_seed(crew.members[i].seed, int(state.counters.episode[i]), int(state.counters.restarts[i]))


def _with_member(held: Memory, i: int, own: Memory) -> Memory:
    """The memory of all with the frames of one replaced; its labels stay."""

    def put(all_: jax.Array, one: jax.Array) -> jax.Array:
        return all_.at[i].set(one)

    replay = jax.tree.map(put, held.replay, own.replay)
    return Memory(replay, held.preferences, jax.tree.map(put, held.true_rewards, own.true_rewards))


def _at_fault(crew: Crew, state: State, error: Faulty, seed: int, *episode: np.ndarray) -> UserError:
    """The error of an environment, with what makes it again saved: the seed and, where it had begun, the episode."""
    i, t = error.index, state.counters.decision
    arrays = {"seed": np.asarray(seed), **dict(zip(("obs", "action"), episode, strict=False))}
    facts = {"what": "environment", "env": crew.members[i].config.env, "index": i, "error": str(error)}
    path = evidence.write(crew.members[i].run, t, facts, arrays)
    return UserError(
        f"{error}; this was environment {i} at decision {t} of the run, the seed and the actions of its episode are in "
        f"{path}, and what checkpoints there are stand"
    )
