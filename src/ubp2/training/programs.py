"""The compiled programs of a run: every device computation of the loop, each jitted once with fixed shapes.

Randomness has no state: each program folds the decision (or another counter) into the run's key, so that a resumed
run draws what an uninterrupted one would have drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2 import replay as replay_
from ubp2.agents.base import Action, Agent, Metrics
from ubp2.configs import Config, given
from ubp2.preference import buffer, queries
from ubp2.replay import Replay
from ubp2.training import ceiling
from ubp2.training.ceiling import TrueRewards
from ubp2.types import Frame, Preferences, Segments

__all__ = ["STREAMS", "Memory", "Programs", "Selection", "compiled", "make_programs", "memory"]

STREAMS = {"act": 1, "update": 2, "select": 3, "evaluate": 4}


class Memory(NamedTuple):
    """What the agent learns from. `true_rewards` is None except in ceiling mode."""

    replay: Replay
    preferences: Preferences
    true_rewards: TrueRewards | None


class Selection(NamedTuple):
    """The pairs a session asks about."""

    left: Segments  # [K, ...]
    right: Segments
    score: Array  # [K]
    places: Array  # [] segments that the replay holds; 0 means that none of the above is real


class Programs(NamedTuple):
    """Jitted functions; `step` arguments are counters that are folded into the key."""

    init: Callable[[], Any]
    record: Callable[..., tuple[Any, Memory]]  # state, memory, frame, true_reward
    plan: Callable[..., Action]  # state, carry [W, ...], obs [W, D], explore, stream, step
    react: Callable[..., Action]
    update: Callable[..., tuple[Any, Metrics]]  # state, memory, step, repetition
    select: Callable[..., Selection]  # state, replay, step
    predict_reward: Callable[..., Array]


def memory(config: Config, obs_dim: int, action_dim: int, episode_decisions: int) -> Memory:
    """Empty buffers of the sizes that the run needs."""
    decisions = given(config.training.replay_capacity)
    capacity = decisions + decisions // episode_decisions + episode_decisions + 2  # last frames take slots too
    preferences = config.preferences
    return Memory(
        replay_.init(capacity, obs_dim, action_dim),
        buffer.init(
            1 if config.ceiling else max(given(preferences.budget), 1), preferences.segment_length, obs_dim, action_dim
        ),
        ceiling.init(capacity) if config.ceiling else None,
    )


def _record(agent: Agent, state: Any, memory: Memory, frame: Frame, true_reward: Array) -> tuple[Any, Memory]:
    rewards = memory.true_rewards
    if rewards is not None:
        rewards = ceiling.add(rewards, memory.replay.total % rewards.reward.shape[0], true_reward)
    remembered = Memory(replay_.add(memory.replay, frame), memory.preferences, rewards)
    return agent.observe(state, frame.obs), remembered


def _act(act: Callable[..., Action], root: Array, state: Any, carry: Array, obs: Array, explore: Array, *step: Array):
    keys = jax.random.split(_fold(root, *step), obs.shape[0])
    return jax.vmap(lambda c, o, k: act(state, c, o, explore, k))(carry, obs, keys)


def _fold(key: Array, *counters: Array) -> Array:
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key


def _update(config: Config, agent: Agent, root: Array, state: Any, memory: Memory, step: Array, repetition: Array):
    key = _fold(root, jnp.int32(STREAMS["update"]), step, repetition)
    k_batch, k_pairs, k_update = jax.random.split(key, 3)
    training = config.training
    batch = replay_.sample(memory.replay, k_batch, training.batch_size, given(training.horizon))
    if memory.true_rewards is not None:
        supervision = ceiling.targets(memory.true_rewards, batch)
    else:
        supervision = buffer.sample(memory.preferences, k_pairs, config.preferences.batch_size)
    return agent.update(state, batch, supervision, k_update)


def _select(config: Config, agent: Agent, root: Array, state: Any, replay: Replay, step: Array) -> Selection:
    """Algorithm 2: draw candidate pairs from the whole replay, score them, keep the best K."""
    preferences = config.preferences
    k_segments, k_strategy = jax.random.split(_fold(root, jnp.int32(STREAMS["select"]), step))
    pairs = max(preferences.candidates, preferences.per_session)
    segments, places = replay_.sample_segments(replay, k_segments, 2 * pairs, preferences.segment_length)
    returns = agent.segment_returns(state, segments)  # [E, 2N]
    returns = returns.reshape(returns.shape[0], pairs, 2)
    strategy = queries.make_strategy(preferences.strategy)
    index, flip, score = queries.select(strategy, k_strategy, returns, preferences.per_session)
    first, second = 2 * index + flip, 2 * index + 1 - flip
    return Selection(
        jax.tree.map(lambda x: x[first], segments), jax.tree.map(lambda x: x[second], segments), score, places
    )


def make_programs(config: Config, agent: Agent) -> Programs:
    """Compile-ready functions for one resolved config."""
    root = jax.random.key(np.uint32(config.seed & 0xFFFFFFFF))
    return Programs(
        init=jax.jit(lambda: agent.init(jax.random.fold_in(root, 0))),
        record=jax.jit(partial(_record, agent), donate_argnums=(0, 1)),
        plan=jax.jit(partial(_act, agent.plan, root)),
        react=jax.jit(partial(_act, agent.react, root)),
        update=jax.jit(partial(_update, config, agent, root), donate_argnums=0),
        select=jax.jit(partial(_select, config, agent, root)),
        predict_reward=jax.jit(agent.predict_reward),
    )


def compiled(programs: Programs) -> int:
    """How many compilations the programs have cost so far; constant once every shape was seen."""
    return sum(program._cache_size() for program in programs)  # type: ignore[attr-defined]
