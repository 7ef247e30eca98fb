"""Agents by name."""

from __future__ import annotations

from collections.abc import Callable

from ubp2.agents import mrn, pebble, rune, sac, surf, ubp2
from ubp2.agents.base import Agent
from ubp2.config.schema import Config
from ubp2.errors import unknown_name

__all__ = ["AGENTS", "make_agent"]

AGENTS: dict[str, Callable[[Config, int, int], Agent]] = {
    "ubp2": ubp2.make_agent,
    "mbp": ubp2.make_agent,  # its switches are set by `ubp2.config.resolving`
    "sac": sac.make_agent,
    "pebble": pebble.make_agent,
    "rune": rune.make_agent,
    "mrn": mrn.make_agent,
    "surf": surf.make_agent,
}


def make_agent(config: Config, obs_dim: int, action_dim: int) -> Agent:
    """Build the agent that the resolved config names, for an environment of these sizes."""
    if config.agent not in AGENTS:
        raise unknown_name("agent", config.agent, AGENTS)
    return AGENTS[config.agent](config, obs_dim, action_dim)
