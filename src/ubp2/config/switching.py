"""What an ablation, or the agent `mbp`, switches on and off."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from ubp2.config.schema import Config
from ubp2.errors import UserError

__all__ = ["SWITCHED", "check_asked", "switched"]

SWITCHED = ("optimism.reward", "optimism.dynamics", "optimism.value", "preferences.strategy")


def switched(config: Config) -> Config:
    """The configuration with the switches set; doing it twice changes nothing."""
    switches = "0000" if config.agent == "mbp" else config.ablation
    if switches is None:
        return config
    if config.agent == "mbp" and config.ablation not in (None, "0000"):
        raise UserError(f"agent mbp is ablation 0000, got {config.ablation}; for others use --agent ubp2")
    if config.agent not in ("ubp2", "mbp"):
        raise UserError(f"ablation is of ubp2, got --agent {config.agent}; leave it out, or use --agent ubp2")
    if len(switches) != 4 or set(switches) - set("01"):
        raise UserError(
            f"ablation must be four of 0 and 1 (reward, dynamics, value bonus, optimistic queries), got '{switches}'; "
            f"1111 is all of ubp2"
        )
    reward, dynamics, value, queries = (switch == "1" for switch in switches)
    return dataclasses.replace(
        config,
        optimism=dataclasses.replace(config.optimism, reward=reward, dynamics=dynamics, value=value),
        preferences=dataclasses.replace(config.preferences, strategy="optimistic" if queries else "uniform"),
    )


def check_asked(config: Config, asked: Collection[str]) -> None:
    """Refuse a setting that was asked for by its dotted name where an ablation, or the agent `mbp`, sets it otherwise.

    What a preset has may be switched: nobody asked for it by name.
    """
    for name in SWITCHED:
        if name not in asked:
            continue
        section, _, field = name.partition(".")
        wanted, gets = (_word(getattr(getattr(each, section), field)) for each in (config, switched(config)))
        if wanted != gets:
            owner = "agent mbp" if config.agent == "mbp" else f"ablation {config.ablation}"
            raise UserError(f"{owner} sets {name} to {gets}, and {wanted} was asked for; leave one of the two out")


def _word(value: bool | str) -> str:
    return value if isinstance(value, str) else str(value).lower()
