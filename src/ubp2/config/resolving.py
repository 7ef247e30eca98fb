"""From a configuration to one that can run: fill in what depends on other values, refuse what cannot work."""

from __future__ import annotations

import dataclasses

from ubp2.config.schema import NEIGHBOUR, Config, PreferenceConfig, TeacherConfig, given
from ubp2.errors import UserError

__all__ = ["MODEL_FREE", "first_session", "labels_that_fit", "resolve", "sessions_due"]

# Agents that act with their policy from the start; `agents.registry.register` may add some.
MODEL_FREE = {"sac", "pebble", "rune", "mrn", "surf"}

EPISODES = {"recent": 100, "local": 5}  # preferences.candidate_episodes where it is left open; 100 as in B-Pref
# Strategies that ask where members differ.
SEVERAL = ("disagreement", "information-gain", "thompson", "kcenter-disagreement")


def labels_that_fit(preferences: PreferenceConfig, steps: int, episode_decisions: int) -> int:
    """Labels that the schedule can ask within `steps` decisions: sessions stand at ends of episodes, one at most."""
    episodes = steps // episode_decisions
    first = first_session(preferences)
    possible = episodes - max(-(-first // episode_decisions), 1) + 1  # ends of episodes from the first session on
    return max(min(sessions_due(preferences, episodes * episode_decisions), possible), 0) * preferences.per_session


def first_session(preferences: PreferenceConfig) -> int:
    """The decision before which the schedule has no session."""
    return preferences.every if preferences.first is None else preferences.first


def sessions_due(preferences: PreferenceConfig, decision: int) -> int:
    """Sessions that the schedule has up to this decision."""
    first = first_session(preferences)
    return 0 if decision < first else 1 + (decision - first) // preferences.every


def resolve(config: Config, episode_decisions: int) -> Config:
    """Fill in every None and check what can be checked, given the episode length of the environment."""
    config = _switched(config)
    steps = config.steps
    training = config.training
    model_free = config.agent in MODEL_FREE
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
    _check(config, episode_decisions)
    return config


def _switched(config: Config) -> Config:
    """What an ablation, or the agent `mbp`, switches on and off. Resolving twice changes nothing."""
    switches = "0000" if config.agent == "mbp" else config.ablation
    if switches is None:
        return config
    if config.agent == "mbp" and config.ablation not in (None, "0000"):
        raise UserError(f"agent mbp is ablation 0000, got {config.ablation}; for others use --agent ubp2")
    if config.agent not in ("ubp2", "mbp"):
        raise UserError(f"ablation is of ubp2, got --agent {config.agent}; leave it out, or use --agent ubp2")
    if len(switches) != 4 or set(switches) - set("01"):
        raise UserError(
            f"ablation must be four of 0 and 1 (reward, dynamics, value bonus, optimistic queries), got '{switches}'; "
            f"1111 is all of ubp2"
        )
    reward, dynamics, value, queries = (switch == "1" for switch in switches)
    return dataclasses.replace(
        config,
        optimism=dataclasses.replace(config.optimism, reward=reward, dynamics=dynamics, value=value),
        preferences=dataclasses.replace(config.preferences, strategy="optimistic" if queries else "uniform"),
    )


def _check_numbers(config: Config) -> None:
    """Refuse real numbers out of their range."""
    training, optimism = config.training, config.optimism
    above_zero = {
        "training.learning_rate": training.learning_rate,
        "training.grad_clip": training.grad_clip,
        "optimism.learning_rate": optimism.learning_rate,
        "sac.alpha": config.sac.alpha,
        "sac.alpha_learning_rate": config.sac.alpha_learning_rate,
        "planner.temperature": config.planner.temperature,
        "planner.min_std": config.planner.min_std,
    }
    for name, number in above_zero.items():
        if not number > 0:
            raise UserError(f"{name} must be above 0, got {number}")
    at_least_zero = {
        "seed": config.seed,
        "evaluation.seed": config.evaluation.seed,
        "evaluation.every": config.evaluation.every,
        "training.warmup": given(training.warmup),
        "preferences.first": config.preferences.first or 0,
        "training.warmup_updates": given(training.warmup_updates),
        "optimism.lambda_reward": optimism.lambda_reward,
        "optimism.lambda_dynamics": optimism.lambda_dynamics,
        "optimism.lambda_value": optimism.lambda_value,
        "preferences.imported": config.preferences.imported,
        "preferences.center": config.preferences.center,
        "preferences.anchor": config.preferences.anchor,
        "sac.reset_updates": config.sac.reset_updates,
        "sac.rune_beta": config.sac.rune_beta,
        "sac.mrn_weight": config.sac.mrn_weight,
        "sac.surf_weight": config.sac.surf_weight,
    }
    for name, number in at_least_zero.items():
        if not number >= 0:
            raise UserError(f"{name} must not be negative, got {number}")
    for name, share in {
        "preferences.smoothing": config.preferences.smoothing,
        "preferences.recent": config.preferences.recent,
        "sac.target_rate": config.sac.target_rate,
        "sac.rune_decay": config.sac.rune_decay,
        "sac.surf_threshold": config.sac.surf_threshold,
    }.items():
        if not 0 <= share <= 1:
            raise UserError(f"{name} is a share and must lie in [0, 1], got {share}")
    if not 0 < given(training.discount) <= 1:
        raise UserError(f"training.discount must lie in (0, 1], got {training.discount}")
    _check_teacher(config.teacher)


def _check_teacher(teacher: TeacherConfig) -> None:
    """Refuse traits that no teacher has; what is left open (None) is what the name says."""
    beta, gamma = teacher.beta, teacher.gamma
    if beta is not None and not beta > 0:
        raise UserError(
            f"teacher.beta must be above 0, got {beta}; for a teacher without noise (B-Pref's -1) leave it out, "
            f"or set --teacher.beta inf"
        )
    if gamma is not None and not 0 < gamma <= 1:
        raise UserError(f"teacher.gamma must lie in (0, 1], got {gamma}; set --teacher.gamma 1 for a full memory")
    if not teacher.patience >= 0:
        raise UserError(f"teacher.patience is a time in seconds and must not be negative, got {teacher.patience}")
    for name in ("mistake", "skip", "equal"):
        share = getattr(teacher, name)
        if share is not None and not 0 <= share <= 1:
            raise UserError(
                f"teacher.{name} is a share and must lie in [0, 1], got {share}; B-Pref has --teacher.{name} 0.1"
            )


def _check(config: Config, episode_decisions: int) -> None:
    """Refuse what cannot run, with the number that would."""
    prefs, planner, training = config.preferences, config.planner, config.training
    assert prefs.budget is not None and training.warmup is not None and training.horizon is not None
    positive = {
        "steps": config.steps,
        "planner.horizon": planner.horizon,
        "planner.samples": planner.samples,
        "planner.iterations": planner.iterations,
        "preferences.every": prefs.every,
        "preferences.per_session": prefs.per_session,
        "preferences.segment_length": prefs.segment_length,
        "preferences.candidates": prefs.candidates,
        "preferences.batch_size": prefs.batch_size,
        "model.width": config.model.width,
        "model.depth": config.model.depth,
        "model.dynamics_members": config.model.dynamics_members,
        "model.reward_members": config.model.reward_members,
        "model.value_members": config.model.value_members,
        "evaluation.episodes": config.evaluation.episodes,
        "evaluation.workers": config.evaluation.workers,
        "training.replay_capacity": given(training.replay_capacity),
        "training.batch_size": training.batch_size,
        "training.horizon": training.horizon,
        "training.update_every": training.update_every,
        "checkpoint.every": config.checkpoint.every,
        "sac.epochs": config.sac.epochs,
        "sac.target_every": config.sac.target_every,
        "sac.mrn_every": config.sac.mrn_every,
        "sac.surf_ratio": config.sac.surf_ratio,
    }
    for name, number in positive.items():
        if number < 1:
            raise UserError(
                f"{name} must be at least 1, got {number}; set --{name.replace('_', '-')} to a whole number >= 1"
            )
    _check_numbers(config)
    if config.agent == "sac" and not config.ceiling:
        raise UserError(
            "agent sac learns from the true reward: add --ceiling, or use --agent pebble to learn from labels"
        )
    if config.sac.neighbours < NEIGHBOUR:
        raise UserError(
            f"sac.neighbours must be at least {NEIGHBOUR}, got {config.sac.neighbours}: novelty is the distance to the "
            f"{NEIGHBOUR}th nearest of them"
        )
    if not config.evaluation.controllers:
        raise UserError("evaluation.controllers is empty; name policy, planner or both")
    if config.model.space == "latent" and config.model.latent_dim % 8:
        raise UserError(f"model.latent_dim must be a multiple of 8 (SimNorm groups), got {config.model.latent_dim}")
    if not 1 <= planner.elites <= planner.samples:
        raise UserError(
            f"planner.elites must lie between 1 and planner.samples ({planner.samples}), got {planner.elites}"
        )
    if not 0 <= planner.policy_samples <= planner.samples:
        raise UserError(
            f"planner.policy_samples must lie between 0 and planner.samples ({planner.samples}), "
            f"got {planner.policy_samples}"
        )
    if config.checkpoint.keep < 2:
        raise UserError(f"checkpoint.keep must be at least 2, got {config.checkpoint.keep}: one could be damaged")
    if training.warmup >= config.steps:
        raise UserError(
            f"training.warmup is {training.warmup} random decisions but the run has only {config.steps}; "
            f"raise --steps or lower --training.warmup"
        )
    if config.ceiling:
        return
    if prefs.segment_length > episode_decisions:
        raise UserError(
            f"preferences.segment_length is {prefs.segment_length} but an episode of {config.env} has "
            f"{episode_decisions} decisions; lower --preferences.segment-length"
        )
    if prefs.crop is not None and not 1 <= prefs.crop <= prefs.segment_length:
        raise UserError(
            f"preferences.crop must lie between 1 and preferences.segment_length ({prefs.segment_length}), "
            f"got {prefs.crop}"
        )
    _check_candidates(config, episode_decisions)
    if prefs.imported:  # then there is something to learn from without a question
        return
    fit = labels_that_fit(prefs, config.steps, episode_decisions)
    if fit == 0:
        raise UserError(
            f"no label fits: the first session comes at the end of an episode ({episode_decisions} decisions) after "
            f"decision {first_session(prefs)}, and the run has only {config.steps}; "
            f"raise --steps or lower --preferences.{'every' if prefs.first is None else 'first'}"
        )
    if prefs.budget < 1:
        raise UserError(
            f"the label budget is {prefs.budget}, and without a label there is nothing to learn; "
            f"set --preferences.budget to between 1 and {fit}"
        )


def _check_candidates(config: Config, episode_decisions: int) -> None:
    """Refuse a strategy or a source of candidates that cannot mean what it says."""
    prefs = config.preferences
    source, episodes = prefs.candidates_from, prefs.candidate_episodes
    if prefs.strategy in SEVERAL and config.model.reward_members < 2:
        raise UserError(
            f"preferences.strategy {prefs.strategy} asks where reward members differ, and there is only one; "
            f"raise --model.reward-members"
        )
    if source == "replay" and episodes is not None:
        raise UserError(
            f"preferences.candidate_episodes is {episodes} but candidates come from the whole replay; "
            f"set --preferences.candidates-from to recent or local, or leave it out"
        )
    if source != "replay" and prefs.recent:
        raise UserError(
            f"preferences.recent mixes new segments into pairs from the whole replay, and preferences.candidates_from "
            f"is {source}; leave one of them out"
        )
    if episodes is not None and episodes < 1:
        raise UserError(f"preferences.candidate_episodes must be at least 1, got {episodes}")
    if source == "local" and episodes == 1 and 2 * prefs.segment_length > episode_decisions:
        raise UserError(
            f"two segments of {prefs.segment_length} decisions do not fit side by side into one episode of "
            f"{episode_decisions}; raise --preferences.candidate-episodes or lower --preferences.segment-length"
        )
