"""What no run can have: every number of a resolved configuration in its range, and values that fit each other."""

from __future__ import annotations

import math
import typing

from ubp2.config.files import leaves
from ubp2.config.schedule import first_session, labels_that_fit
from ubp2.config.schema import LAMBDA_RANGE, NEIGHBOUR, Config, OptimismConfig, TeacherConfig, given
from ubp2.config.sections import LEAST_PIXELS, SUFFIX, VisualConfig, is_visual
from ubp2.config.switching import switched
from ubp2.errors import UserError, unknown_name

__all__ = ["AT_LEAST_ONE", "check", "check_numbers", "notes"]

AT_LEAST_ONE = (
    "steps",
    "planner.horizon",
    "planner.samples",
    "planner.iterations",
    "preferences.every",
    "preferences.per_session",
    "preferences.segment_length",
    "preferences.candidates",
    "preferences.candidate_episodes",
    "preferences.batch_size",
    "model.latent_dim",
    "model.width",
    "model.depth",
    "model.dynamics_members",
    "model.reward_members",
    "model.value_members",
    "evaluation.episodes",
    "evaluation.workers",
    "environment.action_repeat",
    "environment.episode_decisions",
    "training.replay_capacity",
    "training.batch_size",
    "training.horizon",
    "training.update_every",
    "checkpoint.every",
    "sac.epochs",
    "sac.target_every",
    "sac.mrn_every",
    "sac.surf_ratio",
    "visual.pixels",
    "visual.frames",
)
_MOST = 2**31 - 1
_ABOVE_ZERO = (
    "training.learning_rate",
    "training.grad_clip",
    "optimism.learning_rate",
    "sac.alpha",
    "sac.alpha_learning_rate",
    "planner.temperature",
    "planner.min_std",
    "model.obs_floor",
    "model.obs_limit",
)
_AT_LEAST_ZERO = (
    "seed",
    "evaluation.seed",
    "evaluation.every",
    "environment.patience",
    "training.warmup",
    "training.warmup_updates",
    "training.encoder_scale",
    "training.rho",
    "training.consistency_weight",
    "training.reward_weight",
    "training.value_weight",
    "training.entropy",
    "optimism.lambda_reward",
    "optimism.lambda_dynamics",
    "optimism.lambda_value",
    "model.obs_tail",
    "preferences.first",
    "preferences.budget",
    "preferences.imported",
    "preferences.center",
    "preferences.anchor",
    "sac.reset_updates",
    "sac.rune_beta",
    "sac.mrn_weight",
    "sac.surf_weight",
)
_SHARES = (
    "optimism.target_policy_rate",
    "training.value_target_rate",
    "preferences.smoothing",
    "preferences.recent",
    "preferences.stop_accuracy",
    "sac.target_rate",
    "sac.rune_decay",
    "sac.surf_threshold",
)
_RANGES = ("model.reward_log_std", "model.policy_log_std", "sac.log_std")
# Strategies that ask where members differ.
_SEVERAL = ("disagreement", "information-gain", "thompson", "kcenter-disagreement")


def check(config: Config, episode_decisions: int) -> None:
    """Refuse numbers of a resolved configuration that do not fit each other, with the one that would."""
    _check_sizes(config)
    _check_frames(config)
    if not config.ceiling:
        _check_questions(config, episode_decisions)
        _check_candidates(config, episode_decisions)
        _check_budget(config, episode_decisions)


def notes(config: Config) -> list[str]:
    """Return a sentence on each setting that can run and has no effect."""
    config, found = switched(config), []
    optimism, blind = config.optimism, config.model.reward_inputs == "state"
    if config.agent in ("ubp2", "mbp") and blind and optimism.reward and optimism.autotune:
        found.append(
            f"lambda_reward stays at {optimism.lambda_reward:g}: the reward reads the state alone "
            f"(model.reward_inputs), and Eq. 2 compares two policies in the same state, so their reward uncertainty is "
            f"equal"
        )
    return found


