"""UBP2: optimistic planning over ensembles of dynamics, reward and value, learned from comparisons."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array

from ubp2.agents import reward as reward_
from ubp2.agents.base import Action, Agent, Reflex, without_plan
from ubp2.agents.learning import State, coefficients, make_optimizers, update
from ubp2.config.schema import LAMBDA_RANGE, Config
from ubp2.models import normalizer, world_model
from ubp2.planning.planner import Steering, plan
from ubp2.types import Segments

__all__ = ["act_by_plan", "act_by_policy", "init", "make_agent", "predict_reward", "segment_returns"]


def init(config: Config, obs_dim: int, action_dim: int, key: Array) -> State:
    """Fresh parameters; targets start equal to what they follow."""
    model, policy = world_model.init(config.model, obs_dim, action_dim, key)
    optimism = config.optimism
    initial = jnp.array([optimism.lambda_reward, optimism.lambda_dynamics, optimism.lambda_value])
    log_lambda = jnp.log(jnp.maximum(initial, LAMBDA_RANGE[0]))
    optimizers = make_optimizers(config)
    units = jnp.tile(jnp.array([0.0, 1.0]), (config.model.reward_members, 1))
    relative = config.model.reward_units == "replay" and not config.ceiling  # a true reward has its level and scale
    return State(
        model=model,
        policy=policy,
        target_value=jax.tree.map(jnp.copy, model.value),  # copies: the update donates its buffers
        target_policy=jax.tree.map(jnp.copy, policy),
        log_lambda=log_lambda,
        value_scale=jnp.ones(()),
        reward_units=units if relative else None,
        reward_anchor=jax.tree.map(jnp.copy, model.reward) if reward_.is_anchored(config) else None,
        stats=normalizer.init(obs_dim),
        model_optimizer=optimizers.model.init(cast(Any, model)),
        policy_optimizer=optimizers.policy.init(cast(Any, policy)),
        lambda_optimizer=optimizers.log_lambda.init(log_lambda),
    )


def act_by_plan(config: Config, state: State, carry: Array, obs: Array, explore: Array, key: Array) -> Action:
    """Solve Eq. 1 from the observation [D]; without exploration bonuses count as `evaluation.bonus` says."""
    z = world_model.encode(config.model, state.model, state.stats, obs)
    weight = jnp.where(explore > 0, explore, config.evaluation.bonus)
    steering = Steering(weight * coefficients(config, state.log_lambda), explore, state.reward_units)
    decision = plan(config, state.model, state.policy, z, carry, steering, key)
    return Action(decision.action, decision.following, decision.scores, decision.broken)


def act_by_policy(config: Config, state: State, carry: Array, obs: Array, explore: Array, key: Array) -> Action:
    """Sample the policy, or take its mode without exploration."""
    z = world_model.encode(config.model, state.model, state.stats, obs)
    action, _ = world_model.policy(config.model, state.policy, z, key, scale=explore)
    return without_plan(action, carry)


def segment_returns(config: Config, state: State, segments: Segments) -> Array:
    """Summed mean reward of every member over each segment: [E, N]."""
    z = world_model.encode(config.model, state.model, state.stats, segments.obs)
    mean, _ = world_model.reward(config.model, state.model, z, segments.action)
    return jnp.sum(mean, axis=-1)


def predict_reward(config: Config, state: State, obs: Array, action: Array) -> Array:
    """Mean reward over members at observations [N, D] and actions [N, A]: [N]."""
    z = world_model.encode(config.model, state.model, state.stats, obs)
    mean, _ = world_model.reward(config.model, state.model, z, action)
    return jnp.mean(world_model.in_units(state.reward_units, mean), axis=0)


def make_agent(config: Config, obs_dim: int, action_dim: int) -> Agent:
    """The functions above with a resolved config and the environment's sizes filled in."""
    return Agent(
        init=partial(init, config, obs_dim, action_dim),
        seen=lambda state: state.stats,
        observe=normalizer.observe,
        with_seen=lambda state, stats: state._replace(stats=stats),
        carry=lambda: jnp.zeros((config.planner.horizon, action_dim)),
        plan=partial(act_by_plan, config),
        react=partial(act_by_policy, config),
        update=partial(update, config),
        segment_returns=partial(segment_returns, config),
        predict_reward=partial(predict_reward, config),
        reflex=lambda state: Reflex(state.stats, state.policy, state.model.encoder),
    )
