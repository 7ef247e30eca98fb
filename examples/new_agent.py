"""An agent of your own. This one is PEBBLE that distrusts its reward: it is paid what the members agree on.

An agent is a NamedTuple of pure functions (src/ubp2/agents/base.py), so anything can be exchanged: of an agent as a
whole, `agent._replace(react=...)`; of PEBBLE and its relatives, a function of `Parts`, as here. Environments, teachers,
queries, labels, checkpoints, seeds side by side, evaluation and export come with it.

    python examples/new_agent.py                 # some minutes on two cores
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

import ubp2
from ubp2.agents import pebble
from ubp2.agents.base import Agent
from ubp2.agents.registry import register

CAUTION = 0.5  # standard deviations


def pay(state: pebble.State, rewards: jax.Array) -> jax.Array:
    """What SAC is paid [N] for the rewards of the members [E, N]: RUNE adds what they disagree by, this subtracts."""
    del state  # everything that the agent knows
    return jnp.mean(rewards, axis=0) - CAUTION * jnp.std(rewards, axis=0)


def make_agent(config: ubp2.Config, obs_dim: int, action_dim: int) -> Agent:
    """PEBBLE with another pay."""
    return pebble.make_agent(config, obs_dim, action_dim, pebble.Parts(pay=pay))


def main(config: ubp2.Config | None = None, out: str = "runs/cautious") -> ubp2.RunResult:
    """Train it, and use its policy as that of any other agent."""
    register("cautious", make_agent, model_free=True)
    config = dataclasses.replace(config or ubp2.preset("demo", env="toy/reach"), agent="cautious")
    result = ubp2.train(config, out=out)
    print(result.evaluation)
    print(f"policy: {ubp2.export(result.folder, f'{out}/policy.npz')}")
    return result


if __name__ == "__main__":
    main()
