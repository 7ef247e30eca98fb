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
from ubp2.agents import sac
from ubp2.agents.base import Action, Agent, Metrics
from ubp2.agents.branch import when
from ubp2.agents.gradients import descend
from ubp2.agents.sac import Transitions
from ubp2.configs import NEIGHBOUR, Config
from ubp2.models import losses, normalizer
from ubp2.models.networks import MLP, apply_members, apply_own, by_blocks, ensemble
from ubp2.models.normalizer import Normalizer
from ubp2.preference import buffer
from ubp2.replay import Replay
from ubp2.types import Batch, Preferences, RewardTargets, Segments

__all__ = ["Parts", "State", "fit", "init", "make_agent", "novelty", "optimizer", "rewards", "update"]


class State(NamedTuple):
    """Everything that learning changes."""

    sac: sac.State
    reward: MLP  # [E, ...]
    reward_optimizer: optax.OptState
    novelty: Array  # [3] count, mean and sum of squared deviations of the novelty of minibatches
    sessions: Array  # [] int32, fits so far


class Parts(NamedTuple):
    """What the relatives of PEBBLE exchange."""

    # state, rewards of the members [E, N] -> what SAC is paid [N]
    pay: Callable[[State, Array], Array] = lambda state, rewards: jnp.mean(rewards, axis=0)
    # what the reward learns before each update: state, transitions, minibatch of labels, key -> state
    before: Callable[[State, Transitions, Preferences, Array], State] | None = None
    # which decisions of labelled pairs count in a step of the fit: key, shape [E, B, L] -> left and right, [E, B, L]
    crop: Callable[[Array, tuple[int, ...]], tuple[Array, Array]] | None = None
    # what else they learn in a step of the fit, which then goes on at any accuracy: members, stats, replay, key -> loss
    besides: Callable[[MLP, Normalizer, Replay, Array], Array] | None = None


def members_of(config: Config, obs_dim: int, action_dim: int, key: Array) -> MLP:
    """A fresh reward ensemble."""
    sizes = [obs_dim + action_dim, *[config.model.width] * config.model.depth, 1]
    return ensemble(config.model.reward_members, lambda k: MLP(sizes, key=k, output_scale=0.3), key)


def init(config: Config, obs_dim: int, action_dim: int, key: Array) -> State:
    """Fresh parameters of SAC and of the reward."""
    k_sac, k_reward = jax.random.split(key)
    reward = members_of(config, obs_dim, action_dim, k_reward)
    return State(
        sac=sac.init(config, obs_dim, action_dim, k_sac),
        reward=reward,
        reward_optimizer=optimizer(config).init(cast(Any, reward)),
        novelty=jnp.array([1e-4, 0.0, 1e-4] if _as_published(config) else [0.0, 0.0, 0.0]),
        sessions=jnp.zeros((), jnp.int32),
    )


def optimizer(config: Config) -> optax.GradientTransformation:
    """Of the reward members."""
    return optax.adam(config.training.learning_rate)


def rewards(members: MLP, z: Array, action: Array) -> Array:
    """Of every member, in (-1, 1): [..., Z], [..., A] -> [E, ...]."""
    return jnp.tanh(by_blocks(partial(apply_members, members), jnp.concatenate([z, action], -1))[..., 0])


def novelty(states: Array, others: Array) -> Array:
    """Distance of each state [N, Z] to its k-th nearest among others [M, Z].

    Each pass finds the next larger distance and counts those that have it; on a CPU `top_k` takes 50 times as long.
    """
    squares = jnp.sum(states**2, 1)[:, None] + jnp.sum(others**2, 1)[None] - 2.0 * states @ others.T
    squares = jnp.maximum(squares, 0.0)
    reached, missing = jnp.full(len(states), -1.0), jnp.full(len(states), NEIGHBOUR)
    for _ in range(NEIGHBOUR):
        following = jnp.min(jnp.where(squares > reached[:, None], squares, jnp.inf), axis=1)
        reached = jnp.where(missing > 0, following, reached)
        missing -= jnp.sum(squares == following[:, None], axis=1)
    return jnp.sqrt(reached)


def _as_published(config: Config) -> bool:
    return config.sac.compat == "bpref-code"


