"""Epistemic uncertainty as pure functions of what an ensemble predicts. Members are the first axis."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["disagreement", "jensen_renyi", "spread"]


def jensen_renyi(mean: Array, log_std: Array) -> Array:
    """Jensen-Renyi divergence of E scalar Gaussians with equal weights: [E, ...], [E, ...] -> [...].

    The quadratic Renyi entropy H2(p) = -log int p^2 has a closed form for a mixture of Gaussians:
    JRD = H2(mixture) - mean_i H2(member i)
        = -log mean_ij exp(-(mu_i - mu_j)^2 / 2(v_i + v_j)) / sqrt(v_i + v_j)  -  mean_i log(v_i) / 2  -  log(2) / 2.
    It is at most log E. With unequal variances and equal means it can be negative, because H2 is not concave: members
    that differ only in how noisy they think the reward is. That says nothing about where reward can be gained, and a
    bonus must not become a penalty, so the value is clipped at zero.
    """
    # In logs: exp(2 log_std) is 0 in float32 below a log_std of about -44.
    log_total = jnp.logaddexp(2 * log_std[:, None], 2 * log_std[None])  # [E, E, ...]
    gap = (mean[:, None] - mean[None]) * jnp.exp(jnp.minimum(-0.5 * log_total, 80.0))
    pairs = -0.5 * (gap**2 + log_total)
    members = mean.shape[0]
    log_mean_exp = jax.nn.logsumexp(pairs, axis=(0, 1)) - 2 * jnp.log(float(members))
    divergence = -log_mean_exp - jnp.mean(log_std, axis=0) - 0.5 * jnp.log(2.0)
    return jnp.maximum(divergence, 0.0)


def disagreement(prediction: Array) -> Array:
    """Disagreement of E vector predictions: [E, ..., Z] -> [...], the norm of the standard deviation over members."""
    return jnp.sqrt(jnp.sum(jnp.var(prediction, axis=0), axis=-1))


def spread(prediction: Array) -> Array:
    """Standard deviation over members of E scalar predictions: [E, ...] -> [...]."""
    return jnp.std(prediction, axis=0)
