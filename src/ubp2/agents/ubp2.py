"""UBP2: optimistic planning over ensembles of dynamics, reward and value, learned from comparisons."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from ubp2.agents.base import Action, Agent, Metrics
from ubp2.configs import Config
from ubp2.models import losses, normalizer, world_model
from ubp2.models.networks import MLP
from ubp2.models.normalizer import Normalizer
from ubp2.models.world_model import WorldModel
from ubp2.planning.planner import Steering, plan
from ubp2.preference import bradley_terry
from ubp2.types import Batch, Preferences, RewardTargets, Scores, Segments
from ubp2.uncertainty import disagreement, jensen_renyi, spread

__all__ = ["State", "coefficients", "make_agent", "uncertainties"]

LAMBDA_RANGE = (1e-4, 1e2)
AUTOTUNE_STATES = 64  # Eq. 2 is a mean over states; a part of the batch is enough for three numbers


class State(NamedTuple):
    """Everything that learning changes."""

    model: WorldModel
    policy: MLP
    target_value: MLP
    target_policy: MLP
    log_lambda: Array  # [3] reward, dynamics, value
    value_scale: Array  # [] running 5-95 % range of values, which Eq. 6 divides by
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
    """Step sizes and clipping from the config; the model's components are clipped one by one in `_clip`."""
    rate, clip = config.training.learning_rate, config.training.grad_clip
    return Optimizers(
        model=optax.adam(rate),
        policy=optax.chain(optax.clip_by_global_norm(clip), optax.adam(rate, eps=1e-5)),
        log_lambda=optax.adam(config.optimism.learning_rate),
    )


def init(config: Config, obs_dim: int, action_dim: int, key: Array) -> State:
    """Fresh parameters; targets start equal to what they follow."""
    model, policy = world_model.init(config.model, obs_dim, action_dim, key)
    optimism = config.optimism
    initial = jnp.array([optimism.lambda_reward, optimism.lambda_dynamics, optimism.lambda_value])
    log_lambda = jnp.log(jnp.maximum(initial, LAMBDA_RANGE[0]))
    optimizers = make_optimizers(config)
    return State(
        model=model,
        policy=policy,
        target_value=jax.tree.map(jnp.copy, model.value),  # copies: the update donates its buffers
        target_policy=jax.tree.map(jnp.copy, policy),
        log_lambda=log_lambda,
        value_scale=jnp.ones(()),
        stats=normalizer.init(obs_dim),
        model_optimizer=optimizers.model.init(model),
        policy_optimizer=optimizers.policy.init(policy),
        lambda_optimizer=optimizers.log_lambda.init(log_lambda),
    )


def coefficients(config: Config, state: State) -> Array:
    """lambda_r, lambda_d, lambda_q of Eq. 1; zero for a bonus that is switched off."""
    optimism = config.optimism
    enabled = jnp.array([optimism.reward, optimism.dynamics, optimism.value], jnp.float32)
    return enabled * jnp.exp(state.log_lambda)


def uncertainties(config: Config, model: WorldModel, z: Array, action: Array) -> Array:
    """The three sigma_epi at states [N, Z] and actions [N, A]: -> [3, N] reward, dynamics, value."""
    return jnp.stack(
        [
            jensen_renyi(*world_model.reward(config.model, model, z, action)),
            disagreement(world_model.next_members(model, z, action)),
            spread(world_model.value(config.model, model.value, z, action)),
        ]
    )


def act_by_plan(config: Config, state: State, carry: Array, obs: Array, explore: Array, key: Array) -> Action:
    """Solve Eq. 1 from the observation [D]; without exploration no bonus is added."""
    z = world_model.encode(state.model, state.stats, obs)
    steering = Steering(explore * coefficients(config, state), explore)
    decision = plan(config, state.model, state.policy, z, carry, steering, key)
    return Action(decision.action, decision.following, decision.scores, decision.broken)


