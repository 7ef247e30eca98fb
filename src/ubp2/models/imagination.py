"""The world model as the planner uses it: laid out once a plan, then asked for thousands of steps without gradients.

Dynamics and reward members read the same input, so here they are one ensemble: one product for all first layers, one
batched product for each further layer. (On a GPU, with a latent or wide observations, they stay two: their outputs are
too different in size, and taking the layers apart again would cost more than is won.)
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ubp2.config.schema import ModelConfig
from ubp2.models import heads, world_model
from ubp2.models.networks import MLP, NARROW, finished, hidden_layers, last_product, shared_layer, shared_weight
from ubp2.models.uncertainty import disagreement
from ubp2.models.world_model import WorldModel

__all__ = ["Imagination", "Imagined", "Packed", "act", "infer", "pack", "prepare", "step", "value"]


class Packed(NamedTuple):
    """An ensemble laid out for inference."""

    first: Array  # as `shared_weight` gives it
    vectors: tuple[Array, ...]  # [E, 3, W] bias, scale and offset of each hidden layer
    weights: tuple[Array, ...]  # [E, W, W] of the others
    last: tuple[Array, ...]  # [E, W, O], one for each of the ensembles that were joined, or one for all
    outputs: tuple[Array, ...]  # as `MLP.outputs` gives them, [E, 1 or 3, O]


class Imagination(NamedTuple):
    """Everything that a plan asks."""

    models: tuple[Packed, ...]  # dynamics members, then reward members: joined, or apart
    value: Packed
    policy: Packed  # one member


class Imagined(NamedTuple):
    """One step of N imagined trajectories."""

    z: Array  # [N, Z] the mean over dynamics members of the next state
    disagreement: Array  # [N]
    reward: Array  # [Er, N]
    log_std: Array  # [Er, N]


def pack(networks: list[MLP], dtype: jnp.dtype) -> Packed:
    """Lay out ensembles that read the same input as one, with their weights in `dtype`."""
    layers = range(len(networks[0].weights) - 1)
    weights = [jnp.concatenate([network.weights[i] for network in networks]).astype(dtype) for i in layers]
    last = tuple(network.weights[-1].astype(dtype) for network in networks)
    outputs = tuple(network.outputs() for network in networks)
    size = max(own.shape[-1] for own in outputs)
    if dtype != jnp.float32 and size <= NARROW:  # few outputs: one product with empty columns is faster than two
        last = (jnp.concatenate([jnp.pad(w, ((0, 0), (0, 0), (0, size - w.shape[-1]))) for w in last]),)
        outputs = (jnp.concatenate([jnp.pad(o, ((0, 0), (0, 0), (0, size - o.shape[-1]))) for o in outputs]),)
    vectors = tuple(jnp.concatenate([network.vectors(i) for network in networks]) for i in layers)
    return Packed(shared_weight(weights[0]), vectors, tuple(weights[1:]), last, outputs)


def infer(packed: Packed, x: Array) -> tuple[Array, ...]:
    """The members on rows [N, I]: what the networks give, to the digits of their type. [E, N, O] for each output."""
    first = shared_layer(x, packed.first, packed.vectors[0])
    hidden = hidden_layers(packed.weights, packed.vectors[1:], first)
    outputs, place = [], 0
    for weight, vectors in zip(packed.last, packed.outputs, strict=True):
        own = hidden[place : place + len(weight)]
        # Many outputs keep fewer digits: a latent is about to be squeezed through a softmax, and of a wide observation,
        # such as features of frames, they are changes.
        narrow = vectors.shape[-1] <= NARROW
        output = jax.vmap(last_product)(own, weight) if narrow else (own @ weight).astype(jnp.float32)
        outputs.append(finished(output, vectors))
        place += len(weight)
    return tuple(outputs)


def prepare(model: WorldModel, policy: MLP, dtype: jnp.dtype) -> Imagination:
    """Lay out all networks for planning."""
    one = jax.tree.map(lambda parameter: parameter[None], policy)
    apart = dtype != jnp.float32 and (model.encoder is not None or model.dynamics.biases[-1].shape[-1] > NARROW)
    groups = [[model.dynamics], [model.reward]] if apart else [[model.dynamics, model.reward]]
    models = tuple(pack(group, dtype) for group in groups)
    return Imagination(models, pack([model.value], dtype), pack([one], dtype))


def step(config: ModelConfig, model: WorldModel, ready: Imagination, z: Array, action: Array) -> Imagined:
    """What the members make of states [N, Z] and actions [N, A]."""
    members, size = model.dynamics.biases[-1].shape
    x = jnp.concatenate([z, action], -1)
    outputs = [output for packed in ready.models for output in infer(packed, x)]
    change, reward = outputs if len(outputs) == 2 else (outputs[0][:members, :, :size], outputs[0][members:])
    # A sum of arrays, not a reduction over an axis: on a GPU it joins the operations around it.
    following = world_model.advance(model, 0.0, change)
    mean = reduce(jnp.add, [following[i] for i in range(members)]) / members
    z = mean if model.encoder is not None else z + mean
    return Imagined(z, disagreement(following), *world_model.read_reward(config, reward))


def act(config: ModelConfig, ready: Imagination, z: Array, noise: Array) -> Array:
    """The policy's action for a draw of standard normal noise [N, A]."""
    return world_model.read_policy(config, infer(ready.policy, z)[0][0], noise)[0]


def value(config: ModelConfig, ready: Imagination, z: Array, action: Array) -> Array:
    """Value of every member: [N, Z], [N, A] -> [Eq, N]."""
    return heads.decode_value(config.value_head, infer(ready.value, jnp.concatenate([z, action], -1))[0])
