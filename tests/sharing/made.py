"""Runs to share: trained ones, and others that were never trained, whose checkpoint has every parameter moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ubp2
from tests.conftest import quick_jit
from tests.training.helpers import keep_compilations, tiny
from ubp2.agents.registry import make_agent
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.envs.registry import make
from ubp2.storage.runs import Run
from ubp2.training import checkpoint

PENDULUM = "gym/Pendulum-v1"  # its actions are in [-2, 2]
KINDS: dict[str, dict[str, Any]] = {
    "observation": {},
    "latent": {"model": {"space": "latent", "latent_dim": 16, "depth": 2}},
    "pebble": {"agent": "pebble", "evaluation": {"controllers": ["policy"]}},
}


def config_of(kind: str, env: str = PENDULUM) -> Config:
    """A small run of this kind."""
    return tiny(env=env, steps=170, **KINDS[kind])


def trained(kind: str, folder: Path, env: str = PENDULUM) -> Path:
    """A run of a few seconds."""
    keep_compilations()
    return ubp2.train(config_of(kind, env), out=folder, progress=False).folder


def untrained(kind: str, folder: Path) -> Path:
    """The folder of a run with one checkpoint, whose agent has seen observations and is random everywhere else."""
    wanted = config_of(kind)
    spec = make(PENDULUM, wanted.environment).spec
    config = resolve(wanted, spec.episode_decisions)
    agent, rng = make_agent(config, spec.obs_dim, spec.action_dim), np.random.default_rng(0)
    state = quick_jit(agent.init)(jax.random.key(0))
    moved = jax.tree.map(lambda leaf: leaf + _noise(rng, leaf), state)
    seen = agent.seen(state)
    for obs in rng.normal(1.0, 2.0, size=(50, spec.obs_dim)):
        seen = agent.observe(seen, jnp.asarray(obs, jnp.float32))
    meta = {"decision": 1, "labels": 0, "environment": spec._asdict()}
    with Run.create(folder, config) as run:
        checkpoint.save(run.checkpoints, 1, checkpoint.flatten((agent.with_seen(moved, seen),)), meta, keep=2)
    return folder


def _noise(rng: np.random.Generator, leaf: Any) -> Any:
    return rng.normal(0.0, 0.3, leaf.shape).astype(leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else 0
