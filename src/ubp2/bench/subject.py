"""What plan and update are measured on: the programs of a run for Door Close, with a filled memory."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2.agents.registry import make_agent
from ubp2.bench.options import Plan, Start, Train, Update
from ubp2.bench.timing import on_gpu
from ubp2.config.files import load_yaml
from ubp2.config.presets import preset
from ubp2.config.resolving import is_model_free, resolve
from ubp2.config.schema import Config, ModelConfig, given
from ubp2.envs.base import EnvSpec
from ubp2.errors import UserError
from ubp2.models.networks import MLP
from ubp2.models.normalizer import Normalizer
from ubp2.training.member_axis import Layout
from ubp2.training.programs import Programs, make_programs
from ubp2.training.records import Memory
from ubp2.types import Frame

__all__ = ["ACTION_DIM", "OBS_DIM", "Subject", "base_config", "moved", "sized", "subject", "with_model"]

OBS_DIM, ACTION_DIM = 39, 4  # of Door Close
EPISODE = 100
REPLAY = 20_000  # decisions: drawing a batch takes the same time from a larger one
T = TypeVar("T")


class Subject(NamedTuple):
    """A population in the middle of its run."""

    config: Config  # resolved
    seeds: int
    programs: Programs
    state: Any
    memory: Memory
    acting: tuple[Any, ...]  # arguments of plan and react after the state


def base_config(options: Plan | Update | Train | Start, env: str) -> Config:
    """The preset that was asked for, or that fits the device, under the file."""
    config = preset(options.preset or ("paper" if on_gpu() else "cpu"), env)
    if options.config is not None:
        config = dataclasses.replace(load_yaml(options.config, config), env=env)
    if is_model_free(config.agent):
        command = f"ubp2 bench {type(options).__name__.lower()}"
        raise UserError(f"{command} measures agents that plan, and {config.agent} does not; use ubp2 bench pebble")
    return config


def with_model(config: Config, **changes: Any) -> Config:
    """The same with other settings of the model."""
    return dataclasses.replace(config, model=dataclasses.replace(config.model, **changes))


def sized(options: Plan | Update) -> Config:
    """The resolved config of a bench of programs."""
    config = base_config(options, "metaworld/door-close")
    names = [field.name for field in dataclasses.fields(ModelConfig)]
    given_ = {name: getattr(options, name, None) for name in names}
    config = with_model(config, **{name: value for name, value in given_.items() if value is not None})
    training = dataclasses.replace(config.training, replay_capacity=REPLAY)
    steps = max(config.steps, REPLAY)  # so that the labels of the budget fit
    return resolve(dataclasses.replace(config, training=training, steps=steps), EPISODE)


def subject(config: Config, seeds: int) -> Subject:
    """Fresh agents with full memories; nothing but `init` is compiled."""
    low, high = (-1.0,) * ACTION_DIM, (1.0,) * ACTION_DIM
    spec = EnvSpec("bench", OBS_DIM, ACTION_DIM, EPISODE, 1, 10, False, low, high)
    agent = make_agent(config, OBS_DIM, ACTION_DIM)
    members = [dataclasses.replace(config, seed=seed) for seed in range(seeds)]
    programs = make_programs(Layout.of(members, spec), agent)
    state, memory, carry = programs.init()
    stats = Normalizer(jnp.full((seeds,), 1000.0), jnp.zeros((seeds, OBS_DIM)), jnp.full((seeds, OBS_DIM), 1000.0))
    state = agent.with_seen(state, stats)
    obs = np.random.default_rng(0).normal(size=(seeds, 1, OBS_DIM)).astype(np.float32)
    acting = (carry, obs, np.zeros((seeds, 1), bool), np.float32(1.0), np.int32(1), np.int32(0))
    return Subject(config, seeds, programs, state, _filled(config, memory, seeds), acting)


def _filled(config: Config, memory: Memory, seeds: int) -> Memory:
    """Episodes of noise in every slot of the replay, and an answer to every question of the budget."""
    keys = iter(jax.random.split(jax.random.key(0), 8))
    frames, preferences = memory.replay.frames, memory.preferences

    def noise(like: Array) -> Array:
        return jax.random.normal(next(keys), like.shape)

    slot = jnp.broadcast_to(jnp.arange(frames.episode.shape[1], dtype=jnp.int32), frames.episode.shape)
    length = EPISODE + 1
    action = jnp.tanh(noise(frames.action))
    frames = Frame(noise(frames.obs), action, jnp.zeros_like(frames.terminated), slot // length, slot % length)
    replay = memory.replay._replace(frames=frames, total=jnp.full((seeds,), slot.shape[1], jnp.int32))
    label = (noise(preferences.label) > 0).astype(jnp.float32)
    answers = preferences._replace(
        **{name: noise(getattr(preferences, name)) for name in preferences._fields[:4]},
        label=label,
        weight=jnp.ones_like(label),
        count=jnp.full((seeds,), given(config.preferences.budget), jnp.int32),
    )
    return memory._replace(replay=replay, preferences=answers)


def moved(tree: T, key: Array) -> T:
    """Networks with every parameter moved at random, by as much as a trained one: no head and no bonus is zero."""

    def one(network: MLP) -> MLP:
        leaves, structure = jax.tree.flatten(network)
        keys = jax.random.split(key, len(leaves))
        scales = [0.5 / leaf.shape[-2] ** 0.5 if leaf.ndim >= 2 else 0.1 for leaf in network.weights]
        scales += [0.1] * (len(leaves) - len(scales))
        new = [p + s * jax.random.normal(k, p.shape) for p, s, k in zip(leaves, scales, keys, strict=True)]
        return jax.tree.unflatten(structure, new)

    return jax.tree.map(one, tree, is_leaf=lambda x: isinstance(x, MLP))
