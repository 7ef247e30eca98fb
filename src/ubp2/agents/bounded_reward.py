"""The reward of PEBBLE: bounded members that learn from comparisons at sessions, in epochs over all labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array

from ubp2.agents.base import Metrics
from ubp2.agents.gradients import adam, descend
from ubp2.config.schema import Config
from ubp2.models import losses, normalizer
from ubp2.models.networks import MLP, apply_members, apply_own, by_blocks, ensemble
from ubp2.models.normalizer import Normalizer
from ubp2.preference import buffer
from ubp2.types import Preferences

__all__ = ["Besides", "Crop", "fit", "members_of", "rewards"]

# Which decisions of labelled pairs count in a step: key, shape [E, B, L] -> left and right, [E, B, L] each.
Crop = Callable[[Array, tuple[int, ...]], tuple[Array, Array]]
# What else the members learn in a step: members, statistics of observations, key -> loss.
Besides = Callable[[MLP, Normalizer, Array], Array]


def members_of(config: Config, obs_dim: int, action_dim: int, key: Array) -> MLP:
    """A fresh reward ensemble."""
    sizes = [obs_dim + action_dim, *[config.model.width] * config.model.depth, 1]
    return ensemble(config.model.reward_members, lambda k: MLP(sizes, key=k, output_scale=0.3), key)


def rewards(members: MLP, z: Array, action: Array) -> Array:
    """Of every member, in (-1, 1): [..., Z], [..., A] -> [E, ...]."""
    return jnp.tanh(by_blocks(partial(apply_members, members), jnp.concatenate([z, action], -1))[..., 0])


def fit(
    config: Config,
    learned: tuple[MLP, optax.OptState],
    stats: Normalizer,
    preferences: Preferences,
    key: Array,
    crop: Crop | None = None,
    besides: Besides | None = None,
) -> tuple[tuple[MLP, optax.OptState], Metrics]:
    """Members and optimiser after some epochs, fewer where the labels are answered unless there is more to learn."""
    size, capacity = config.preferences.batch_size, len(preferences.label)
    stop = config.preferences.stop_accuracy
    stop = jnp.inf if stop is None or besides is not None else stop

    def loss(members: MLP, pairs: Preferences, k_step: Array) -> tuple[Array, Array]:
        """Of pairs [E, B, ...], own ones for each member: the sum over members of Eq. 4, and how many are right [E]."""
        sides = ((pairs.left_obs, pairs.left_action), (pairs.right_obs, pairs.right_action))
        left, right = (_own_rewards(config, members, stats, *side) for side in sides)  # [E, B, L]
        if crop is not None:
            left, right = (reward * kept for reward, kept in zip((left, right), crop(k_step, left.shape), strict=True))
        logits = jnp.sum(left - right, axis=-1)
        error, accuracy = jax.vmap(losses.preference_loss)(logits, pairs.label, pairs.weight)
        decided = jnp.sum(pairs.weight * (pairs.label != 0.5), axis=1)
        more = 0.0 if besides is None else besides(members, stats, jax.random.fold_in(k_step, 1))
        return jnp.sum(error) + more, accuracy * decided

    def epoch(carry: tuple[MLP, optax.OptState, Array, Array]):
        members, moments, number, _ = carry
        k_epoch = jax.random.fold_in(key, number)
        keys = jax.random.split(k_epoch, config.model.reward_members)
        order = jax.vmap(partial(buffer.shuffled, preferences))(keys)
        order = jnp.pad(order, ((0, 0), (0, size)), constant_values=capacity)

        def step(i: Array, carry: tuple[MLP, optax.OptState, Array]):
            members, moments, right = carry
            index = jax.lax.dynamic_slice_in_dim(order, i * size, size, axis=1)  # [E, B]
            known = index < preferences.count
            rows = (field[jnp.minimum(index, capacity - 1)].astype(jnp.float32) for field in preferences[:6])
            pairs = Preferences(*rows, count=preferences.count)
            pairs = pairs._replace(weight=pairs.weight * known)
            (_, found), gradient = jax.value_and_grad(loss, has_aux=True)(
                members, pairs, jax.random.fold_in(k_epoch, i)
            )
            return *descend(adam(config), gradient, moments, members), right + found

        batches = (preferences.count + size - 1) // size
        start = (members, moments, jnp.zeros(config.model.reward_members))
        members, moments, right = jax.lax.fori_loop(0, batches, step, start)
        answered = (jnp.arange(capacity) < preferences.count) & (preferences.label != 0.5)
        decided = jnp.sum(jnp.where(answered, preferences.weight, 0.0))
        return members, moments, number + 1, jnp.mean(right) / jnp.maximum(decided, 1.0)

    def unfinished(carry: tuple[MLP, optax.OptState, Array, Array]) -> Array:
        return (carry[2] < config.sac.epochs) & (carry[3] <= stop)

    start = (*learned, jnp.zeros((), jnp.int32), jnp.zeros(()))
    members, moments, epochs, accuracy = jax.lax.while_loop(unfinished, epoch, start)
    return (members, moments), {"fit/epochs": epochs.astype(jnp.float32), "fit/accuracy": accuracy}


def _own_rewards(config: Config, members: MLP, stats: Normalizer, obs: Array, action: Array) -> Array:
    """Each member judges what is its own: [E, ..., D], [E, ..., A] -> [E, ...]."""
    z = normalizer.normalize(config.model, stats, obs)
    return jnp.tanh(apply_own(members, jnp.concatenate([z, action], -1))[..., 0])
