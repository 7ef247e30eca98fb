"""What `ubp2 bench pebble` measures: PEBBLE at its Meta-World sizes with a full memory, batched and as loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2 import replay as replay_
from ubp2.agents import bounded_reward, pebble, sac
from ubp2.agents.gradients import adam
from ubp2.bench import loops
from ubp2.bench.options import Pebble
from ubp2.bench.subject import Subject, moved, subject, with_model
from ubp2.bench.timing import jit
from ubp2.config.files import load_yaml
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config, ModelConfig, PreferenceConfig, TrainingConfig, given
from ubp2.models.networks import MLP
from ubp2.preference import buffer
from ubp2.replay import Replay
from ubp2.training.records import Memory
from ubp2.training.seeds import join, lift, take
from ubp2.types import Batch, Frame

__all__ = ["Work", "agreement", "loop", "minibatch", "sized", "work"]

EPISODE = 100
STEPS = 3  # of SAC until both sides are compared: the targets have moved once
ROWS = 2000  # transitions at which they are compared: more than one block


class Work(NamedTuple):
    """Each of the three as a call; fit and SAC go on from the call before."""

    fit: Callable[[], Any]
    relabel: Callable[[], Any]
    sac: Callable[[], Any]


def sized(options: Pebble) -> Config:
    """PEBBLE's sizes for Meta-World under the file, with the numbers of the command line."""
    config = Config(
        env="metaworld/door-close",
        agent="pebble",
        model=ModelConfig(width=256, depth=3, reward_members=3),
        preferences=PreferenceConfig(segment_length=50, batch_size=128, per_session=50, every=5000),
        training=TrainingConfig(batch_size=512, discount=0.99),
    )
    if options.config is not None:
        config = dataclasses.replace(load_yaml(options.config, config), env=config.env, agent=config.agent)
    training = dataclasses.replace(config.training, replay_capacity=options.replay, horizon=1)
    preferences = dataclasses.replace(config.preferences, budget=options.labels, stop_accuracy=None)
    algorithm = dataclasses.replace(config.sac, epochs=options.epochs)
    config = dataclasses.replace(
        config, steps=1_000_000, training=training, preferences=preferences, sac=algorithm, ceiling=False
    )
    return resolve(config, EPISODE)


def _subject(config: Config, seeds: int) -> Subject:
    """In the middle of a run: the first session, at which critics are reset, is over."""
    own = subject(config, seeds)
    return own._replace(state=own.state._replace(sessions=jnp.ones((seeds,), jnp.int32)))


class _Again:
    """A step that goes on from its own last state."""

    def __init__(self, step: Callable[[Any, Any], Any], state: Any) -> None:
        self._step, self._state, self._count = step, state, 0

    def __call__(self) -> Any:
        self._state = self._step(self._state, np.int32(self._count))
        self._count += 1
        return self._state


def work(config: Config, seeds: int) -> Work:
    """The three for some seeds, each one program; nothing is compiled yet."""
    own = _subject(config, seeds)
    replay, rows = own.memory.replay, slice(given(config.training.replay_capacity))
    obs, action = replay.frames.obs[:, rows], replay.frames.action[:, rows]
    paid = jax.random.normal(jax.random.key(5), replay.frames.episode.shape)
    learn = jax.jit(lift(partial(_learn, config), seeds, (0, 0, 0, None)), donate_argnums=(0,))
    due = np.ones(seeds, bool)

    def copied(tree: Any) -> Any:  # what is donated must not be anybody else's
        return jax.tree.map(jnp.copy, tree)

    return Work(
        fit=_Again(lambda state, count: own.programs.fit(state, own.memory, due, count)[0], copied(own.state)),
        relabel=lambda: own.programs.predict_reward(own.state, obs, action),
        sac=_Again(lambda state, count: learn(state, replay, paid, count), copied(own.state.sac)),
    )


def _learn(config: Config, state: sac.State, replay: Replay, paid: Array, count: Array) -> sac.State:
    """A step of SAC on a batch of the replay, for rewards that lie beside it."""
    k_batch, k_learn = jax.random.split(jax.random.fold_in(jax.random.key(0), count))
    batch = replay_.sample(replay, k_batch, config.training.batch_size, 1)
    return sac.learn(config, state, sac.transitions(config, state, batch), paid[batch.index[0]], k_learn)[0]


