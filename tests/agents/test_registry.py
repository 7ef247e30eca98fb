"""Agents of one's own, by name."""

from __future__ import annotations

import dataclasses

import pytest

from tests.training.helpers import tiny
from ubp2.agents import rune
from ubp2.agents.registry import AGENTS, make_agent, register
from ubp2.config import files as config_files
from ubp2.config.files import from_dict, to_dict
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.errors import UserError

pytestmark = pytest.mark.usefixtures("registry")


def own(config: Config) -> Config:
    return dataclasses.replace(config, agent="own")  # type: ignore[arg-type]


def test_a_registered_agent_is_made_and_read_by_its_name() -> None:
    with pytest.raises(UserError, match="agent must be one of"):
        from_dict({"agent": "own"})
    register("own", rune.make_agent, model_free=True)
    config = own(tiny())
    assert from_dict(to_dict(config)) == config
    assert not make_agent(resolve(config, 20), 3, 2).plans


def test_what_it_is_decides_what_is_filled_in() -> None:
    config = own(tiny())
    register("own", rune.make_agent, model_free=True)
    assert resolve(config, 20).evaluation.controllers == ("policy",)
    register("own", AGENTS["ubp2"], model_free=False)
    assert resolve(config, 20).evaluation.controllers == config.evaluation.controllers


def test_a_name_that_is_registered_again_is_known_once() -> None:
    """A notebook runs its cells again."""
    for _ in range(2):
        register("own", rune.make_agent, model_free=True)
    assert config_files.FURTHER["agent"] == ["own"]


def test_the_names_of_the_package_are_taken() -> None:
    with pytest.raises(UserError, match="'pebble' is an agent of ubp2 itself; give yours another name"):
        register("pebble", rune.make_agent, model_free=True)
