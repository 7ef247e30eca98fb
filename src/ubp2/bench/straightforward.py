"""The plan as one would write it first: every network of every ensemble called for itself, in float32.

It is the measure for what joining, batching and bfloat16 are worth. Search and objective are those of the package; only
what they ask of the model is replaced while they are traced, so that the two versions cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import jax
import jax.numpy as jnp
from jax import Array

from ubp2.config.schema import ModelConfig
from ubp2.models import heads, imagination, world_model
from ubp2.models.imagination import Imagined
from ubp2.models.networks import MLP
from ubp2.models.uncertainty import disagreement
from ubp2.models.world_model import WorldModel

__all__ = ["member_by_member"]

Ready = tuple[WorldModel, MLP]


@contextmanager
def member_by_member() -> Iterator[None]:
    """What is traced inside asks one network after the other. For one thread: it holds for the whole process."""
    with mock.patch.multiple(imagination, prepare=_prepare, step=_step, act=_act, value=_value):
        yield


def _each(members: MLP, x: Array) -> Array:
    count = members.weights[0].shape[0]
    return jnp.stack([jax.tree.map(lambda p, i=i: p[i], members)(x) for i in range(count)])


def _prepare(model: WorldModel, policy: MLP, dtype: jnp.dtype) -> Ready:
    return model, policy


def _step(config: ModelConfig, model: WorldModel, ready: Ready, z: Array, action: Array) -> Imagined:
    x = jnp.concatenate([z, action], -1)
    following = world_model.advance(model, z[None], _each(model.dynamics, x))
    reward = world_model.read_reward(config, _each(model.reward, x))
    return Imagined(jnp.mean(following, axis=0), disagreement(following), *reward)


def _act(config: ModelConfig, ready: Ready, z: Array, noise: Array) -> Array:
    return world_model.policy_from_noise(config, ready[1], z, noise)[0]


def _value(config: ModelConfig, ready: Ready, z: Array, action: Array) -> Array:
    return heads.decode_value(config.value_head, _each(ready[0].value, jnp.concatenate([z, action], -1)))
