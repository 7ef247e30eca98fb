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


def coefficient(config: Config, decision: Array) -> Array:
    """beta_t = beta_0 (1 - rho)^t, t counted in decisions from the start of the run."""
    return config.sac.rune_beta * (1.0 - config.sac.rune_decay) ** decision


def pay(config: Config, state: State, rewards: Array) -> Array:
    """Mean of the members' rewards [E, N] and beta_t times their standard deviation: [N]."""
    at_once = given(config.training.warmup_updates) + config.sac.reset_updates * (state.sessions > 0)
    decision = given(config.training.warmup) + (state.sac.updates - at_once) * config.training.update_every
    return jnp.mean(rewards, axis=0) + coefficient(config, decision) * jnp.std(rewards, axis=0)


def make_agent(config: Config, obs_dim: int, action_dim: int) -> Agent:
    """PEBBLE with another pay."""
    return pebble.make_agent(config, obs_dim, action_dim, Parts(pay=partial(pay, config)))
