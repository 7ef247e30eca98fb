"""The world model: ensembles of dynamics, Gaussian reward and value, and a tanh-Gaussian policy.

The model state z is the normalised observation (default) or a learned latent; everything below is the same for both.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ubp2.config.schema import ModelConfig
from ubp2.models import heads, normalizer
from ubp2.models.networks import MLP, apply_members, apply_own, ensemble, simnorm
from ubp2.models.normalizer import Normalizer

__all__ = [
    "WorldModel",
    "advance",
    "counted",
    "encode",
    "in_units",
    "init",
    "next_members",
    "next_own",
    "policy",
    "policy_from_noise",
    "read_policy",
    "read_reward",
    "reward",
    "rollout",
    "value",
    "value_logits",
]

SMALLEST_UNIT = 0.1  # before labels speak the reward hardly varies, and its noise must not be blown up
INITIAL_LOG_STD = -1.0  # of the reward: members a few tenths apart then differ clearly, yet short of saturation


class WorldModel(eqx.Module):
    """All learned networks but the policy. Ensembles have their parameters stacked on a first axis."""

    encoder: MLP | None  # only in latent space
    dynamics: MLP  # [E, ...]
    reward: MLP  # [E, ...]
    value: MLP  # [E, ...]


def init(config: ModelConfig, obs_dim: int, action_dim: int, key: Array) -> tuple[WorldModel, MLP]:
    """Fresh parameters of the world model and of the policy."""
    k_encoder, k_dynamics, k_reward, k_value, k_policy = jax.random.split(key, 5)
    latent = config.space == "latent"
    state_dim = config.latent_dim if latent else obs_dim
    hidden = [config.width] * config.depth
    inputs = state_dim + action_dim
    # Dynamics start as "nothing changes" and values at zero; rewards start small but different, so that members
    # disagree where no label has spoken yet.
    model = WorldModel(
        encoder=MLP([obs_dim, 256, config.latent_dim], key=k_encoder, normed=True) if latent else None,
        dynamics=ensemble(
            config.dynamics_members,
            lambda k: MLP([inputs, *hidden, state_dim], key=k, output_scale=1.0 if latent else 0.01, normed=latent),
            k_dynamics,
        ),
        reward=_blind_to_actions(
            ensemble(config.reward_members, lambda k: MLP([inputs, *hidden, 2], key=k, output_scale=0.3), k_reward),
            state_dim,
        ),
        value=ensemble(
            config.value_members,
            lambda k: MLP([inputs, *hidden, heads.value_outputs(config.value_head)], key=k, output_scale=0.0),
            k_value,
        ),
    )
    return model, MLP([state_dim, *hidden, 2 * action_dim], key=k_policy, output_scale=0.1)


def _blind_to_actions(members: MLP, state_dim: int) -> MLP:
    """Start a reward ensemble with no opinion about actions.

    A random dependence on the action survives a fit to few labels, and the planner, who chooses actions freely, would
    exploit it. What the labels do say about actions is still learned.
    """
    return eqx.tree_at(lambda m: m.weights[0], members, members.weights[0].at[:, state_dim:].set(0.0))


def encode(config: ModelConfig, model: WorldModel, stats: Normalizer, obs: Array) -> Array:
    """Observations [..., D] to model states [..., Z]."""
    normal = normalizer.normalize(config, stats, obs)
    return normal if model.encoder is None else simnorm(model.encoder(normal))


def advance(model: WorldModel, z: Array | float, output: Array) -> Array:
    """The next model state, from the outputs of dynamics networks."""
    return z + output if model.encoder is None else simnorm(output)


def next_members(model: WorldModel, z: Array, action: Array) -> Array:
    """What every dynamics member makes of the same state: [..., Z], [..., A] -> [E, ..., Z]."""
    return advance(model, z[None], apply_members(model.dynamics, jnp.concatenate([z, action], -1)))


def next_own(model: WorldModel, z: Array, action: Array) -> Array:
    """Each member steps a state of its own: [E, ..., Z], [..., A] -> [E, ..., Z]."""
    own_action = jnp.broadcast_to(action, (z.shape[0], *action.shape))
    return advance(model, z, apply_own(model.dynamics, jnp.concatenate([z, own_action], -1)))


def rollout(model: WorldModel, z: Array, actions: Array) -> Array:
    """Each member's own trajectory: [..., Z], [H, ..., A] -> [E, H+1, ..., Z]."""
    members = model.dynamics.weights[0].shape[0]
    start = jnp.broadcast_to(z, (members, *z.shape))

    def step(state: Array, action: Array) -> tuple[Array, Array]:
        state = next_own(model, state, action)
        return state, state

    # On a GPU a loop of few steps costs more in copies of its states than it saves; on a CPU it compiles faster.
    unroll = model.dynamics.weights[0].dtype == jnp.bfloat16
    _, states = jax.lax.scan(step, start, actions, unroll=unroll)  # [H, E, ..., Z]
    return jnp.concatenate([start[:, None], jnp.moveaxis(states, 0, 1)], axis=1)