def act_by_policy(config: Config, state: State, carry: Array, obs: Array, explore: Array, key: Array) -> Action:
    """Sample the policy, or take its mode without exploration."""
    z = world_model.encode(state.model, state.stats, obs)
    action, _ = world_model.policy(config.model, state.policy, z, key, scale=explore)
    zero = jnp.zeros(())
    return Action(action, carry, Scores(zero, zero, zero, zero, zero), jnp.zeros((), jnp.int32))


def reward_supervision(
    config: Config, model: WorldModel, stats: Normalizer, supervision: Preferences | RewardTargets, batch: Batch
) -> tuple[Array, Metrics]:
    """What teaches the reward: comparisons (Eq. 4), or in ceiling mode the true reward itself."""
    if isinstance(supervision, RewardTargets):
        z = world_model.encode(model, stats, batch.obs[:-1])
        mean, log_std = world_model.reward(config.model, model, z, batch.action)
        errors = jax.vmap(lambda m, s: losses.regression_loss(m, s, supervision.reward, batch.mask))(mean, log_std)
        return jnp.sum(errors), {"loss/reward": jnp.mean(errors)}
    logits = preference_logits(config, model, stats, supervision)
    loss, accuracy = jax.vmap(losses.preference_loss, in_axes=(0, None, None))(
        logits, supervision.label, supervision.weight
    )
    # A member that answers the minibatch well enough gets no gradient from it: pushed further, a few labels saturate
    # the reward, members come to agree everywhere, and nothing is left to be curious about.
    stop = config.preferences.stop_accuracy
    gated = loss if stop is None else loss * (accuracy < stop)
    return jnp.sum(gated), {"loss/preference": jnp.mean(loss), "reward/train_accuracy": jnp.mean(accuracy)}


def preference_logits(config: Config, model: WorldModel, stats: Normalizer, pairs: Preferences) -> Array:
    """Log odds of every member that left is preferred: [E, P]."""

    def summed(obs: Array, action: Array) -> tuple[Array, Array]:
        mean, log_std = world_model.reward(config.model, model, world_model.encode(model, stats, obs), action)
        return jnp.sum(mean, axis=-1), jnp.sum(jnp.exp(2 * log_std), axis=-1)  # over the segment

    left, left_noise = summed(pairs.left_obs, pairs.left_action)
    right, right_noise = summed(pairs.right_obs, pairs.right_action)
    noise = left_noise + right_noise if config.model.reward_likelihood == "marginal" else 0.0
    return bradley_terry.logit(left, right, noise)


def model_loss(
    config: Config, state: State, batch: Batch, supervision: Preferences | RewardTargets, key: Array, model: WorldModel
) -> tuple[Array, tuple[Array, Metrics]]:
    """alpha_c Eq. 3 + alpha_r Eq. 4 + alpha_v Eq. 5, summed over members. Also returns imagined states [H, N, Z].

    Eq. 5 is a sum over members m of the rollout and the reward; it is estimated by drawing one m for each sequence.
    """
    training = config.training
    k_member, k_policy, k_targets = jax.random.split(key, 3)
    horizon, count = batch.mask.shape
    z = world_model.encode(model, state.stats, batch.obs)  # [H+1, N, Z]
    actual = jax.lax.stop_gradient(z)
    states = world_model.rollout(model, z[0], batch.action)  # [E, H+1, N, Z]
    consistency = jax.vmap(lambda own: losses.consistency_loss(own, actual[1:], batch.mask, training.rho))(states[:, 1:])

    fit, metrics = reward_supervision(config, model, state.stats, supervision, batch)
    rewards, _ = world_model.reward(config.model, model, actual[:-1], batch.action)  # [E, H, N]
    level = jnp.mean(rewards, axis=(1, 2))  # comparisons cannot see it, so a penalty keeps it near zero
    center = 0.0 if config.ceiling else config.preferences.center * jnp.sum(level**2)

    member = jax.random.randint(k_member, (count,), 0, states.shape[0])
    sequence = jnp.arange(count)
    imagined = jnp.moveaxis(states[member, :-1, sequence], 0, 1)  # [H, N, Z]
    if model.encoder is None:  # in latent space the value shapes the encoder; observations need no shaping
        imagined = jax.lax.stop_gradient(imagined)
    own_reward = jax.lax.stop_gradient(jnp.moveaxis(rewards[member % rewards.shape[0], :, sequence], 0, 1))
    target = _td_targets(config, state, actual[1:], own_reward, batch, (k_policy, k_targets))
    output = world_model.value_logits(model.value, imagined, batch.action)
    value = losses.value_loss(config.model.value_head, output, target, batch.mask, training.discount or 0.0)

    total = (
        training.consistency_weight * jnp.sum(consistency)
        + training.reward_weight * (fit + center)
        + training.value_weight * value * output.shape[0]
    )
    metrics |= {
        "loss/consistency": jnp.mean(consistency),
        "loss/value": value,
        "reward/level": jnp.mean(level),
        "reward/spread": jnp.mean(spread(rewards)),
        "value/target": jnp.mean(target),
    }
    return total, (jax.lax.stop_gradient(imagined), metrics)


