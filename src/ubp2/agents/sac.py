"""Soft actor-critic (Haarnoja et al. 2018): what learns to act under PEBBLE and its relatives.

With the true reward it is an agent of its own, the model-free ceiling. Two critics and a tanh-Gaussian policy on
normalised observations, with the temperature tuned to a target entropy. `learn` is one gradient step on everything for
whatever reward it is handed; nothing here knows where a reward comes from.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax import Array

from ubp2.agents.base import Action, Agent, Metrics, Reflex, without_plan
from ubp2.agents.gradients import adam, descend
from ubp2.config.schema import Config, given
from ubp2.models import losses, normalizer, world_model
from ubp2.models.networks import MLP, compute_type, ensemble, weights_as
from ubp2.models.normalizer import Normalizer
from ubp2.types import Batch, Preferences, RewardTargets, Segments

__all__ = [
    "State",
    "Transitions",
    "act",
    "critic_loss",
    "init",
    "learn",
    "lower",
    "make_agent",
    "policy_of",
    "reflex",
    "reset_critics",
    "target_values",
    "transitions",
    "values",
]

CRITICS = 2


class State(NamedTuple):
    """Everything that learning changes."""

    critics: MLP  # [2, ...]
    targets: MLP  # their slow copies
    policy: MLP
    log_alpha: Array  # [] log of the temperature
    stats: Normalizer
    updates: Array  # [] int32
    critic_optimizer: optax.OptState
    policy_optimizer: optax.OptState
    alpha_optimizer: optax.OptState


class Transitions(NamedTuple):
    """One decision each, with states as the networks read them."""

    z: Array  # [N, Z]
    action: Array  # [N, A]
    z_next: Array  # [N, Z]
    terminated: Array  # [N]
    mask: Array  # [N], 0 where the replay had no decision


def _critics(config: Config, obs_dim: int, action_dim: int, key: Array) -> MLP:
    sizes = [obs_dim + action_dim, *[config.model.width] * config.model.depth, 1]
    return ensemble(CRITICS, lambda k: MLP(sizes, key=k, output_scale=0.1), key)


def init(config: Config, obs_dim: int, action_dim: int, key: Array) -> State:
    """Fresh parameters; targets start equal to what they follow."""
    k_critics, k_policy = jax.random.split(key)
    critics = _critics(config, obs_dim, action_dim, k_critics)
    sizes = [obs_dim, *[config.model.width] * config.model.depth, 2 * action_dim]
    policy = MLP(sizes, key=k_policy, output_scale=0.1)
    log_alpha = jnp.log(jnp.asarray(config.sac.alpha))
    return State(
        critics=critics,
        targets=jax.tree.map(jnp.copy, critics),
        policy=policy,
        log_alpha=log_alpha,
        stats=normalizer.init(obs_dim),
        updates=jnp.zeros((), jnp.int32),
        critic_optimizer=adam(config).init(cast(Any, critics)),
        policy_optimizer=adam(config).init(cast(Any, policy)),
        alpha_optimizer=optax.adam(config.sac.alpha_learning_rate).init(log_alpha),
    )


def reset_critics(config: Config, state: State, key: Array) -> State:
    """Critics, their targets and their optimiser as new: what they had learned was about another reward."""
    inputs = state.critics.weights[0].shape[-2]
    actions = state.policy.biases[-1].shape[-1] // 2
    critics = _critics(config, inputs - actions, actions, key)
    return state._replace(
        critics=critics,
        targets=jax.tree.map(jnp.copy, critics),
        critic_optimizer=adam(config).init(cast(Any, critics)),
    )


def transitions(config: Config, state: State, batch: Batch) -> Transitions:
    """The first decision of each sub-sequence."""
    z, z_next = (normalizer.normalize(config.model, state.stats, batch.obs[i]) for i in (0, 1))
    return Transitions(z, batch.action[0], z_next, batch.terminated[0], batch.mask[0])


def policy_of(config: Config, network: MLP, z: Array, key: Array, scale: Array | float = 1.0) -> tuple[Array, Array]:
    """Sampled actions [..., A] and their log densities [...], with SAC's own bounds on the deviation."""
    model = dataclasses.replace(config.model, policy_log_std=config.sac.log_std)
    return world_model.policy(model, network, z, key, scale)


def values(critics: MLP, z: Array, action: Array) -> Array:
    """Of both critics: [2, N]."""
    return world_model.value_logits(critics, z, action)[..., 0]


def lower(both: Array) -> Array:
    """The lower of two values, [2, N] -> [N].

    The gradient of `jnp.min` divides by how many are equal to the minimum. XLA may compute a value twice, in two
    fusions and rounded differently, and then there is none: 0/0.
    """
    return jnp.where(both[0] < both[1], both[0], both[1])