def _paid_for_novelty(
    config: Config, moved: Transitions, others: Array, before: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Novelty [N] in units of its running standard deviation, and the statistics with this minibatch in them.

    The published code adds the share of new samples to the mean where it should multiply by it, and starts from a
    deviation of 1: the deviation is far too large at first, and the novelty paid too small.
    """
    found = novelty(moved.z, others)
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
    moved = sac.transitions(state.sac, batch)
    k_before, k_learn = jax.random.split(key)
    if isinstance(supervision, RewardTargets):
        paid = supervision.reward[0]
    else:
        if parts.before is not None:
            state = parts.before(state, moved, supervision, k_before)
        taught, others = state.sessions > 0, batch.others
        assert others is not None
        seek = partial(_paid_for_novelty, config, moved, normalizer.normalize(state.sac.stats, others))
        strange, seen = when(~taught, seek, (jnp.zeros(moved.mask.shape), state.novelty))
        learned = parts.pay(state, rewards(state.reward, moved.z, moved.action))
        paid = jax.lax.stop_gradient(jnp.where(taught, learned, strange))
        state = state._replace(novelty=seen)
    following, metrics = sac.learn(config, state.sac, moved, paid, k_learn)
    return state._replace(sac=following), metrics | {"reward/paid": losses.masked_mean(paid, moved.mask)}


def fit(
    config: Config, parts: Parts, state: State, replay: Replay, preferences: Preferences, key: Array
) -> tuple[State, Metrics]:
    """The members learn from all labels so far, some epochs or until they answer them; the first time critics reset."""
    k_epochs, k_reset, k_updates = jax.random.split(key, 3)
    size, capacity = min(config.preferences.batch_size, len(preferences.label)), len(preferences.label)
    stats, stop = state.sac.stats, config.preferences.stop_accuracy
    stop = 1.0 if stop is None or parts.besides is not None else stop

    def loss(members: MLP, pairs: Preferences, key: Array) -> tuple[Array, Array]:
        """Of pairs [E, B, ...], own ones for each member: the sum over members of Eq. 4, and how many are right [E]."""
        sides = ((pairs.left_obs, pairs.left_action), (pairs.right_obs, pairs.right_action))
        left, right = (own_rewards(members, stats, *side) for side in sides)  # [E, B, L]
        if parts.crop is not None:
            left, right = (
                reward * kept for reward, kept in zip((left, right), parts.crop(key, left.shape), strict=True)
            )
        logits = jnp.sum(left - right, axis=-1)
        error, accuracy = jax.vmap(losses.preference_loss)(logits, pairs.label, pairs.weight)
        decided = jnp.sum(pairs.weight * (pairs.label != 0.5), axis=1)
        more = 0.0 if parts.besides is None else parts.besides(members, stats, replay, jax.random.fold_in(key, 1))
        return jnp.sum(error) + more, accuracy * decided

    def epoch(carry: tuple[MLP, optax.OptState, Array, Array]):
        members, moments, number, _ = carry
        k_epoch = jax.random.fold_in(k_epochs, number)
        keys = jax.random.split(k_epoch, config.model.reward_members)
        order = jax.vmap(partial(buffer.shuffled, preferences))(keys)
        order = jnp.pad(order, ((0, 0), (0, size)), constant_values=capacity)

        def step(i: Array, carry: tuple[MLP, optax.OptState, Array]):
            members, moments, right = carry
            index = jax.lax.dynamic_slice_in_dim(order, i * size, size, axis=1)  # [E, B]
            known = index < preferences.count
            rows = (field[jnp.minimum(index, capacity - 1)] for field in preferences[:6])
            pairs = Preferences(*rows, count=preferences.count)
            pairs = pairs._replace(weight=pairs.weight * known)
            (_, found), gradient = jax.value_and_grad(loss, has_aux=True)(
                members, pairs, jax.random.fold_in(k_epoch, i)
            )
            return *descend(optimizer(config), gradient, moments, members), right + found

        batches = (preferences.count + size - 1) // size
        start = (members, moments, jnp.zeros(config.model.reward_members))
        members, moments, right = jax.lax.fori_loop(0, batches, step, start)
        answered = (jnp.arange(capacity) < preferences.count) & (preferences.label != 0.5)
        decided = jnp.sum(jnp.where(answered, preferences.weight, 0.0))
        return members, moments, number + 1, jnp.mean(right) / jnp.maximum(decided, 1.0)

    def unfinished(carry: tuple[MLP, optax.OptState, Array, Array]) -> Array:
        return (carry[2] < config.sac.epochs) & (carry[3] <= stop)

    start = (state.reward, state.reward_optimizer, jnp.zeros((), jnp.int32), jnp.zeros(()))
    members, moments, epochs, accuracy = jax.lax.while_loop(unfinished, epoch, start)
    first = state.sessions == 0
    state = state._replace(reward=members, reward_optimizer=moments, sessions=state.sessions + 1)
    metrics = {"fit/epochs": epochs.astype(jnp.float32), "fit/accuracy": accuracy}
    return when(first, partial(_begin, config, parts, replay, preferences, (k_reset, k_updates)), state), metrics


def own_rewards(members: MLP, stats: Normalizer, obs: Array, action: Array) -> Array:
    """Each member judges what is its own: [E, ..., D], [E, ..., A] -> [E, ...]."""
    return jnp.tanh(apply_own(members, jnp.concatenate([normalizer.normalize(stats, obs), action], -1))[..., 0])


def _begin(
    config: Config, parts: Parts, replay: Replay, preferences: Preferences, keys: tuple[Array, Array], state: State
) -> State:
    """Critics as new, and some updates at once: what they knew was about novelty. Policy and temperature stay."""
    state = state._replace(sac=sac.reset_critics(config, state.sac, keys[0]))

    def step(state: State, key: Array) -> tuple[State, None]:
        k_batch, k_update = jax.random.split(key)
        batch = replay_.sample(replay, k_batch, config.training.batch_size, 1)
        batch = batch._replace(others=batch.obs[0])  # nobody is paid for novelty any more
        return update(config, parts, state, batch, preferences, k_update)[0], None

    return jax.lax.scan(step, state, jax.random.split(keys[1], config.sac.reset_updates))[0]


def segment_returns(state: State, segments: Segments) -> Array:
    """Summed reward of every member over each segment: [E, N]."""
    return jnp.sum(rewards(state.reward, normalizer.normalize(state.sac.stats, segments.obs), segments.action), -1)


def predict_reward(state: State, obs: Array, action: Array) -> Array:
    """Mean reward over members at observations [N, D] and actions [N, A]: [N]."""
    return jnp.mean(rewards(state.reward, normalizer.normalize(state.sac.stats, obs), action), axis=0)


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
        segment_returns=segment_returns,
        predict_reward=predict_reward,
        fit=partial(fit, config, own),
        others=config.sac.neighbours,
    )
