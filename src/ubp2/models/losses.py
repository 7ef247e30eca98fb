"""The losses of the paper, one function an equation. Sequences are time first, [H, N, .]; mask is 0 off an episode."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ubp2.models.heads import ValueHead, value_error
from ubp2.preference import bradley_terry

__all__ = [
    "autotune_loss",
    "consistency_loss",
    "masked_mean",
    "policy_loss",
    "preference_loss",
    "regression_loss",
    "td_target",
    "value_loss",
]


def masked_mean(x: Array, mask: Array) -> Array:
    """Mean over the places where the mask is 1."""
    return jnp.sum(x * mask) / jnp.maximum(jnp.sum(mask), 1.0)


def _powers(base: float, horizon: int) -> Array:
    return base ** jnp.arange(horizon, dtype=jnp.float32)[:, None]  # [H, 1]


def consistency_loss(predicted: Array, actual: Array, mask: Array, rho: float) -> Array:
    """Eq. 3 for one member: squared distance of its own rollout [H, N, Z] to what happened [H, N, Z], over Z.

    TD-MPC2 takes the mean over coordinates, too, and its weight of 20 belongs to that.
    """
    error = jnp.mean((predicted - actual) ** 2, axis=-1)
    return masked_mean(error * _powers(rho, len(error)), mask)


def preference_loss(logits: Array, label: Array, weight: Array) -> tuple[Array, Array]:
    """Eq. 4 for one member: Bradley-Terry cross-entropy over a minibatch [N], and its accuracy on the pairs that
    are not ties."""
    loss = jnp.sum(weight * bradley_terry.cross_entropy(logits, label)) / jnp.maximum(jnp.sum(weight), 1e-6)
    decided = weight * (label != 0.5)
    right = jnp.sum(decided * bradley_terry.is_right(logits, label))
    return loss, right / jnp.maximum(jnp.sum(decided), 1e-6)


def regression_loss(mean: Array, log_std: Array, target: Array, mask: Array) -> Array:
    """Ceiling mode only: Gaussian negative log-likelihood of the true reward [H, N] under one member."""
    error = 0.5 * ((mean - target) * jnp.exp(-log_std)) ** 2 + log_std
    return masked_mean(error, mask)


def td_target(reward: Array, terminated: Array, next_value: Array, discount: float) -> Array:
    """The target of Eq. 5: predicted reward plus the discounted target value, unless the task ended. [H, N]"""
    return reward + discount * (1.0 - terminated.astype(jnp.float32)) * next_value


def value_loss(head: ValueHead, output: Array, target: Array, mask: Array, discount: float) -> Array:
    """Eq. 5: error of every value member's output [E, H, N, .] against one target [H, N], weighted by gamma^t."""
    error = jnp.mean(value_error(head, output, jnp.broadcast_to(target, output.shape[:-1])), axis=0)
    return masked_mean(error * _powers(discount, len(target)), mask)


def policy_loss(value: Array, log_density: Array, mask: Array, discount: float, entropy_weight: float) -> Array:
    """Eq. 6: minus (mean value plus weighted entropy) along the imagined states, [H, N] each."""
    return -masked_mean((value - entropy_weight * log_density) * _powers(discount, len(value)), mask)


def autotune_loss(log_lambda: Array, current: Array, target: Array) -> Array:
    """Eq. 2: log(lambda) times (uncertainty at the policy's action minus at the target policy's), a mean over states.

    Descent raises lambda when the current policy has become less curious than its slow copy.
    """
    return log_lambda * jnp.mean(current - target)
