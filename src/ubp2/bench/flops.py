"""How much arithmetic a program is: the operations of its matrix products, two for each product and sum.

Padding, split inputs and other ways of computing them do not count, so that rates of different versions compare.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import jaxprs_in_params

from ubp2.config.schema import Config
from ubp2.models.heads import value_outputs

__all__ = ["network", "plan", "traced"]


def network(*sizes: int) -> int:
    """Operations of a multilayer perceptron on one row."""
    return 2 * sum(a * b for a, b in itertools.pairwise(sizes))


def plan(config: Config, obs_dim: int, action_dim: int) -> int:
    """Operations of one plan: every sequence through the model, and its end through policy and value, each iteration;
    before that the policy's own sequences."""
    model, planner = config.model, config.planner
    latent = model.space == "latent"
    state = model.latent_dim if latent else obs_dim
    hidden = [model.width] * model.depth
    step = model.dynamics_members * network(state + action_dim, *hidden, state)
    step += model.reward_members * network(state + action_dim, *hidden, 2)
    policy = network(state, *hidden, 2 * action_dim)
    value = model.value_members * network(state + action_dim, *hidden, value_outputs(model.value_head))
    encoder = network(obs_dim, 256, model.latent_dim) if latent else 0
    sequences = planner.iterations * planner.samples * (planner.horizon * step + policy + value)
    return sequences + planner.policy_samples * planner.horizon * (step + policy) + encoder


def traced(function: Callable[..., Any], *shapes: Any) -> int:
    """Operations of the matrix products in a function, as it is traced for arguments of these shapes."""
    return _count(jax.make_jaxpr(function)(*shapes).jaxpr)


def _count(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(shape[axis] for axis in contracted)
            continue
        inner = [_count(getattr(one, "jaxpr", one)) for one in jaxprs_in_params(equation.params)]
        if equation.primitive.name == "cond":  # one of them runs
            total += max(inner)
        else:
            total += equation.params.get("length", 1) * sum(inner) if inner else 0
    return total