def _td_targets(
    config: Config, state: State, z_next: Array, reward: Array, batch: Batch, keys: tuple[Array, Array]
) -> Array:
    """Targets of Eq. 5 [H, N]: the smaller of two random target members stands for q_min."""
    k_policy, k_pair = keys
    action, _ = world_model.policy(config.model, state.policy, z_next, k_policy)
    values = world_model.value(config.model, state.target_value, z_next, action)  # [E, H, N]
    pair = jax.random.permutation(k_pair, values.shape[0])[:2]
    target = losses.td_target(reward, batch.terminated, jnp.min(values[pair], axis=0), config.training.discount or 0.0)
    return jax.lax.stop_gradient(target)


def _policy_loss(config: Config, state: State, model: WorldModel, z: Array, mask: Array, key: Array, policy: MLP):
    action, log_density = world_model.policy(config.model, policy, z, key)
    value = jnp.mean(world_model.value(config.model, model.value, z, action), axis=0)
    low, high = jnp.percentile(jax.lax.stop_gradient(value), jnp.array([5.0, 95.0]))
    scale = jnp.maximum(state.value_scale + 0.01 * (high - low - state.value_scale), 1.0)
    loss = losses.policy_loss(
        value / scale, log_density, mask, config.training.discount or 0.0, config.training.entropy
    )
    return loss, (scale, -jnp.mean(log_density))


def _clip(config: Config, gradient: WorldModel) -> WorldModel:
    """Limit each component's gradient norm on its own, so that one loss cannot silence another."""

    def limit(part: MLP | None) -> MLP | None:
        if part is None:
            return None
        factor = jnp.minimum(1.0, config.training.grad_clip / (optax.global_norm(part) + 1e-6))
        return jax.tree.map(lambda g: g * factor, part)

    return WorldModel(limit(gradient.encoder), limit(gradient.dynamics), limit(gradient.reward), limit(gradient.value))


def _tune(config: Config, state: State, model: WorldModel, policy: MLP, z: Array, key: Array):
    """One step of Eq. 2 for the three coefficients, on states [N, Z]."""
    # The same noise for both policies: what differs is then the policies and not the draw.
    current = uncertainties(config, model, z, world_model.policy(config.model, policy, z, key)[0])
    target = uncertainties(config, model, z, world_model.policy(config.model, state.target_policy, z, key)[0])
    bonus = jnp.mean(current, axis=1)
    if not config.optimism.autotune:
        return state.log_lambda, state.lambda_optimizer, bonus
    gradient = jax.grad(lambda log_lambda: jnp.sum(jax.vmap(losses.autotune_loss)(log_lambda, current, target)))(
        state.log_lambda
    )
    change, optimizer = make_optimizers(config).log_lambda.update(gradient, state.lambda_optimizer)
    log_lambda = jnp.clip(state.log_lambda + change, *(jnp.log(bound) for bound in LAMBDA_RANGE))
    return log_lambda, optimizer, bonus


