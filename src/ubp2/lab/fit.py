"""The fit of the reward ensemble to a fixed set of labels: the gradient steps of training, without the rest of it."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax import Array

from ubp2 import replay as replay_
from ubp2.agents import learning
from ubp2.agents.reward import preference_logits, supervise
from ubp2.config.schema import Config, given
from ubp2.models import losses, world_model
from ubp2.models.networks import compute_type, weights_as
from ubp2.models.normalizer import Normalizer
from ubp2.models.uncertainty import jensen_renyi, spread
from ubp2.models.world_model import WorldModel
from ubp2.preference import buffer
from ubp2.replay import Replay
from ubp2.types import Batch, Preferences

__all__ = ["Judgement", "Probe", "Recorded", "fit", "fit_and_judge", "judge"]


class Recorded(NamedTuple):
    """What every fit reads."""

    replay: Replay
    stats: Normalizer


class Probe(NamedTuple):
    """Where a fitted reward is asked: visited states, states off the data, and pairs."""

    obs: Array  # [N, D]
    action: Array  # [N, A]
    off_obs: Array  # [N, D]
    off_action: Array  # [N, A]
    pairs: Preferences


class Judgement(NamedTuple):
    """What a fitted reward says there, on its way to the host."""

    reward: Array  # [E, N] mean of each member at visited states, as it is
    counted: Array  # [E, N] the same as plans and bonus count it (`model.reward_units`)
    probability: Array  # [P] that the first of a pair is preferred, mean over members
    train_accuracy: Array  # [] mean over members, on the labelled pairs
    spread: Array  # [] mean standard deviation over members, at visited states
    off_spread: Array  # [] the same off the data
    divergence: Array  # [] mean Jensen-Renyi divergence at visited states
    off_divergence: Array  # []
    action_share: Array  # [] deviation of the mean reward between two actions in a state, over that between states


def _loss(config: Config, stats: Normalizer, pairs: Preferences, batch: Batch, key: Array, model: WorldModel) -> Array:
    """The part of training's loss that teaches the reward: this is the one place that calls training's function."""
    light = weights_as(model, compute_type(config.model))
    z = world_model.encode(config.model, light, stats, batch.obs[:-1])
    return config.training.reward_weight * supervise(config, light, stats, pairs, batch, z, key)[0]


def fit(config: Config, updates: int, recorded: Recorded, labels: Preferences, key: Array) -> WorldModel:
    """A fresh model after `updates` gradient steps on its reward.

    Minibatches, gates, clipping and optimiser are those of training. Dynamics and values are not learned, so one member
    of each is enough. In latent space the encoder learns from the labels alone.
    """
    k_init, k_steps = jax.random.split(key)
    frames, training = recorded.replay.frames, config.training
    sizes = dataclasses.replace(config.model, dynamics_members=1, value_members=1)
    model, _ = world_model.init(sizes, frames.obs.shape[1], frames.action.shape[1], k_init)
    anchor = model.reward if config.preferences.anchor else None
    members = config.model.reward_members if config.preferences.bootstrap else None

    def step(carry: tuple[WorldModel, optax.OptState], number: Array) -> tuple[tuple[WorldModel, optax.OptState], None]:
        model, state = carry
        k_batch, k_pairs, k_loss = jax.random.split(jax.random.fold_in(k_steps, number), 3)
        batch = replay_.sample(recorded.replay, k_batch, training.batch_size, given(training.horizon))
        pairs = buffer.sample(labels, k_pairs, config.preferences.batch_size, members)
        gradient = jax.grad(partial(_loss, config, recorded.stats, pairs, batch, k_loss))(model)
        return learning.step_model(config, gradient, state, model, anchor), None

    optimizer = learning.make_optimizers(config).model.init(cast(Any, model))
    (model, _), _ = jax.lax.scan(step, (model, optimizer), jnp.arange(updates))
    return model


def judge(config: Config, recorded: Recorded, labels: Preferences, probe: Probe, model: WorldModel) -> Judgement:
    """Ask a fitted reward."""
    stats = recorded.stats

    def ask(obs: Array, action: Array) -> tuple[Array, Array]:
        z = world_model.encode(config.model, model, stats, obs)
        return world_model.reward(config.model, model, z, action)

    units = None
    if config.model.reward_units == "replay":  # a run follows them, here they are known
        own, _ = ask(recorded.replay.frames.obs, recorded.replay.frames.action)
        units = jnp.stack([jnp.mean(own, axis=1), jnp.std(own, axis=1)], axis=1)
    mean, log_std = ask(probe.obs, probe.action)
    count = partial(world_model.counted, config.model, units)
    counted, noise = count(mean, log_std)
    off_counted, off_noise = count(*ask(probe.off_obs, probe.off_action))
    elsewise, _ = count(*ask(probe.obs, probe.off_action))
    logits = preference_logits(config, model, stats, labels)
    accuracy = jax.vmap(lambda own: losses.preference_loss(own, labels.label, labels.weight)[1])(logits)
    return Judgement(
        reward=mean,
        counted=counted,
        probability=jnp.mean(jax.nn.sigmoid(preference_logits(config, model, stats, probe.pairs)), axis=0),
        train_accuracy=jnp.mean(accuracy),
        spread=jnp.mean(spread(counted)),
        off_spread=jnp.mean(spread(off_counted)),
        divergence=jnp.mean(jensen_renyi(counted, noise)),
        off_divergence=jnp.mean(jensen_renyi(off_counted, off_noise)),
        action_share=_action_share(jnp.mean(counted, axis=0), jnp.mean(elsewise, axis=0)),
    )


def _action_share(reward: Array, elsewise: Array) -> Array:
    """How much of the reward [N] is about the action: `elsewise` [N] is that of another action in the same state.

    The difference of two draws has twice the variance of one.
    """
    return jnp.std(reward - elsewise) / (jnp.sqrt(2.0) * jnp.maximum(jnp.std(reward), 1e-6))


def fit_and_judge(
    config: Config, updates: int, recorded: Recorded, probe: Probe, labels: Preferences, keys: Array
) -> Judgement:
    """One program for R fits side by side, labels [R, P, ...] and keys [R] their own: -> each field [R, ...]."""

    def one(labels: Preferences, key: Array) -> Judgement:
        return judge(config, recorded, labels, probe, fit(config, updates, recorded, labels, key))

    return jax.vmap(one)(labels, keys)