def loop(config: Config) -> Work:
    """The three for one seed as loops, from arrays of the host."""
    own = _subject(config, 1)
    state, random = take(own.state, 0), np.random.default_rng(0)
    frames, labels = jax.tree.map(lambda x: np.array(x[0]), (own.memory.replay.frames, own.memory.preferences))
    rows, stats = slice(given(config.training.replay_capacity)), state.sac.stats
    paid: Any = random.normal(size=len(frames.episode)).astype(np.float32)
    fit, relabel, members = loops.make_fit(config), loops.make_relabel(config), loops.apart(state.reward)
    learner, ready = loops.SoftActorCritic(config, state.sac), jit(sac.transitions)

    def fitted(learners: Any, count: Any) -> Any:
        shape = (config.sac.epochs, len(learners))
        orders = random.permuted(np.broadcast_to(np.arange(len(labels.label)), (*shape, len(labels.label))), axis=-1)
        return fit(learners, stats, labels, orders)[0]

    def learn(state: Any, count: Any) -> Any:
        start = random.integers(0, rows.stop - 1, config.training.batch_size)
        learner.learn(ready(state, _batch(frames, start)), paid[start], jax.random.fold_in(jax.random.key(0), count))
        return state

    again = _Again(learn, state.sac)
    return Work(
        fit=_Again(fitted, loops.learners(adam(config), state.reward)),
        relabel=lambda: relabel(members, stats, frames.obs[rows], frames.action[rows]),
        sac=lambda: (again(), learner.policy, learner.critics, learner.log_alpha)[1:],
    )


def _batch(frames: Frame, start: np.ndarray) -> Batch:
    """The decisions in these slots."""
    slots: Any = np.stack([start, start + 1])
    mask = (frames.episode[slots[1:]] == frames.episode[slots[:1]]).astype(np.float32)
    return Batch(frames.obs[slots], frames.action[slots[:1]], frames.terminated[slots[:1]], mask, slots[:1])


def minibatch(config: Config) -> tuple[Any, Batch]:
    """A state, and what an update asks the reward about."""
    own = _subject(config, 1)
    replay = take(own.memory.replay, 0)
    return take(own.state, 0), replay_.sample(replay, jax.random.key(0), config.training.batch_size, 1)


def agreement(config: Config) -> dict[str, float]:
    """The largest difference between ours and the loops, at float32, from the same start with the same draws."""
    with jax.default_matmul_precision("highest"):  # a GPU would round factors of float32 by itself
        few = min(given(config.preferences.budget), config.preferences.batch_size * 5 // 4)  # a part of a minibatch too
        config = with_model(config, precision="float32")
        config = dataclasses.replace(
            config,
            preferences=dataclasses.replace(config.preferences, budget=few),
            training=dataclasses.replace(config.training, replay_capacity=ROWS),
            sac=dataclasses.replace(config.sac, epochs=1),
        )
        own = _subject(config, 1)
        state, memory = take(own.state, 0), take(own.memory, 0)
        state = state._replace(reward=moved(state.reward, jax.random.key(3)))
        return {
            "fit": _fits(config, state, memory),
            "relabel": _rewards(config, state, memory),
            "sac": _steps(config, state, memory),
        }


def _apart(ours: Array, other: Array, start: Array) -> float:
    """The largest difference, in standard deviations of how far ours are from the start."""
    return float(jnp.max(jnp.abs(ours - other)) / jnp.std(ours - start))


def _fits(config: Config, state: Any, memory: Memory) -> float:
    key, frames = jax.random.key(7), memory.replay.frames
    keys = jax.random.split(jax.random.fold_in(jax.random.split(key, 3)[0], 0), config.model.reward_members)
    order = np.stack([buffer.shuffled(memory.preferences, own) for own in keys])
    ours = jit(partial(pebble.fit, config, pebble.Parts()))(state, memory.replay, memory.preferences, key)[0].reward
    learners = loops.learners(adam(config), state.reward)
    learners, _ = loops.make_fit(config)(learners, state.sac.stats, jax.tree.map(np.array, memory.preferences), [order])
    looped = join([own.network for own in learners])
    return _apart(*(bounded_reward.rewards(own, frames.obs, frames.action) for own in (ours, looped, state.reward)))


def _rewards(config: Config, state: Any, memory: Memory) -> float:
    obs, action = memory.replay.frames.obs, memory.replay.frames.action
    ours = jit(partial(pebble.predict_reward, config))(state, obs, action)
    relabel = loops.make_relabel(config)
    other = relabel(loops.apart(state.reward), state.sac.stats, np.array(obs), np.array(action))
    return _apart(ours, jnp.asarray(other), jnp.zeros(()))


def _steps(config: Config, state: Any, memory: Memory) -> float:
    """Of the values of both critics and of what the policy says, after some steps."""
    batch = replay_.sample(memory.replay, jax.random.key(8), config.training.batch_size, 1)
    now, looped, step = state.sac, loops.SoftActorCritic(config, state.sac), jit(partial(sac.learn, config))
    transitions = sac.transitions(config, now, batch)
    reward = jnp.tanh(transitions.z[:, 0])
    for key in jax.random.split(jax.random.key(9), STEPS):
        now, _ = step(now, transitions, reward, key)
        looped.learn(transitions, reward, key)

    def told(critics: MLP, targets: MLP, policy: MLP) -> list[Array]:
        z, action = transitions.z, transitions.action
        return [sac.values(critics, z, action), sac.values(targets, z, action), policy(z)]

    ours, start = (told(own.critics, own.targets, own.policy) for own in (now, state.sac))
    critics = join([own.network for own in looped.critics])
    others = told(critics, join(looped.targets), looped.policy.network)
    return max(_apart(*three) for three in zip(ours, others, start, strict=True))
