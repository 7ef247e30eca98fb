"""Agents by name: those of this package, and those that a program registers."""

from __future__ import annotations

from collections.abc import Callable

from ubp2.agents import mrn, pebble, rune, sac, surf, ubp2
from ubp2.agents.base import Agent
from ubp2.config import files as config_files
from ubp2.config import own
from ubp2.config.resolving import MODEL_FREE
from ubp2.config.schema import Config
from ubp2.errors import UserError, unknown_name

__all__ = ["AGENTS", "MakeAgent", "find", "make_agent", "register"]

MakeAgent = Callable[[Config, int, int], Agent]  # resolved config, size of observations, size of actions

AGENTS: dict[str, MakeAgent] = {
    "ubp2": ubp2.make_agent,
    "mbp": ubp2.make_agent,  # its switches are set by `ubp2.config.switching`
    "sac": sac.make_agent,
    "pebble": pebble.make_agent,
    "rune": rune.make_agent,
    "mrn": mrn.make_agent,
    "surf": surf.make_agent,
}


def make_agent(config: Config, obs_dim: int, action_dim: int) -> Agent:
    """Build the agent that the resolved config names, for an environment of these sizes."""
    return find(config.agent)(config, obs_dim, action_dim)


def find(name: str) -> MakeAgent:
    """Look an agent up by name, or import it as `module:function`."""
    if name in AGENTS:
        return AGENTS[name]
    if own.is_named(name):
        return own.function("agent", name)
    raise UserError(f"{unknown_name('agent', name, AGENTS)}. {own.remedy('agent')}")


def register(name: str, make: MakeAgent, *, model_free: bool) -> None:
    """Add an agent of your own. Call it in every program that trains, resumes, evaluates or loads such a run.

    Args:
        name: What `config.agent` calls it.
        make: make(config, obs_dim, action_dim) -> Agent; the configuration has every value filled in.
        model_free: Whether it acts with its policy from the start and has no planner, as SAC and its relatives do;
            settings that were left open are then filled in as theirs.
    """
    added = config_files.FURTHER.setdefault("agent", [])
    if name in AGENTS and name not in added:
        raise UserError(f"'{name}' is an agent of ubp2 itself; give yours another name")
    AGENTS[name] = make
    if name not in added:
        added.append(name)
    (MODEL_FREE.add if model_free else MODEL_FREE.discard)(name)
