"""How UBP2 learns: one gradient step on every ensemble member, the policy, the targets and the three coefficients."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from ubp2.agents import gradients
from ubp2.agents import reward as reward_
from ubp2.agents.base import Metrics
from ubp2.config.schema import LAMBDA_RANGE, Config, given
from ubp2.models import losses, world_model
from ubp2.models.networks import MLP, compute_type, weights_as
from ubp2.models.normalizer import Normalizer
from ubp2.models.uncertainty import disagreement, jensen_renyi, spread
from ubp2.models.world_model import WorldModel
from ubp2.types import Batch, Preferences, RewardTargets

__all__ = ["State", "coefficients", "make_optimizers", "step_model", "uncertainties", "update"]

AUTOTUNE_STATES = 64  # Eq. 2 is a mean over states; a part of the batch is enough for three numbers


class State(NamedTuple):
    """Everything that learning changes."""

    model: WorldModel
    policy: MLP
    target_value: MLP
    target_policy: MLP
    log_lambda: Array  # [3] reward, dynamics, value
    value_scale: Array  # [] running 5-95 % range of values, which Eq. 6 divides by
    reward_units: Array | None  # [E, 2] running mean and deviation of each member's reward in the replay; None: raw
    reward_anchor: MLP | None  # where the reward members started; None without a pull towards it
    stats: Normalizer
    model_optimizer: optax.OptState
    policy_optimizer: optax.OptState
    lambda_optimizer: optax.OptState


class Optimizers(NamedTuple):
    """Adam for each of the three groups of parameters."""

    model: optax.GradientTransformation
    policy: optax.GradientTransformation
    log_lambda: optax.GradientTransformation


def make_optimizers(config: Config) -> Optimizers:
    """Adam for everything; each component of the model has its gradient norm limited on its own (`_clip`)."""
    rate, clip = config.training.learning_rate, config.training.grad_clip
    slower = optax.stateless(lambda change, _: _slower_encoder(config.training.encoder_scale, change))
    return Optimizers(
        model=optax.chain(optax.adam(rate), slower),
        policy=optax.chain(optax.clip_by_global_norm(clip), optax.adam(rate, eps=1e-5)),
        log_lambda=optax.adam(config.optimism.learning_rate),
    )


def _slower_encoder(scale: float, change: Any) -> Any:
    if change.encoder is None:
        return change
    return WorldModel(jax.tree.map(lambda c: scale * c, change.encoder), change.dynamics, change.reward, change.value)


def coefficients(config: Config, log_lambda: Array) -> Array:
    """lambda_r, lambda_d, lambda_q of Eq. 1; zero for a bonus that is switched off."""
    optimism = config.optimism
    enabled = jnp.array([optimism.reward, optimism.dynamics, optimism.value], jnp.float32)
    if not optimism.autotune:  # as given, zero included
        return enabled * jnp.array([optimism.lambda_reward, optimism.lambda_dynamics, optimism.lambda_value])
    return enabled * jnp.exp(log_lambda)


def uncertainties(config: Config, model: WorldModel, units: Array | None, z: Array, action: Array) -> Array:
    """The three sigma_epi at states [N, Z] and actions [N, A]: -> [3, N] reward, dynamics, value.

    The reward's is that of the members in their own units [E, 2].
    """
    mean, log_std = world_model.reward(config.model, model, z, action)
    return jnp.stack(
        [
            jensen_renyi(*world_model.counted(config.model, units, mean, log_std)),
            disagreement(world_model.next_members(model, z, action)),
            spread(world_model.value(config.model, model.value, z, action)),
        ]
    )


def model_loss(
    config: Config, state: State, batch: Batch, supervision: Preferences | RewardTargets, key: Array, model: WorldModel
) -> tuple[Array, tuple[Array, Array | None, Metrics]]:
    """alpha_c Eq. 3 + alpha_r Eq. 4 + alpha_v Eq. 5, summed over members.

    Also returns imagined states [H, N, Z] and the running units of the reward [E, 2].

    Eq. 5 is a sum over members m of the rollout and the reward; it is estimated by drawing one m for each sequence.
    """
    training = config.training
    k_member, k_reward, k_policy, k_targets, k_fit = jax.random.split(key, 5)
    count = batch.mask.shape[1]
    z = world_model.encode(config.model, model, state.stats, batch.obs)  # [H+1, N, Z]
    actual = jax.lax.stop_gradient(z)
    states = world_model.rollout(model, z[0], batch.action)  # [E, H+1, N, Z]
    consistency = jax.vmap(lambda own: losses.consistency_loss(own, actual[1:], batch.mask, training.rho))(
        states[:, 1:]
    )

    fit, rewards, metrics = reward_.supervise(config, model, state.stats, supervision, batch, z[:-1], k_fit)

    member = jax.random.randint(k_member, (count,), 0, states.shape[0])
    sequence = jnp.arange(count)
    imagined = jnp.moveaxis(states[member, :-1, sequence], 0, 1)  # [H, N, Z]
    if model.encoder is None:  # in latent space the value shapes the encoder; observations need no shaping
        imagined = jax.lax.stop_gradient(imagined)
    same = rewards.shape[0] == states.shape[0]  # else there is no "same member", and one is drawn of its own
    of_reward = member if same else jax.random.randint(k_reward, (count,), 0, rewards.shape[0])
    counted = world_model.in_units(state.reward_units, jax.lax.stop_gradient(rewards))
    own_reward = jnp.moveaxis(counted[of_reward, :, sequence], 0, 1)
    target = _td_targets(config, state, actual[1:], own_reward, batch, (k_policy, k_targets))
    output = world_model.value_logits(model.value, imagined, batch.action)
    value = losses.value_loss(config.model.value_head, output, target, batch.mask, given(training.discount))

    # In latent space other losses share the encoder, and the weight of 20 belongs to a mean, as in TD-MPC2. In
    # observation space Eq. 3 is the sum that the paper prints; the clip keeps its gradient at one size.
    coordinates = 1 if model.encoder is not None else z.shape[-1]
    total = (
        training.consistency_weight * coordinates * jnp.sum(consistency)
        + training.reward_weight * fit
        + training.value_weight * value * states.shape[0]
    )
    metrics |= {
        "loss/consistency": jnp.mean(consistency),
        "loss/value": value,
        "reward/level": losses.masked_mean(jnp.mean(rewards, axis=0), batch.mask),
        "reward/spread": jnp.mean(spread(rewards)),
        "value/target": losses.masked_mean(target, batch.mask),
    }
    units = reward_.track_units(state.reward_units, rewards, batch.mask)
    return total, jax.lax.stop_gradient((imagined, units, metrics))


def _td_targets(
    config: Config, state: State, z_next: Array, reward: Array, batch: Batch, keys: tuple[Array, Array]
) -> Array:
    """Targets of Eq. 5 [H, N]: the smaller of two random target members stands for q_min; the others are not asked."""
    k_policy, k_pair = keys
    action, _ = world_model.policy(config.model, state.policy, z_next, k_policy)
    pair = jax.random.permutation(k_pair, config.model.value_members)[:2]
    two = jax.tree.map(lambda parameter: parameter[pair], state.target_value)
    value = jnp.min(world_model.value(config.model, two, z_next, action), axis=0)
    return jax.lax.stop_gradient(losses.td_target(reward, batch.terminated, value, given(config.training.discount)))


def _policy_loss(config: Config, state: State, model: WorldModel, z: Array, mask: Array, key: Array, policy: MLP):
    action, log_density = world_model.policy(config.model, policy, z, key)
    value = jnp.mean(world_model.value(config.model, model.value, z, action), axis=0)
    real = jnp.where(mask > 0, jax.lax.stop_gradient(value), jnp.nan)
    low, high = jnp.nanpercentile(real, jnp.array([5.0, 95.0]))
    width = jnp.where(jnp.any(mask > 0), high - low, state.value_scale)
    scale = jnp.maximum(state.value_scale + 0.01 * (width - state.value_scale), 1.0)
    loss = losses.policy_loss(
        value / scale, log_density, mask, given(config.training.discount), config.training.entropy
    )
    return loss, (scale, -jnp.mean(log_density))


def step_model(
    config: Config, gradient: WorldModel, optimizer: optax.OptState, model: WorldModel, anchor: MLP | None
) -> tuple[WorldModel, optax.OptState]:
    """One step of the world model down its gradient, with what the configuration says of the reward members."""
    gradient = _clip(config, gradient)
    state_dim = gradient.dynamics.biases[-1].shape[-1]
    gradient = eqx.tree_at(lambda g: g.reward, gradient, reward_.blinkered(config, gradient.reward, state_dim))
    model, optimizer = gradients.descend(make_optimizers(config).model, gradient, optimizer, model)
    return eqx.tree_at(lambda m: m.reward, model, reward_.anchored(config, model.reward, anchor)), optimizer


def _clip(config: Config, gradient: WorldModel) -> WorldModel:
    """Limit each component's gradient norm on its own, so that one loss cannot silence another."""

    def limit(part: MLP) -> MLP:
        factor = jnp.minimum(1.0, config.training.grad_clip / (optax.tree.norm(cast(Any, part)) + 1e-6))
        return jax.tree.map(lambda g: g * factor, part)

    encoder = None if gradient.encoder is None else limit(gradient.encoder)
    return WorldModel(encoder, limit(gradient.dynamics), limit(gradient.reward), limit(gradient.value))


