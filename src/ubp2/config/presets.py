"""Named configurations: `paper` (the appendix tables), `best` (what learns fastest, on a GPU), `cpu`, `demo`, `pebble`.

A preset is a function of the environment id, because the paper's tables differ by task. Presets are plain objects:
what a preset sets stands in its function and nowhere else, everything else is the default of `ubp2.config.schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ubp2.config.schema import (
    CheckpointConfig,
    Config,
    EvaluationConfig,
    ModelConfig,
    OptimismConfig,
    PlannerConfig,
    PreferenceConfig,
    SacConfig,
    TrainingConfig,
)
from ubp2.errors import UserError, did_you_mean, unknown_name

__all__ = ["DEFAULT_ENV", "DEFAULT_PRESET", "PAPER_TASKS", "PRESETS", "PaperTask", "preset"]

DEFAULT_PRESET = "cpu"
DEFAULT_ENV = "toy/reach"


class PaperTask(NamedTuple):
    """One column of the two tables in the paper's appendix; rows that are equal in all columns stand in `_paper`."""

    seeds: int
    per_session: int  # num_pref_per_addition, K
    budget: int  # max_pref_feedback, N_pref
    reward_batch: int  # reward_batch_size
    horizon: int  # planner horizon, H


PAPER_TASKS: Mapping[str, PaperTask] = MappingProxyType(
    {
        "metaworld/door-close": PaperTask(seeds=10, per_session=12, budget=500, reward_batch=50, horizon=7),
        "metaworld/window-close": PaperTask(seeds=10, per_session=12, budget=500, reward_batch=50, horizon=7),
        "metaworld/handle-press": PaperTask(seeds=10, per_session=12, budget=1000, reward_batch=50, horizon=7),
        "metaworld/coffee-button": PaperTask(seeds=10, per_session=25, budget=1000, reward_batch=50, horizon=11),
        "metaworld/faucet-open": PaperTask(seeds=15, per_session=12, budget=2000, reward_batch=50, horizon=7),
        "metaworld/door-open": PaperTask(seeds=15, per_session=12, budget=2000, reward_batch=50, horizon=11),
        "metaworld/door-unlock": PaperTask(seeds=10, per_session=12, budget=2500, reward_batch=50, horizon=11),
        "metaworld/sweep-into": PaperTask(seeds=10, per_session=25, budget=5000, reward_batch=100, horizon=7),
        "metaworld/drawer-open": PaperTask(seeds=10, per_session=25, budget=5000, reward_batch=100, horizon=7),
        "metaworld/hammer": PaperTask(seeds=15, per_session=50, budget=10_000, reward_batch=200, horizon=7),
    }
)


def _networks(width: int, members: int, **reward: Any) -> ModelConfig:
    """Networks of one width, ensembles of one size, and what differs from the defaults about the reward."""
    return ModelConfig(width=width, dynamics_members=members, reward_members=members, value_members=members, **reward)


def _paper(env: str) -> Config:
    """The paper's experiment on one of its ten tasks.

    Printed in the appendix: the task's column, segments of 10, a session every 2500 decisions, 512 samples, 64 elites,
    24 policy trajectories, 6 iterations, CEM. `reward_train_horizon` (10 everywhere) is the segment length: the reward
    is fitted on whole segments. Not printed: sizes and rates, which are TD-MPC2's. Our aids against a saturating
    reward (`stop_accuracy`, `center`) are off, and the Bradley-Terry loss reads the reward's mean.
    """
    if env not in PAPER_TASKS:
        names = [name.removeprefix("metaworld/") for name in PAPER_TASKS]  # a shared prefix would make all look alike
        nearest = did_you_mean(env.removeprefix("metaworld/"), names)
        raise UserError(
            f"the paper preset knows the paper's ten tasks and not '{env}'.{nearest} "
            f"The ten: {', '.join(PAPER_TASKS)}; for any other environment use --preset cpu"
        )
    task = PAPER_TASKS[env]
    return Config(
        env=env,
        steps=1_000_000,
        model=_networks(512, 5, reward_head="tanh", reward_units="raw", reward_log_std=(-4.0, 1.0)),
        optimism=OptimismConfig(lambda_dynamics=1.0),
        planner=PlannerConfig(
            optimizer="cem", horizon=task.horizon, samples=512, elites=64, policy_samples=24, iterations=6
        ),
        preferences=PreferenceConfig(
            strategy="optimistic",
            segment_length=10,
            per_session=task.per_session,
            every=2500,
            budget=task.budget,
            batch_size=task.reward_batch,
            stop_accuracy=None,
            center=0.0,
        ),
        training=TrainingConfig(batch_size=256),
        evaluation=EvaluationConfig(every=10_000, episodes=10),
    )