def reward(config: ModelConfig, model: WorldModel, z: Array, action: Array) -> tuple[Array, Array]:
    """Mean and log standard deviation of every reward member: [..., Z], [..., A] -> [E, ...] twice."""
    return read_reward(config, apply_members(model.reward, jnp.concatenate([z, action], -1)))


def read_reward(config: ModelConfig, output: Array) -> tuple[Array, Array]:
    """Mean and log standard deviation from the outputs of reward networks [..., 2]."""
    mean = jnp.tanh(output[..., 0]) if config.reward_head == "tanh" else output[..., 0]
    low, high = config.reward_log_std
    start = min(max((INITIAL_LOG_STD - low) / (high - low), 0.01), 0.99)
    return mean, low + (high - low) * jax.nn.sigmoid(output[..., 1] + math.log(start / (1 - start)))


def in_units(units: Array | None, reward: Array) -> Array:
    """Rewards [E, ...] as plans, targets and the bonus count them: each member less its level, over its scale [E, 2].

    Comparisons fix an order. They leave every member its own level and scale, and as long as those differ, members
    that agree on every answer seem to disagree. Without units the rewards stay as they are.
    """
    if units is None:
        return reward
    level = units[:, 0].reshape(-1, *(1,) * (reward.ndim - 1))
    return (reward - level) / _scale(units, reward.ndim)


def counted(config: ModelConfig, units: Array | None, mean: Array, log_std: Array) -> tuple[Array, Array]:
    """Gaussian rewards [E, ...] as the bonus counts them: their means `in_units`, and noise that fits these.

    A deviation that is learned (`marginal`) is of a member's reward as it is, and is divided by the same scale. One
    that is not (`mean`) is a yardstick, and as long in the units of every member.
    """
    if units is not None and config.reward_likelihood == "marginal":
        log_std = log_std - jnp.log(_scale(units, log_std.ndim))
    return in_units(units, mean), log_std


def _scale(units: Array, dimensions: int) -> Array:
    """The divisor of each member, to go with rewards [E, ...] of so many dimensions."""
    return jnp.maximum(units[:, 1], SMALLEST_UNIT).reshape(-1, *(1,) * (dimensions - 1))


def value(config: ModelConfig, members: MLP, z: Array, action: Array) -> Array:
    """Value of every member in units of return: [..., Z], [..., A] -> [E, ...]."""
    return heads.decode_value(config.value_head, value_logits(members, z, action))


def value_logits(members: MLP, z: Array, action: Array) -> Array:
    """Raw outputs of the value members, for the loss: -> [E, ..., outputs]."""
    return apply_members(members, jnp.concatenate([z, action], -1))


def policy(config: ModelConfig, network: MLP, z: Array, key: Array, scale: Array | float = 1.0) -> tuple[Array, Array]:
    """Sample the tanh-Gaussian policy: [..., Z] -> action [..., A] and its log density [...].

    `scale` multiplies the standard deviation; 0 gives the mode. The density is that of the unscaled policy.
    """
    actions = network.biases[-1].shape[-1] // 2
    return policy_from_noise(config, network, z, jax.random.normal(key, (*z.shape[:-1], actions)), scale)


def policy_from_noise(
    config: ModelConfig, network: MLP, z: Array, noise: Array, scale: Array | float = 1.0
) -> tuple[Array, Array]:
    """`policy` for a given draw of standard normal noise [..., A]."""
    return read_policy(config, network(z), noise, scale)


def read_policy(config: ModelConfig, output: Array, noise: Array, scale: Array | float = 1.0) -> tuple[Array, Array]:
    """Action and log density from the outputs of the policy network [..., 2 A] and standard normal noise [..., A]."""
    actions = noise.shape[-1]
    mean, raw = output[..., :actions], output[..., actions : 2 * actions]
    low, high = config.policy_log_std
    log_std = low + 0.5 * (high - low) * (jnp.tanh(raw) + 1)
    before = mean + scale * jnp.exp(log_std) * noise
    action = jnp.tanh(before)
    log_normal = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    # log(1 - tanh^2 x) = 2 (log 2 - x - softplus(-2x)), stable for large x
    log_slope = 2 * (jnp.log(2.0) - before - jax.nn.softplus(-2 * before))
    return action, jnp.sum(log_normal - log_slope, axis=-1)