def _tune(config: Config, state: State, model: WorldModel, policy: MLP, z: Array, key: Array):
    """One step of Eq. 2 for the three coefficients, on states [N, Z]."""
    # The same noise for both policies: what differs is then the policies and not the draw.
    actions = [world_model.policy(config.model, network, z, key)[0] for network in (policy, state.target_policy)]
    both = uncertainties(config, model, state.reward_units, jnp.concatenate([z, z]), jnp.concatenate(actions))
    current, target = jnp.split(both, 2, axis=1)
    bonus = jnp.mean(current, axis=1)
    if not config.optimism.autotune:
        return state.log_lambda, state.lambda_optimizer, bonus
    gradient = jax.grad(lambda log_lambda: jnp.sum(jax.vmap(losses.autotune_loss)(log_lambda, current, target)))(
        state.log_lambda
    )
    log_lambda, optimizer = gradients.descend(
        make_optimizers(config).log_lambda, gradient, state.lambda_optimizer, state.log_lambda
    )
    log_lambda = jnp.clip(log_lambda, *(math.log(bound) for bound in LAMBDA_RANGE))
    return log_lambda, optimizer, bonus


def _polyak(target: MLP, source: MLP, rate: float) -> MLP:
    return jax.tree.map(lambda t, s: t + rate * (s - t), target, source)