def target_values(config: Config, state: State, moved: Transitions, key: Array) -> Array:
    """gamma (min Q'(s', a') - alpha log pi(a' | s')), nothing beyond the end of the task: [N]."""
    action, log_density = policy_of(config, state.policy, moved.z_next, key)
    soft = lower(values(state.targets, moved.z_next, action)) - jnp.exp(state.log_alpha) * log_density
    return given(config.training.discount) * (1.0 - moved.terminated) * soft


def critic_loss(critics: MLP, moved: Transitions, target: Array) -> Array:
    """Squared errors of both critics, summed."""
    errors = (values(critics, moved.z, moved.action) - target) ** 2
    return sum(losses.masked_mean(error, moved.mask) for error in errors)  # type: ignore[return-value]


def learn(config: Config, state: State, moved: Transitions, reward: Array, key: Array) -> tuple[State, Metrics]:
    """One gradient step on critics, policy and temperature for a reward [N]; targets follow every other step."""
    k_target, k_policy = jax.random.split(key)
    light = partial(weights_as, dtype=compute_type(config.model))
    now = state._replace(**{name: light(getattr(state, name)) for name in ("policy", "targets")})
    target = jax.lax.stop_gradient(reward + target_values(config, now, moved, k_target))

    def loss_of_critics(critics: MLP) -> Array:
        return critic_loss(light(critics), moved, target)

    error, gradient = jax.value_and_grad(loss_of_critics)(state.critics)
    critics, critic_optimizer = descend(adam(config), gradient, state.critic_optimizer, state.critics)
    asked, alpha = light(critics), jnp.exp(state.log_alpha)

    def loss_of_policy(policy: MLP) -> tuple[Array, Array]:
        action, log_density = policy_of(config, light(policy), moved.z, k_policy)
        worth = lower(values(asked, moved.z, action))
        return losses.masked_mean(alpha * log_density - worth, moved.mask), losses.masked_mean(-log_density, moved.mask)

    (regret, entropy), gradient = jax.value_and_grad(loss_of_policy, has_aux=True)(state.policy)
    policy, policy_optimizer = descend(adam(config), gradient, state.policy_optimizer, state.policy)

    wanted = -float(moved.action.shape[-1])
    gradient = jax.grad(lambda log_alpha: jnp.exp(log_alpha) * jax.lax.stop_gradient(entropy - wanted))(state.log_alpha)
    rate = optax.adam(config.sac.alpha_learning_rate)
    log_alpha, alpha_optimizer = descend(rate, gradient, state.alpha_optimizer, state.log_alpha)

    updates = state.updates + 1
    step = jnp.where(updates % config.sac.target_every == 0, config.sac.target_rate, 0.0)
    targets = jax.tree.map(lambda slow, fast: slow + step * (fast - slow), state.targets, critics)
    metrics = {
        "loss/critic": error,
        "loss/policy": regret,
        "policy/entropy": entropy,
        "sac/alpha": jnp.exp(log_alpha),
        "value/target": losses.masked_mean(target, moved.mask),
    }
    following = State(
        critics, targets, policy, log_alpha, state.stats, updates, critic_optimizer, policy_optimizer, alpha_optimizer
    )
    return following, metrics


def act(config: Config, state: State, carry: Array, obs: Array, explore: Array, key: Array) -> Action:
    """Sample the policy, or take its mode without exploration."""
    z = normalizer.normalize(config.model, state.stats, obs)
    action, _ = policy_of(config, state.policy, z, key, scale=explore)
    return without_plan(action, carry)


def reflex(state: State) -> Reflex:
    """What acts."""
    return Reflex(state.stats, state.policy)


def make_agent(config: Config, obs_dim: int, action_dim: int) -> Agent:
    """SAC on the true reward, which `resolving` makes sure there is."""

    def update(state: State, batch: Batch, supervision: Preferences | RewardTargets, key: Array):
        assert isinstance(supervision, RewardTargets)
        return learn(config, state, transitions(config, state, batch), supervision.reward[0], key)

    def nothing(state: State, obs: Array, action: Array) -> Array:
        return jnp.zeros(obs.shape[0])

    def no_returns(state: State, segments: Segments) -> Array:
        return jnp.zeros((1, segments.start.shape[0]))

    return Agent(
        init=partial(init, config, obs_dim, action_dim),
        seen=lambda state: state.stats,
        observe=normalizer.observe,
        with_seen=lambda state, stats: state._replace(stats=stats),
        carry=lambda: jnp.zeros(()),
        plan=partial(act, config),
        react=partial(act, config),
        update=update,
        segment_returns=no_returns,
        predict_reward=nothing,
        plans=False,
        reflex=reflex,
    )