def check_numbers(config: Config) -> None:
    """Refuse numbers out of their range, before anything is derived from them; what is left open is None."""
    own = {name: value for name, value in leaves(config) if value is not None}
    for name in (name for name in AT_LEAST_ONE if name in own):
        if not own[name] >= 1:
            raise UserError(
                f"{name} must be at least 1, got {own[name]}; set --{name.replace('_', '-')} to a whole number >= 1"
            )
        if own[name] > _MOST:
            raise UserError(f"{name} must be at most {_MOST:,}, got {own[name]:,}; counters have 32 bits")
    for name in _ABOVE_ZERO:
        if not 0 < own[name] < math.inf:
            raise UserError(f"{name} must be {'finite and ' if own[name] == math.inf else ''}above 0, got {own[name]}")
    for name in (name for name in _AT_LEAST_ZERO if name in own):
        if not 0 <= own[name] < math.inf:
            wanted = "be a finite number" if own[name] == math.inf else "not be negative"
            raise UserError(f"{name} must {wanted}, got {own[name]}")
    if own["seed"] >= 2**32:
        raise UserError(f"seed must be below {2**32:,}, got {own['seed']:,}: random keys have 32 bits of it")
    for name in (name for name in _SHARES if name in own):
        if not 0 <= own[name] <= 1:
            raise UserError(f"{name} is a share and must lie in [0, 1], got {own[name]}")
    for name in _RANGES:
        low, high = own[name]
        if not -math.inf < low < high < math.inf:
            raise UserError(f"{name} goes from the smaller to the larger number, got {low:g} and {high:g}")
    if not 0 < own.get("training.discount", 1) <= 1:
        raise UserError(f"training.discount must lie in (0, 1], got {own['training.discount']}")
    if not math.isfinite(own["evaluation.bonus"]):
        raise UserError(f"evaluation.bonus must be a finite number, got {own['evaluation.bonus']}")
    _check_coefficients(config.optimism)
    _check_teacher(config.teacher)


def _check_coefficients(optimism: OptimismConfig) -> None:
    """Refuse a coefficient that tuning would change at once, because it lies where none is tuned to."""
    low, high = LAMBDA_RANGE
    for bonus in ("reward", "dynamics", "value"):
        start = getattr(optimism, f"lambda_{bonus}")
        if optimism.autotune and getattr(optimism, bonus) and not low <= start <= high:
            raise UserError(
                f"optimism.lambda_{bonus} is tuned between {low:g} and {high:g}, got {start:g} to start from; fix it "
                f"with --optimism.no-autotune, or leave the bonus out with --optimism.no-{bonus}"
            )


def _check_teacher(teacher: TeacherConfig) -> None:
    """Refuse traits that no teacher has; what is left open (None) is what the name says."""
    named = typing.get_args(typing.get_type_hints(TeacherConfig)["name"])
    if teacher.name not in named:
        raise unknown_name("teacher", teacher.name, named)
    beta, gamma = teacher.beta, teacher.gamma
    if beta is not None and not beta > 0:
        raise UserError(
            f"teacher.beta must be above 0, got {beta}; for a teacher without noise (B-Pref's -1) leave it out, "
            f"or set --teacher.beta inf"
        )
    if gamma is not None and not 0 < gamma <= 1:
        raise UserError(f"teacher.gamma must lie in (0, 1], got {gamma}; set --teacher.gamma 1 for a full memory")
    if not 0 <= teacher.port <= 65535:
        raise UserError(f"teacher.port lies between 0 and 65535, got {teacher.port}; 0 takes any that is free")
    if not teacher.patience >= 0:
        raise UserError(f"teacher.patience is a time in seconds and must not be negative, got {teacher.patience}")
    for name in ("mistake", "skip", "equal"):
        share = getattr(teacher, name)
        if share is not None and not 0 <= share <= 1:
            raise UserError(
                f"teacher.{name} is a share and must lie in [0, 1], got {share}; B-Pref has --teacher.{name} 0.1"
            )


def _check_sizes(config: Config) -> None:
    """Refuse values of agent, planner and training that do not fit each other."""
    planner, training = config.planner, config.training
    if config.agent == "sac" and not config.ceiling:
        raise UserError(
            "agent sac learns from the true reward: add --ceiling, or use --agent pebble to learn from labels"
        )
    if config.sac.neighbours <= NEIGHBOUR:
        raise UserError(
            f"sac.neighbours must be at least {NEIGHBOUR + 1}, got {config.sac.neighbours}: novelty is the distance to "
            f"the {NEIGHBOUR}th nearest of them, and a state itself does not count"
        )
    if not config.evaluation.controllers:
        raise UserError("evaluation.controllers is empty; name policy, planner or both")
    if config.model.space == "latent" and config.model.latent_dim % 8:
        raise UserError(f"model.latent_dim must be a multiple of 8 (SimNorm groups), got {config.model.latent_dim}")
    if not planner.min_std <= planner.max_std < math.inf:
        raise UserError(
            f"planner.max_std must be at least planner.min_std ({planner.min_std:g}), got {planner.max_std:g}"
        )
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
    if given(training.warmup) >= config.steps:
        raise UserError(
            f"training.warmup is {training.warmup} random decisions but the run has only {config.steps}; "
            f"raise --steps or lower training.warmup"
        )


