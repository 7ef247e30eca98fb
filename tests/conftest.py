"""What the tests of the algorithm share: a config of a few units, and a world model in which nothing is zero."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

# Tests compile much and compute little. Set before jax is imported; commands that tests start inherit it.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)

# The servers of tests are on this machine, where no proxy finds them.
os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(
    filter(None, ["127.0.0.1,localhost", os.environ.get("no_proxy") or os.environ.get("NO_PROXY")])
)

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubp2 import replay as replay_
from ubp2.agents.registry import AGENTS
from ubp2.config import files as config_files
from ubp2.config.resolving import MODEL_FREE, resolve
from ubp2.config.schema import (
    Config,
    ModelConfig,
    PlannerConfig,
    PreferenceConfig,
    TrainingConfig,
)
from ubp2.envs.gl import choose_backend
from ubp2.models import world_model
from ubp2.models.networks import MLP
from ubp2.models.world_model import WorldModel
from ubp2.preference.queries import STRATEGIES
from ubp2.replay import Replay
from ubp2.system import resident_megabytes
from ubp2.types import Frame

# Where neither pip nor Python may keep bytecode, all that tests start would compile jax's sources again, for seconds.
if sys.dont_write_bytecode and not Path(jax.__spec__.cached or "").exists():
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode"))

choose_backend()  # before a test imports mujoco itself, which would look for a display

OBS, ACTION, EPISODE = 3, 2, 20
T = TypeVar("T")

quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # compiles twice as fast


def noisy(tree: T, scale: float, seed: int = 7) -> T:
    """Every parameter moved at random."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + scale * rng.normal(size=leaf.shape).astype(np.float32), tree)


def add(replay: Replay, frame: Frame) -> Replay:
    """Write one frame over the oldest of a replay."""
    return replay_.extend(replay, jax.tree.map(lambda x: jnp.asarray(x)[None], frame), jnp.ones((), jnp.int32))


def member(members: MLP, number: int) -> MLP:
    """One network of an ensemble, its parameters as numpy arrays."""
    return jax.tree.map(lambda p: np.asarray(p)[number], members)


def numpy_mlp(network: MLP, x: np.ndarray) -> np.ndarray:
    """What an MLP computes, in double precision: linear, LayerNorm and Mish a hidden layer, then linear (LayerNorm)."""
    parts = (network.weights, network.biases, network.scales, network.offsets)
    weights, biases, scales, offsets = ([np.asarray(p, np.float64) for p in part] for part in parts)
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = x @ weight + bias
        if layer < len(scales):
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
            x = x * scales[layer] + offsets[layer]
        if layer < len(weights) - 1:
            x = x * np.tanh(np.logaddexp(0.0, x))
    return x


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """Forget what jax has compiled once it fills the memory of a small machine: it forgets nothing by itself."""
    yield
    if resident_megabytes() > 3000:
        jax.clear_caches()
        gc.collect()
        with suppress(AttributeError):  # another C library hands freed memory back by itself
            ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def config() -> Config:
    """A resolved config that compiles and runs in moments; observations of 3 numbers, actions of 2."""
    return resolve(
        Config(
            steps=400,
            model=ModelConfig(width=16, depth=1, latent_dim=16, dynamics_members=3, reward_members=3, value_members=3),
            planner=PlannerConfig(horizon=3, samples=64, elites=8, policy_samples=4, iterations=3),
            preferences=PreferenceConfig(segment_length=4, per_session=2, every=20, candidates=16, batch_size=8),
            training=TrainingConfig(batch_size=16, warmup=40, learning_rate=3e-3, discount=0.9),
        ),
        EPISODE,
    )


@pytest.fixture(scope="session")
def fresh(config: Config) -> tuple[WorldModel, MLP]:
    """World model and policy as a run starts with them."""
    return quick_jit(partial(world_model.init, config.model, OBS, ACTION))(jax.random.key(0))


@pytest.fixture(scope="session")
def networks(fresh: tuple[WorldModel, MLP]) -> tuple[WorldModel, MLP]:
    """The same with every parameter moved: no head, no action weight and no bonus is zero."""
    return noisy(fresh, 0.3)


@pytest.fixture
def registry() -> Iterator[None]:
    """Forget the strategies and agents that a test registers."""
    before = [(names, set(names)) for names in (STRATEGIES, AGENTS)], set(MODEL_FREE)
    yield
    for names, own in before[0]:
        for name in set(names) - own:
            del names[name]
    MODEL_FREE.intersection_update(before[1])
    config_files.FURTHER.clear()