def _polyak(target: MLP, source: MLP, rate: float) -> MLP:
    return jax.tree.map(lambda t, s: t + rate * (s - t), target, source)


def update(
    config: Config, state: State, batch: Batch, supervision: Preferences | RewardTargets, key: Array
) -> tuple[State, Metrics]:
    """One gradient step on everything: all members at once, the policy, the targets and the coefficients."""
    k_model, k_policy, k_tune = jax.random.split(key, 3)
    optimizers = make_optimizers(config)
    loss = partial(model_loss, config, state, batch, supervision, k_model)
    (_, (imagined, metrics)), gradient = jax.value_and_grad(loss, has_aux=True)(state.model)
    metrics["gradient/model"] = optax.global_norm(gradient)
    change, model_optimizer = optimizers.model.update(_clip(config, gradient), state.model_optimizer)
    if change.encoder is not None:
        slower = jax.tree.map(lambda c: config.training.encoder_scale * c, change.encoder)
        change = WorldModel(slower, change.dynamics, change.reward, change.value)
    model = optax.apply_updates(state.model, change)

    loss = partial(_policy_loss, config, state, model, imagined, batch.mask, k_policy)
    (policy_loss, (scale, entropy)), gradient = jax.value_and_grad(loss, has_aux=True)(state.policy)
    change, policy_optimizer = optimizers.policy.update(gradient, state.policy_optimizer)
    policy = optax.apply_updates(state.policy, change)

    log_lambda, lambda_optimizer, bonus = _tune(config, state, model, policy, imagined[0, :AUTOTUNE_STATES], k_tune)
    metrics |= {"loss/policy": policy_loss, "policy/entropy": entropy, "value/scale": scale}
    for i, name in enumerate(("reward", "dynamics", "value")):
        metrics |= {f"uncertainty/{name}": bonus[i], f"lambda/{name}": jnp.exp(log_lambda[i])}
    return (
        State(
            model=model,
            policy=policy,
            target_value=_polyak(state.target_value, model.value, config.training.value_target_rate),
            target_policy=_polyak(state.target_policy, policy, config.optimism.target_policy_rate),
            log_lambda=log_lambda,
            value_scale=scale,
            stats=state.stats,
            model_optimizer=model_optimizer,
            policy_optimizer=policy_optimizer,
            lambda_optimizer=lambda_optimizer,
        ),
        metrics,
    )


def segment_returns(config: Config, state: State, segments: Segments) -> Array:
    """Summed mean reward of every member over each segment: [E, N]."""
    z = world_model.encode(state.model, state.stats, segments.obs)
    mean, _ = world_model.reward(config.model, state.model, z, segments.action)
    return jnp.sum(mean, axis=-1)


def predict_reward(config: Config, state: State, obs: Array, action: Array) -> Array:
    """Mean reward over members at observations [N, D] and actions [N, A]: [N]."""
    z = world_model.encode(state.model, state.stats, obs)
    return jnp.mean(world_model.reward(config.model, state.model, z, action)[0], axis=0)


def make_agent(config: Config, obs_dim: int, action_dim: int) -> Agent:
    """The functions above with a resolved config and the environment's sizes filled in."""
    return Agent(
        init=partial(init, config, obs_dim, action_dim),
        observe=lambda state, obs: state._replace(stats=normalizer.observe(state.stats, obs)),
        carry=lambda: jnp.zeros((config.planner.horizon, action_dim)),
        plan=partial(act_by_plan, config),
        react=partial(act_by_policy, config),
        update=partial(update, config),
        segment_returns=partial(segment_returns, config),
        predict_reward=partial(predict_reward, config),
    )
