"""RUNE: its coefficient against plain powers, and what it pays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.agents.helpers import (
    make_batch,
    make_pairs,
    make_pebble,
    normalised,
    numpy_members,
    replaced,
    uniform,
    with_sac,
)
from tests.conftest import ACTION, OBS, quick_jit
from ubp2.agents import rune
from ubp2.agents.registry import make_agent
from ubp2.config.schema import Config

KEY = jax.random.key(5)


@pytest.mark.parametrize("decay", [1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("decision", [0, 1, 500, 10_000, 250_000])
def test_the_coefficient_is_a_power_of_the_decision(config: Config, decision: int, decay: float) -> None:
    """The decision is an int32 on the device."""
    own = with_sac(config, rune_beta=0.05, rune_decay=decay)
    wanted = 0.05 * (1.0 - decay) ** decision
    found = float(quick_jit(lambda t: rune.coefficient(own, t))(jnp.int32(decision)))
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-12)


def test_the_coefficient_of_the_published_rates() -> None:
    """Numbers worked out by hand: e^-0.1 and e^-2.5 of 0.05, nearly."""
    config = Config()
    assert (config.sac.rune_beta, config.sac.rune_decay) == (0.05, 1e-5)
    assert float(rune.coefficient(config, jnp.int32(10_000))) == pytest.approx(0.04524, rel=2e-3)
    assert float(rune.coefficient(config, jnp.int32(250_000))) == pytest.approx(0.004104, rel=1e-2)


def test_the_coefficient_keeps_its_digits_to_the_end_of_a_run(config: Config) -> None:
    """0.05 (1 - 2e-5)^500,000; the numbers may be traced, and a decay of 1 is one step to nothing."""
    wanted = 0.05 * (1.0 - 2e-5) ** 500_000
    assert float(rune.coefficient(with_sac(config, rune_beta=0.05, rune_decay=2e-5), jnp.int32(500_000))) == (
        pytest.approx(wanted, rel=1e-5)
    )
    traced = quick_jit(lambda beta, decay, t: rune.coefficient(with_sac(config, rune_beta=beta, rune_decay=decay), t))
    assert float(traced(0.05, 2e-5, jnp.int32(500_000))) == pytest.approx(wanted, rel=1e-5)
    assert float(traced(0.05, 1.0, jnp.int32(0))) == pytest.approx(0.05)
    assert float(traced(0.05, 1.0, jnp.int32(1))) == pytest.approx(0.0, abs=1e-7)


def test_it_pays_the_mean_and_the_deviation_of_the_population_of_members(config: Config) -> None:
    own, rewards = with_sac(config, rune_beta=0.7, rune_decay=0.0), uniform(0, 3, 10)
    wanted = rewards.mean(0) + 0.7 * np.sqrt(((rewards - rewards.mean(0)) ** 2).sum(0) / 3)
    np.testing.assert_allclose(rune.pay(own, make_pebble(own), rewards), wanted, rtol=1e-5)
    same = np.repeat(rewards[:1], 3, axis=0)
    np.testing.assert_allclose(rune.pay(own, make_pebble(own), same), rewards[0], atol=1e-6)  # type: ignore[arg-type]


def test_curiosity_fades_with_the_updates(config: Config) -> None:
    """The share of the deviation in the pay falls by the decay."""
    own = with_sac(config, rune_beta=0.7, rune_decay=0.01)
    state, rewards = make_pebble(own), uniform(0, 3, 10)

    def share(updates: int) -> float:
        now = state._replace(sac=state.sac._replace(updates=jnp.int32(updates)))
        bonus = (np.asarray(rune.pay(own, now, rewards)) - rewards.mean(0)) / rewards.std(0)
        np.testing.assert_allclose(bonus, bonus[0], rtol=1e-3)
        return float(bonus[0])

    assert share(200) / share(100) == pytest.approx(0.99**100, rel=2e-3)


@pytest.mark.parametrize("sessions", [0, 2])
def test_time_is_counted_in_decisions(config: Config, sessions: int) -> None:
    """Updates at once, after the warm-up and after the first session, take no decision."""
    training = replaced(config.training, warmup=30, warmup_updates=20, update_every=2)
    own = replaced(with_sac(config, rune_beta=0.7, rune_decay=0.01, reset_updates=7), training=training)
    rewards, state = uniform(0, 3, 10), make_pebble(own, sessions)
    now = state._replace(sac=state.sac._replace(updates=jnp.int32(20 + 7 * (sessions > 0) + 50)))
    wanted = rewards.mean(0) + 0.7 * 0.99 ** (30 + 2 * 50) * rewards.std(0)
    np.testing.assert_allclose(rune.pay(own, now, rewards), wanted, rtol=1e-3)


def test_the_agent_is_pebble_with_this_pay(config: Config) -> None:
    """Before the first session both are paid for novelty; after it RUNE is paid the bonus on top."""
    own = with_sac(config, rune_beta=0.7, rune_decay=0.0)
    batch, state = make_batch(), make_pebble(own)
    updates = {
        name: quick_jit(make_agent(replaced(own, agent=name), OBS, ACTION).update) for name in ("pebble", "rune")
    }

    def paid(name: str, sessions: int) -> float:
        now = state._replace(sessions=jnp.int32(sessions))
        return float(updates[name](now, batch, make_pairs(), KEY)[1]["reward/paid"])

    assert paid("rune", 0) == pytest.approx(paid("pebble", 0), rel=1e-5)
    members = np.tanh(numpy_members(state.reward, normalised(np.asarray(batch.obs[0])), np.asarray(batch.action[0])))
    bonus = 0.7 * members.std(0)[np.asarray(batch.mask[0]) > 0].mean()
    assert paid("rune", 1) - paid("pebble", 1) == pytest.approx(bonus, rel=1e-2)