def update(
    config: Config, state: State, batch: Batch, supervision: Preferences | RewardTargets, key: Array
) -> tuple[State, Metrics]:
    """One gradient step on everything: all members at once, the policy, the targets and the coefficients.

    Parameters are float32. What computes with them is in `compute_type`: on a GPU, bfloat16.
    """
    k_model, k_policy, k_tune = jax.random.split(key, 3)
    optimizers = make_optimizers(config)
    light = partial(weights_as, dtype=compute_type(config.model))
    now = state._replace(**{name: light(getattr(state, name)) for name in ("policy", "target_value", "target_policy")})

    def loss_of_model(model: WorldModel) -> tuple[Array, tuple[Array, Array | None, Metrics]]:
        return model_loss(config, now, batch, supervision, k_model, light(model))

    (_, (imagined, units, metrics)), gradient = jax.value_and_grad(loss_of_model, has_aux=True)(state.model)
    metrics["gradient/model"] = optax.tree.norm(cast(Any, gradient))
    model, model_optimizer = step_model(config, gradient, state.model_optimizer, state.model, state.reward_anchor)

    asked = light(model)

    def loss_of_policy(policy: MLP) -> tuple[Array, tuple[Array, Array]]:
        return _policy_loss(config, now, asked, imagined, batch.mask, k_policy, light(policy))

    (policy_loss, (scale, entropy)), gradient = jax.value_and_grad(loss_of_policy, has_aux=True)(state.policy)
    policy, policy_optimizer = gradients.descend(optimizers.policy, gradient, state.policy_optimizer, state.policy)

    log_lambda, lambda_optimizer, bonus = _tune(
        config, now, asked, light(policy), imagined[0, :AUTOTUNE_STATES], k_tune
    )
    metrics |= {"loss/policy": policy_loss, "policy/entropy": entropy, "value/scale": scale}
    in_use = coefficients(config, log_lambda)
    for i, name in enumerate(("reward", "dynamics", "value")):
        metrics |= {f"uncertainty/{name}": bonus[i], f"lambda/{name}": in_use[i]}
    return (
        State(
            model=model,
            policy=policy,
            target_value=_polyak(state.target_value, model.value, config.training.value_target_rate),
            target_policy=_polyak(state.target_policy, policy, config.optimism.target_policy_rate),
            log_lambda=log_lambda,
            value_scale=scale,
            reward_units=units,
            reward_anchor=state.reward_anchor,
            stats=state.stats,
            model_optimizer=model_optimizer,
            policy_optimizer=policy_optimizer,
            lambda_optimizer=lambda_optimizer,
        ),
        metrics,
    )
