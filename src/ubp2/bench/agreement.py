"""Whether the fast versions of a plan compute the same: scores of the same sequences, three ways."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2.bench.straightforward import member_by_member
from ubp2.bench.subject import ACTION_DIM, OBS_DIM, Subject, moved, with_model
from ubp2.bench.timing import jit
from ubp2.config.schema import Config
from ubp2.models import imagination, world_model
from ubp2.models.networks import MLP, compute_type
from ubp2.models.normalizer import Normalizer
from ubp2.models.world_model import WorldModel
from ubp2.planning import objective

__all__ = ["STATES", "compare", "lower_all"]

STATES = 24


def lower_all(subject: Subject) -> dict[str, Callable[[], Any]]:
    """Trace the three versions for the sizes of a subject; what is returned compiles each."""
    whole = partial(jax.default_matmul_precision, "highest")  # a GPU would round factors of float32 by itself
    versions: dict[str, tuple[str, list[Callable[[], AbstractContextManager[Any]]]]] = {
        "float32": ("float32", [whole]),
        "member by member": ("float32", [whole, member_by_member]),
        "bfloat16": ("bfloat16", []),
    }
    lowered = {}
    for name, (precision, contexts) in versions.items():
        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context())
            config = with_model(subject.config, precision=precision)
            lowered[name] = jit(partial(_scores, config)).lower(*_inputs(subject)).compile
    return lowered


def _inputs(subject: Subject) -> tuple[Any, ...]:
    """A model that is not fresh, states, and sequences: the same for all versions."""
    first = jax.tree.map(lambda x: x[0], subject.state)
    model, policy = jax.jit(moved)((first.model, first.policy), jax.random.key(1))
    random = np.random.default_rng(1)
    planner = subject.config.planner
    obs = random.normal(size=(STATES, OBS_DIM)).astype(np.float32)
    actions = random.uniform(-1, 1, (planner.samples, planner.horizon, ACTION_DIM)).astype(np.float32)
    return model, policy, first.stats, jnp.array(obs), jnp.array(actions)


def _scores(config: Config, model: WorldModel, policy: MLP, stats: Normalizer, obs: Array, actions: Array) -> Array:
    """Totals of the sequences from each state: [B, N]."""

    def one(own: Array) -> Array:
        ready = imagination.prepare(model, policy, compute_type(config.model))
        z = world_model.encode(config.model, model, stats, own)
        terms = objective.optimistic_return(config, model, ready, z, actions, jnp.zeros(ACTION_DIM))
        return objective.total(terms, jnp.ones(3))

    return jax.lax.map(one, obs)


def compare(subject: Subject, compiled: dict[str, Callable[..., Array]]) -> dict[str, float]:
    """Share of the elites that bfloat16 and float32 have in common, and the largest difference to the simple version.

    The difference is in units of the standard deviation of the scores from one state.
    """
    inputs = _inputs(subject)
    scores = {name: np.asarray(run(*inputs)) for name, run in compiled.items()}
    count = subject.config.planner.elites
    elites = {name: np.argsort(-own, axis=1, kind="stable")[:, :count] for name, own in scores.items()}
    pairs = zip(elites["float32"], elites["bfloat16"], strict=True)
    shares = [len(np.intersect1d(a, b)) / count for a, b in pairs]
    apart = np.abs(scores["float32"] - scores["member by member"]).max(axis=1) / scores["float32"].std(axis=1)
    return {
        "equal_elites_mean": float(np.mean(shares)),
        "equal_elites_least": float(np.min(shares)),
        "largest_difference": float(apart.max()),
    }
