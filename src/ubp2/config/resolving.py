"""From a configuration to one that can run: fill in what depends on other values, refuse what cannot work."""

from __future__ import annotations

import dataclasses

from ubp2.config import own
from ubp2.config.checking import check, check_numbers
from ubp2.config.schedule import labels_that_fit
from ubp2.config.schema import Config
from ubp2.config.switching import switched

__all__ = ["MODEL_FREE", "is_model_free", "resolve"]

# Agents that act with their policy from the start; `agents.registry.register` may add some.
MODEL_FREE = {"sac", "pebble", "rune", "mrn", "surf"}

EPISODES = {"recent": 100, "local": 5}  # preferences.candidate_episodes where it is left open; 100 as in B-Pref


def is_model_free(agent: str) -> bool:
    """Whether an agent acts with its policy from the start; one that is `module:function` says so by an attribute."""
    if agent in MODEL_FREE or not own.is_named(agent):
        return agent in MODEL_FREE
    return bool(getattr(own.function("agent", agent), "model_free", False))


def resolve(config: Config, episode_decisions: int) -> Config:
    """Fill in every None and check what can be checked, given the episode length of the environment."""
    config = switched(config)
    check_numbers(config)
    steps = config.steps
    training = config.training
    model_free = is_model_free(config.agent)
    if model_free:  # there is nothing to plan with
        config = dataclasses.replace(config, evaluation=dataclasses.replace(config.evaluation, controllers=("policy",)))
    warmup = max(1000, 5 * episode_decisions) if training.warmup is None else training.warmup
    ratio = episode_decisions / 5
    training = dataclasses.replace(
        training,
        horizon=(1 if model_free else config.planner.horizon) if training.horizon is None else training.horizon,
        warmup=warmup,
        warmup_updates=(1 if model_free else warmup) if training.warmup_updates is None else training.warmup_updates,
        discount=min(max((ratio - 1) / ratio, 0.95), 0.995) if training.discount is None else training.discount,
        replay_capacity=min(steps, 1_000_000) if training.replay_capacity is None else training.replay_capacity,
    )
    preferences = config.preferences
    if preferences.first is None and model_free:  # until then they seek novelty, which a warm-up leaves no time for
        preferences = dataclasses.replace(preferences, first=max(preferences.every, 2 * warmup))
    if preferences.budget is None:
        preferences = dataclasses.replace(
            preferences, budget=labels_that_fit(preferences, steps * 2 // 3, episode_decisions)
        )
    if config.agent == "surf" and preferences.crop is None:
        preferences = dataclasses.replace(preferences, crop=-(-9 * preferences.segment_length // 10))
    if preferences.candidate_episodes is None and preferences.candidates_from in EPISODES:
        preferences = dataclasses.replace(preferences, candidate_episodes=EPISODES[preferences.candidates_from])
    config = dataclasses.replace(config, training=training, preferences=preferences)
    check(config, episode_decisions)
    return config
