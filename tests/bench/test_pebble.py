"""What `ubp2 bench pebble` compares is the same thing, and what it counts is what the programs do."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from ubp2.agents import pebble, sac
from ubp2.bench import flops, pebble_subject
from ubp2.bench.options import Pebble
from ubp2.bench.pebble import operations
from ubp2.bench.subject import ACTION_DIM, OBS_DIM, with_model
from ubp2.config.schema import Config, given
from ubp2.models import networks


@pytest.fixture
def small() -> Config:
    return with_model(pebble_subject.sized(Pebble(labels=20, epochs=2, replay=300)), width=16, depth=2)


def shapes(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


@pytest.mark.slow
@pytest.mark.parametrize("block", [100, 300, 10**6])
def test_loops_over_members_compute_the_same(small: Config, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Whether the fit takes a minibatch in blocks that fill it, in blocks that do not, or at once."""
    monkeypatch.setattr(networks, "CPU_BLOCK", block)
    assert max(pebble_subject.agreement(small).values()) < 1e-3


def test_operations_of_sac_are_those_of_the_traced_program(small: Config) -> None:
    state = jax.eval_shape(partial(sac.init, small, OBS_DIM, ACTION_DIM), jax.random.key(0))
    rows = small.training.batch_size
    z, one = jnp.zeros((rows, OBS_DIM)), jnp.ones(rows)
    moved = sac.Transitions(z, jnp.zeros((rows, ACTION_DIM)), z, one, one)
    found = flops.traced(partial(sac.learn, small), state, *shapes((moved, one)), jax.random.key(0))
    assert operations(small, "sac") == pytest.approx(found, rel=0.05)  # the policy asks critics for slopes of actions


def test_operations_of_rewards_are_those_of_the_traced_program(small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "CPU_BLOCK", 10**6)
    state = jax.eval_shape(partial(pebble.init, small, OBS_DIM, ACTION_DIM), jax.random.key(0))
    rows = given(small.training.replay_capacity)
    asked = jnp.zeros((rows, OBS_DIM)), jnp.zeros((rows, ACTION_DIM))
    found = flops.traced(partial(pebble.predict_reward, small), state, *asked)
    assert operations(small, "relabel") == found
