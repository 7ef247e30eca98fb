"""RUNE (Liang et al. 2022): PEBBLE that is also paid where its reward members disagree, less and less as it goes on."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
from jax import Array

from ubp2.agents import pebble
from ubp2.agents.base import Agent
from ubp2.agents.pebble import Parts, State
from ubp2.config.schema import Config, given

__all__ = ["coefficient", "make_agent", "pay"]

ALMOST_ONE = 1 - 1e-7  # a decay of 1 leaves nothing after the first decision


def coefficient(config: Config, decision: Array) -> Array:
    """beta_t = beta_0 (1 - rho)^t, t counted in decisions from the start of the run.

    As exp(t log(1 - rho)): float32 rounds 1 - 2e-5 so much that its power is 1.4 % off after 500,000 decisions.
    """
    rate = jnp.log1p(-jnp.minimum(config.sac.rune_decay, ALMOST_ONE))
    return config.sac.rune_beta * jnp.exp(decision * rate)


def pay(config: Config, state: State, rewards: Array) -> Array:
    """Mean of the members' rewards [E, N] and beta_t times their standard deviation: [N]."""
    at_once = given(config.training.warmup_updates) + config.sac.reset_updates * (state.sessions > 0)
    decision = given(config.training.warmup) + (state.sac.updates - at_once) * config.training.update_every
    return jnp.mean(rewards, axis=0) + coefficient(config, decision) * jnp.std(rewards, axis=0)


def make_agent(config: Config, obs_dim: int, action_dim: int) -> Agent:
    """PEBBLE with another pay."""
    return pebble.make_agent(config, obs_dim, action_dim, Parts(pay=partial(pay, config)))