def _best(env: str) -> Config:
    """What learns fastest in our hands, on any environment, at sizes for a GPU.

    Labels come early and often, within the paper's budget where the environment is one of its tasks, and half of them
    compare what may be best. The reward reads the state alone, because planners exploit one of actions
    (docs/reward-learning.md).
    """
    task = PAPER_TASKS.get(env)
    return Config(
        env=env,
        steps=100_000,
        model=_networks(256, 5, reward_inputs="state"),
        planner=PlannerConfig(horizon=7, samples=256, elites=32, policy_samples=24, iterations=4),
        preferences=PreferenceConfig(
            strategy="promising", per_session=20, every=500, budget=None if task is None else task.budget
        ),
        training=TrainingConfig(batch_size=256),
        evaluation=EvaluationConfig(every=10_000, episodes=10),
    )


def _cpu(env: str) -> Config:
    """Small networks and plans for two CPU cores, on any environment; else as `best`, but with random pairs."""
    return Config(
        env=env,
        steps=20_000,
        model=_networks(96, 3, reward_inputs="state"),
        planner=PlannerConfig(horizon=3, samples=128, elites=16, policy_samples=8, iterations=3),
        preferences=PreferenceConfig(per_session=20, every=500, candidates=1000),
        training=TrainingConfig(batch_size=128),
        evaluation=EvaluationConfig(every=2500, episodes=5),
        checkpoint=CheckpointConfig(every=2500),
    )


def _demo(env: str) -> Config:
    """Learning from comparisons in minutes: the recipe of `best` with tiny networks, and a curve of many points.

    Networks of 32 units generalise from 300 labels to goals that had none; wider ones put the best place beside the
    ring (docs/reward-learning.md).
    """
    return Config(
        env=env,
        steps=6000,
        model=_networks(32, 3, reward_inputs="state"),
        optimism=OptimismConfig(lambda_dynamics=1.0),
        planner=PlannerConfig(horizon=3, samples=64, elites=8, policy_samples=8, iterations=2),
        preferences=PreferenceConfig(
            strategy="promising", per_session=20, every=250, budget=300, candidates=1000, batch_size=32
        ),
        training=TrainingConfig(batch_size=64, warmup=500, learning_rate=1e-3),
        evaluation=EvaluationConfig(every=500, episodes=10),
        checkpoint=CheckpointConfig(every=1000),
    )


def _pebble(env: str) -> Config:
    """PEBBLE as published for Meta-World, with two simulator steps a decision; for rune, mrn, surf and sac as well.

    Published, in simulator steps: 1000 random ones, novelty up to 10,000, a session every 5000, segments of 50 from the
    newest 100 episodes of 500, a discount of 0.99. Labels and budget are those of the paper's tasks.
    """
    task = PAPER_TASKS.get(env)
    per_session = 50 if task is None else task.per_session
    return Config(
        env=env,
        agent="pebble",
        steps=500_000,
        model=ModelConfig(width=256, depth=3, reward_members=3),
        preferences=PreferenceConfig(
            strategy="disagreement",
            segment_length=25,
            per_session=per_session,
            every=2500,
            first=5000,
            budget=None if task is None else task.budget,
            candidates=10 * per_session,
            candidates_from="recent",
            candidate_episodes=250,
            batch_size=128,
        ),
        training=TrainingConfig(batch_size=512, warmup=500, discount=0.98),
        sac=SacConfig(rune_decay=2e-5, mrn_every=2500),
        evaluation=EvaluationConfig(every=10_000, episodes=10),
    )


PRESETS: Mapping[str, Callable[[str], Config]] = MappingProxyType(
    {"best": _best, "cpu": _cpu, "demo": _demo, "paper": _paper, "pebble": _pebble}
)


def preset(name: str = DEFAULT_PRESET, env: str = DEFAULT_ENV, **settings: Any) -> Config:
    """Return a named configuration: `preset("cpu", "gym/Pendulum-v1", steps=4000, planner={"horizon": 5})`.

    Args:
        name: cpu (two cores; the default), best (a GPU), demo (minutes), paper (the ten tasks of the paper) or pebble.
        env: The id of the environment (`ubp2 envs` lists them), or a name for one that `ubp2.train` gets as a function;
            toy/reach unless given.
        settings: What is to be different, as in a YAML file; those of a section as a dictionary.
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    if not settings:
        return PRESETS[name](env)
    from ubp2.config.files import from_dict  # brings YAML, which `import ubp2` does without

    return from_dict(settings, PRESETS[name](env), own_names=True)