def _check_frames(config: Config) -> None:
    """Refuse settings of frames where there are none, and of an encoder that does not heed them."""
    visual = config.visual
    if not is_visual(config.env):
        changed = [f"visual.{name}" for name, value in vars(VisualConfig()).items() if getattr(visual, name) != value]
        if changed:
            suite, slash, task = config.env.partition("/")
            raise UserError(
                f"{config.env} is known by its own observations, so {', '.join(changed)} would change nothing; leave "
                f"it out, or learn from frames with --env {suite}{SUFFIX}{slash}{task}"
            )
        return
    name, weights = visual.encoder, visual.weights
    if weights is not None and (name == "random-conv" or ":" in name):
        raise UserError(f"the encoder {name} takes no weights, got visual.weights {weights}; leave them out")
    if name == "conv" and weights is not None and weights.startswith("hub:"):
        raise UserError(
            f"the Hub has weights of DINOv2 and none of conv, got visual.weights {weights}; use --visual.encoder "
            f"dinov2-small, or leave out the weights, and conv is trained on the environment's own frames"
        )
    if name in ("conv", "random-conv") and visual.pixels < LEAST_PIXELS:
        raise UserError(
            f"visual.pixels must be at least {LEAST_PIXELS} for a convolutional encoder, got {visual.pixels}"
        )


def _check_questions(config: Config, episode_decisions: int) -> None:
    """Refuse segments that no episode has."""
    prefs = config.preferences
    needed = prefs.segment_length + (prefs.compat == "bpref-code")
    if needed > episode_decisions:
        one_more = f" and preferences.compat {prefs.compat} needs one more" if needed > prefs.segment_length else ""
        raise UserError(
            f"preferences.segment_length is {prefs.segment_length}{one_more}, but an episode of {config.env} has "
            f"{episode_decisions} decisions; lower --preferences.segment-length"
        )
    if needed == episode_decisions and prefs.candidates_from == "recent" and prefs.candidate_episodes == 1:
        raise UserError(
            f"the newest episode alone has one segment of {prefs.segment_length} decisions, and nothing to compare it "
            f"with; raise --preferences.candidate-episodes or lower --preferences.segment-length"
        )
    if prefs.crop is not None and not 1 <= prefs.crop <= prefs.segment_length:
        raise UserError(
            f"preferences.crop must lie between 1 and preferences.segment_length ({prefs.segment_length}), "
            f"got {prefs.crop}"
        )


def _check_budget(config: Config, episode_decisions: int) -> None:
    """Refuse a run without a label, unless it has labels of other runs to learn from."""
    prefs = config.preferences
    if prefs.imported:
        return
    fit = labels_that_fit(prefs, config.steps, episode_decisions)
    if fit == 0:
        raise UserError(
            f"no label fits: the first session comes at the end of an episode ({episode_decisions} decisions) after "
            f"decision {first_session(prefs)}, and the run has only {config.steps}; "
            f"raise --steps or lower --preferences.{'every' if prefs.first is None else 'first'}"
        )
    if given(prefs.budget) < 1:
        raise UserError(
            f"the label budget is {prefs.budget}, and without a label there is nothing to learn; "
            f"set --preferences.budget to between 1 and {fit}"
        )


def _check_candidates(config: Config, episode_decisions: int) -> None:
    """Refuse a strategy or a source of candidates that cannot mean what it says."""
    prefs = config.preferences
    source, episodes = prefs.candidates_from, prefs.candidate_episodes
    if prefs.strategy in _SEVERAL and config.model.reward_members < 2:
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
    if source == "local" and episodes == 1 and 2 * prefs.segment_length > episode_decisions:
        raise UserError(
            f"two segments of {prefs.segment_length} decisions do not fit side by side into one episode of "
            f"{episode_decisions}; raise --preferences.candidate-episodes or lower --preferences.segment-length"
        )
