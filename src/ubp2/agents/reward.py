"""How the reward ensemble learns: from comparisons (Eq. 4), and what keeps a few of them from being overlearned."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ubp2.agents.base import Metrics
from ubp2.config.schema import Config
from ubp2.models import losses, world_model
from ubp2.models.networks import MLP
from ubp2.models.normalizer import Normalizer
from ubp2.models.world_model import WorldModel
from ubp2.preference import bradley_terry, buffer
from ubp2.types import Batch, Preferences, RewardTargets

__all__ = ["anchored", "blinkered", "is_anchored", "preference_logits", "smoothed", "supervise", "track_units"]

UNITS_RATE = 0.01


def supervise(
    config: Config,
    model: WorldModel,
    stats: Normalizer,
    supervision: Preferences | RewardTargets,
    batch: Batch,
    z: Array,
    key: Array,
) -> tuple[Array, Array, Metrics]:
    """What teaches the reward: comparisons (Eq. 4), or in ceiling mode the true reward itself.

    z [H, N, Z] are the model states of the batch's decisions. Returns the loss, summed over members, and every member's
    mean reward on the batch, [E, H, N].
    """
    mean, log_std = world_model.reward(config.model, model, z, batch.action)
    if isinstance(supervision, RewardTargets):
        errors = jax.vmap(lambda m, s: losses.regression_loss(m, s, supervision.reward, batch.mask))(mean, log_std)
        return jnp.sum(errors), mean, {"loss/reward": jnp.mean(errors)}
    preferences = config.preferences
    parts = None if preferences.crop is None else _crops(supervision, preferences.crop, key)
    logits = preference_logits(config, model, stats, supervision, parts)
    loss, accuracy = jax.vmap(losses.preference_loss, in_axes=(0, None, 0 if supervision.weight.ndim == 2 else None))(
        logits, smoothed(supervision.label, preferences.smoothing), supervision.weight
    )
    # The level of the reward, which comparisons cannot see, is kept near zero.
    level = jax.vmap(losses.masked_mean, in_axes=(0, None))(mean, batch.mask)
    members = loss + preferences.center * level**2
    # A member that answers the minibatch well enough gets no gradient from it, the penalty's included (Adam would blow
    # that up): pushed further, a few labels saturate the reward, members come to agree everywhere, and nothing is left
    # to be curious about.
    stop = preferences.stop_accuracy
    gated = members if stop is None else members * (accuracy < stop)
    gated *= jnp.any(supervision.weight > 0)  # before the first label a level is all there is, and it must stay open
    return jnp.sum(gated), mean, {"loss/preference": jnp.mean(loss), "reward/train_accuracy": jnp.mean(accuracy)}


def preference_logits(
    config: Config, model: WorldModel, stats: Normalizer, pairs: Preferences, parts: Array | None = None
) -> Array:
    """Log odds of every member that left is preferred: [E, P]; parts [2P, L] weighs the decisions of each side."""
    obs = jnp.concatenate([pairs.left_obs, pairs.right_obs])  # both sides at once: [2P, L, .]
    action = jnp.concatenate([pairs.left_action, pairs.right_action])
    z = world_model.encode(config.model, model, stats, obs)
    mean, log_std = world_model.reward(config.model, model, z, action)
    parts = jnp.ones(mean.shape[1:]) if parts is None else parts
    left, right = jnp.split(jnp.sum(parts * mean, axis=-1), 2, axis=1)  # summed over the segment, [E, P]
    left_noise, right_noise = jnp.split(jnp.sum(parts**2 * jnp.exp(2 * log_std), axis=-1), 2, axis=1)
    noise = left_noise + right_noise if config.model.reward_likelihood == "marginal" else 0.0
    return bradley_terry.logit(left, right, noise)


def smoothed(label: Array, share: float) -> Array:
    """Labels as if a share of them were coin flips: certainty then has an end, also for pairs that are separable."""
    return label + share * (0.5 - label)


def _crops(pairs: Preferences, shortest: int, key: Array) -> Array:
    """A random stretch of each segment, of one length within a pair: [2P, L], in units that keep the sum's size."""
    kept = jnp.concatenate(buffer.crops(key, pairs.left_action.shape[:2], shortest))
    return kept * (kept.shape[1] / jnp.sum(kept, axis=1, keepdims=True))


def blinkered(config: Config, gradient: MLP, state_dim: int) -> MLP:
    """Without the gradient of what reads the action, where the reward is to read the state alone.

    The members start blind to actions, and so they stay.
    """
    if config.model.reward_inputs == "state-action":
        return gradient
    return eqx.tree_at(lambda g: g.weights[0], gradient, gradient.weights[0].at[:, state_dim:].set(0.0))


def is_anchored(config: Config) -> bool:
    """Whether reward members are pulled to where they started. Inside a program the weight is a number, or None."""
    anchor = config.preferences.anchor
    return anchor is not None and (isinstance(anchor, jax.Array) or anchor != 0)


def anchored(config: Config, members: MLP, anchor: MLP | None) -> MLP:
    """Each member a step nearer to where it started.

    With the labels this is a compromise of its own for every member, a sample of what the labels leave open (Pearce et
    al. 2020): members agree where labels speak and keep their first opinions elsewhere.
    """
    if anchor is None:
        return members
    rate = config.training.learning_rate * config.preferences.anchor
    return jax.tree.map(lambda now, start: now + rate * (start - now), members, anchor)


def track_units(units: Array | None, reward: Array, mask: Array) -> Array | None:
    """Running mean and standard deviation [E, 2] of each member's reward [E, H, N] on minibatches."""
    if units is None:
        return None
    average = jax.vmap(losses.masked_mean, in_axes=(0, None))
    mean = average(reward, mask)
    std = jnp.sqrt(average((reward - mean[:, None, None]) ** 2, mask))
    return units + UNITS_RATE * (jnp.stack([mean, std], axis=1) - units)
