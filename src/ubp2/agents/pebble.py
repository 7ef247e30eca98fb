"""PEBBLE (Lee, Smith, Abbeel 2021): SAC on a reward ensemble learned from comparisons.

Before the first labels the policy is drawn to what it has hardly seen (distance to the k-th nearest neighbour); with
them the critics start anew. The reward is fitted at each session, a few epochs or until it answers its labels, and
every update asks the present ensemble for the rewards of its minibatch, so that nothing has to be relabelled.

RUNE, MRN and SURF are this agent with some function of `Parts` exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax import Array

from ubp2 import replay as replay_
from ubp2.agents import bounded_reward, sac
from ubp2.agents.base import Action, Agent, Metrics
from ubp2.agents.bounded_reward import Crop, rewards
from ubp2.agents.branch import when
from ubp2.agents.gradients import adam
from ubp2.agents.sac import Transitions
from ubp2.config.schema import NEIGHBOUR, Config
from ubp2.models import losses, normalizer
from ubp2.models.networks import MLP
from ubp2.models.normalizer import Normalizer
from ubp2.replay import Replay
from ubp2.types import Batch, Preferences, RewardTargets, Segments

__all__ = ["Parts", "State", "fit", "init", "make_agent", "novelty", "predict_reward", "segment_returns", "update"]


class State(NamedTuple):
    """Everything that learning changes."""

    sac: sac.State
    reward: MLP  # [E, ...]
    reward_optimizer: optax.OptState
    novelty: Array  # [3] count, mean and sum of squared deviations of the novelty of minibatches
    sessions: Array  # [] int32, fits so far


class Parts(NamedTuple):
    """What the relatives of PEBBLE exchange."""

    pay: Callable[[State, Array], Array] = lambda state, rewards: jnp.mean(rewards, axis=0)
    """State, rewards of the members [E, N] -> what SAC is paid [N]."""
    before: Callable[[State, Transitions, Preferences, Array], State] | None = None
    """What the reward learns before each update: state, transitions, minibatch of labels, key -> state."""
    crop: Crop | None = None
    """Which decisions of labelled pairs count in a step of the fit: key, shape -> those of both sides [..., L]."""
    besides: Callable[[Replay, MLP, Normalizer, Array], Array] | None = None
    """What else the members learn in a fit, which then has all its epochs: replay, members, statistics, key -> loss."""


def init(config: Config, obs_dim: int, action_dim: int, key: Array) -> State:
    """Fresh parameters of SAC and of the reward."""
    k_sac, k_reward = jax.random.split(key)
    reward = bounded_reward.members_of(config, obs_dim, action_dim, k_reward)
    return State(
        sac=sac.init(config, obs_dim, action_dim, k_sac),
        reward=reward,
        reward_optimizer=adam(config).init(cast(Any, reward)),
        novelty=jnp.array([1e-4, 0.0, 1e-4] if _as_published(config) else [0.0, 0.0, 0.0]),
        sessions=jnp.zeros((), jnp.int32),
    )


def novelty(states: Array, others: Array, own: Array) -> Array:
    """Distance of each state [N, Z] to its k-th nearest among others [M, Z], or to the farthest where there are fewer.

    Its `own` places among them [N, M] do not count. In full precision, for the terms nearly cancel: a GPU would round
    the factors. Each pass finds the next larger distance and counts those that have it; `top_k` sorts all of them on a
    CPU.
    """
    products = jnp.matmul(states, others.T, precision=jax.lax.Precision.HIGHEST)
    squares = jnp.sum(states**2, 1)[:, None] + jnp.sum(others**2, 1)[None] - 2.0 * products
    squares = jnp.where(own, jnp.inf, jnp.maximum(squares, 0.0))
    reached, missing = jnp.full(len(states), -1.0), jnp.full(len(states), NEIGHBOUR)
    for _ in range(NEIGHBOUR):
        following = jnp.min(jnp.where(squares > reached[:, None], squares, jnp.inf), axis=1)
        reached = jnp.where((missing > 0) & jnp.isfinite(following), following, reached)
        missing -= jnp.sum(squares == following[:, None], axis=1)
    return jnp.sqrt(jnp.maximum(reached, 0.0))


def _as_published(config: Config) -> bool:
    return config.sac.compat == "bpref-code"


def _paid_for_novelty(
    config: Config, moved: Transitions, others: Array, own: Array, before: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Novelty [N] in units of its running standard deviation, and the statistics with this minibatch in them.

    The published code adds the share of new samples to the mean where it should multiply by it, and starts from a
    deviation of 1: the deviation is far too large at first, and the novelty paid too small.
    """
    found = novelty(moved.z, others, own)
    count, mean, square = before[1]
    own_count, own_mean = jnp.sum(moved.mask), losses.masked_mean(found, moved.mask)
    own_square = jnp.sum(moved.mask * (found - own_mean) ** 2)
    total, gap = jnp.maximum(count + own_count, 1.0), own_mean - mean
    if _as_published(config):
        own_square *= own_count / jnp.maximum(own_count - 1.0, 1.0)
        following = mean + gap + own_count / total
    else:
        following = mean + gap * own_count / total
    square += own_square + gap**2 * count * own_count / total
    std = jnp.sqrt(square / total)
    return found / jnp.maximum(std, 1e-6), jnp.stack([count + own_count, following, square])


