"""What the planner sees of the world model: joined and packed, and in bfloat16, against the networks themselves."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import ACTION, OBS, noisy, quick_jit
from ubp2.config.schema import Config
from ubp2.models import imagination, world_model
from ubp2.models.networks import MLP, apply_members, weights_as
from ubp2.models.uncertainty import disagreement
from ubp2.models.world_model import WorldModel
from ubp2.planning import objective, optimizers

ROWS = 20
RANDOM = np.random.default_rng(0)


def changed(config: Config, **model: Any) -> Config:
    return dataclasses.replace(config, model=dataclasses.replace(config.model, **model))


def make(config: Config) -> tuple[WorldModel, MLP]:
    return noisy(quick_jit(partial(world_model.init, config.model, OBS, ACTION))(jax.random.key(0)), 0.2)


@pytest.mark.parametrize("space", ["observation", "latent"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_one_ensemble_of_all_equals_each_network_alone(config: Config, space: str, depth: int) -> None:
    """In float32 to its last digits; also with other numbers of members, and with a value of many outputs."""
    config = changed(config, space=space, depth=depth, reward_members=2, value_members=4, value_head="twohot")
    model, policy = make(config)
    z = jnp.array(RANDOM.normal(size=(ROWS, model.dynamics.biases[-1].shape[-1])), jnp.float32)
    action, noise = jnp.array(RANDOM.uniform(-1, 1, (2, ROWS, ACTION)), jnp.float32)

    @quick_jit
    def both(model: WorldModel, policy: MLP) -> tuple[Any, Any]:
        ready = imagination.prepare(model, policy, jnp.float32)
        packed = (
            imagination.step(config.model, model, ready, z, action),
            imagination.value(config.model, ready, z, action),
            imagination.act(config.model, ready, z, noise),
        )
        following = world_model.next_members(model, z, action)
        alone = imagination.Imagined(
            jnp.mean(following, axis=0), disagreement(following), *world_model.reward(config.model, model, z, action)
        )
        value = world_model.value(config.model, model.value, z, action)
        return packed, (alone, value, world_model.policy_from_noise(config.model, policy, z, noise)[0])

    for a, b in zip(*(jax.tree.leaves(side) for side in both(model, policy)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_batched_members_equal_a_loop_over_members(networks: tuple[WorldModel, MLP]) -> None:
    """The shared first product and the batched ones behind it, member by member."""
    model, _ = networks
    x = RANDOM.normal(size=(ROWS, OBS + ACTION)).astype(np.float32)
    together = quick_jit(apply_members)(model.reward, x)
    for i in range(3):
        alone = quick_jit(lambda net, x: net(x))(jax.tree.map(lambda p, i=i: p[i], model.reward), x)
        np.testing.assert_allclose(together[i], alone, rtol=1e-5, atol=1e-5)


def test_bfloat16_weights_keep_the_digits_of_narrow_inputs(networks: tuple[WorldModel, MLP]) -> None:
    """Outputs are as near to float32 as weights of 8 binary digits allow; a small change of the input is seen."""
    model, _ = networks
    light = weights_as(model, jnp.bfloat16)
    heavy = jax.tree.map(lambda p: p.astype(jnp.float32), light)  # the same rounded weights, computed in float32
    x = RANDOM.normal(size=(ROWS, OBS + ACTION)).astype(np.float32)
    run = quick_jit(apply_members)
    np.testing.assert_allclose(run(light.dynamics, x), run(heavy.dynamics, x), atol=0.05)
    nearby = x * np.float32(1 + 2.0**-9)  # the same number in bfloat16
    assert np.abs(run(light.dynamics, x) - run(light.dynamics, nearby)).max() > 0


def test_bfloat16_plans_mostly_pick_the_elites_of_float32(config: Config) -> None:
    """Of the elites among 512 sequences from each of 20 states, at least 90 % are the same; `ubp2 bench plan` measures
    the share at the paper's sizes."""
    config = changed(config, width=64, depth=2)
    planner = dataclasses.replace(config.planner, optimizer="cem", samples=512, elites=64)
    model, policy = make(config)
    actions = jnp.array(RANDOM.uniform(-1, 1, (512, 3, ACTION)), jnp.float32)
    noise = jnp.zeros(ACTION)

    @quick_jit
    def shared(z: jax.Array) -> jax.Array:
        def elites(dtype: jnp.dtype) -> jax.Array:
            ready = imagination.prepare(model, policy, dtype)
            terms = objective.optimistic_return(config, model, ready, z, actions, noise)
            return optimizers.elite_weights(planner, objective.total(terms, jnp.ones(3))) > 0

        return jnp.sum(elites(jnp.float32) & elites(jnp.bfloat16)) / planner.elites

    share = [float(shared(jnp.array(z, jnp.float32))) for z in RANDOM.normal(size=(20, OBS))]
    assert np.mean(share) >= 0.9, share


@pytest.mark.parametrize("latent_dim", [16, 136])
def test_a_latent_in_bfloat16_is_that_of_the_networks(config: Config, latent_dim: int) -> None:
    """The LayerNorm behind the last layer reads its own columns alone, in narrow latents and in wide ones."""
    config = changed(config, space="latent", latent_dim=latent_dim, depth=2)
    model, policy = make(config)
    z = jnp.array(RANDOM.dirichlet(np.ones(8), (ROWS, latent_dim // 8)).reshape(ROWS, -1), jnp.float32)
    action = jnp.array(RANDOM.uniform(-1, 1, (ROWS, ACTION)), jnp.float32)

    @quick_jit
    def both(model: WorldModel, policy: MLP) -> tuple[jax.Array, jax.Array]:
        ready = imagination.prepare(model, policy, jnp.bfloat16)
        alone = world_model.next_members(weights_as(model, jnp.bfloat16), z, action)
        return imagination.step(config.model, model, ready, z, action).z, jnp.mean(alone, axis=0)

    packed, alone = both(model, policy)
    assert packed.shape == (ROWS, latent_dim)
    np.testing.assert_allclose(packed, alone, atol=0.02)
    np.testing.assert_allclose(np.sum(packed.reshape(ROWS, -1, 8), axis=-1), 1.0, atol=1e-4)