def update(
    config: Config, parts: Parts, state: State, batch: Batch, supervision: Preferences | RewardTargets, key: Array
) -> tuple[State, Metrics]:
    """One step of SAC, paid by novelty before the first labels and by the present reward members after them.

    In ceiling mode it is paid the true reward, and is SAC.
    """
    moved = sac.transitions(config, state.sac, batch)
    k_before, k_learn = jax.random.split(key)
    if isinstance(supervision, RewardTargets):
        paid = supervision.reward[0]
    else:
        if parts.before is not None:
            state = parts.before(state, moved, supervision, k_before)
        taught, others, slots = state.sessions > 0, batch.others, batch.others_index
        assert others is not None and slots is not None
        own = batch.index[0][:, None] == slots[None]
        # Those that do not exist yet are infinite, which normalised is finite and far from all.
        around = normalizer.normalize(config.model, state.sac.stats, others)
        seek = partial(_paid_for_novelty, config, moved, around, own)
        strange, seen = when(~taught, seek, (jnp.zeros(moved.mask.shape), state.novelty))
        learned = parts.pay(state, rewards(state.reward, moved.z, moved.action))
        paid = jax.lax.stop_gradient(jnp.where(taught, learned, strange))
        state = state._replace(novelty=seen)
    following, metrics = sac.learn(config, state.sac, moved, paid, k_learn)
    return state._replace(sac=following), metrics | {"reward/paid": losses.masked_mean(paid, moved.mask)}


def fit(
    config: Config, parts: Parts, state: State, replay: Replay, preferences: Preferences, key: Array
) -> tuple[State, Metrics]:
    """The members learn from all labels so far; the first time the critics start anew."""
    k_fit, k_reset, k_updates = jax.random.split(key, 3)
    besides = None if parts.besides is None else partial(parts.besides, replay)
    learned = (state.reward, state.reward_optimizer)
    (reward, moments), metrics = bounded_reward.fit(
        config, learned, state.sac.stats, preferences, k_fit, parts.crop, besides
    )
    first = state.sessions == 0
    state = state._replace(reward=reward, reward_optimizer=moments, sessions=state.sessions + 1)
    return when(first, partial(_begin, config, parts, replay, preferences, (k_reset, k_updates)), state), metrics


def _begin(
    config: Config, parts: Parts, replay: Replay, preferences: Preferences, keys: tuple[Array, Array], state: State
) -> State:
    """Critics as new, and some updates at once: what they knew was about novelty. Policy and temperature stay."""
    state = state._replace(sac=sac.reset_critics(config, state.sac, keys[0]))

    def step(state: State, key: Array) -> tuple[State, None]:
        k_batch, k_update = jax.random.split(key)
        batch = replay_.sample(replay, k_batch, config.training.batch_size, 1)
        batch = batch._replace(others=batch.obs[0], others_index=batch.index[0])  # nobody is paid for novelty any more
        return update(config, parts, state, batch, preferences, k_update)[0], None

    return jax.lax.scan(step, state, jax.random.split(keys[1], config.sac.reset_updates))[0]


def segment_returns(config: Config, state: State, segments: Segments) -> Array:
    """Summed reward of every member over each segment: [E, N]."""
    z = normalizer.normalize(config.model, state.sac.stats, segments.obs)
    return jnp.sum(rewards(state.reward, z, segments.action), -1)


def predict_reward(config: Config, state: State, obs: Array, action: Array) -> Array:
    """Mean reward over members at observations [N, D] and actions [N, A]: [N]."""
    return jnp.mean(rewards(state.reward, normalizer.normalize(config.model, state.sac.stats, obs), action), axis=0)


def make_agent(config: Config, obs_dim: int, action_dim: int, parts: Parts | None = None) -> Agent:
    """PEBBLE, or a relative with other parts."""
    own = Parts() if parts is None else parts

    def act(state: State, *arguments: Array) -> Action:
        return sac.act(config, state.sac, *arguments)

    return Agent(
        init=partial(init, config, obs_dim, action_dim),
        seen=lambda state: state.sac.stats,
        observe=normalizer.observe,
        with_seen=lambda state, stats: state._replace(sac=state.sac._replace(stats=stats)),
        carry=lambda: jnp.zeros(()),
        plan=act,
        react=act,
        update=partial(update, config, own),
        segment_returns=partial(segment_returns, config),
        predict_reward=partial(predict_reward, config),
        fit=partial(fit, config, own),
        plans=False,
        others=config.sac.neighbours,
        reflex=lambda state: sac.reflex(state.sac),
    )
