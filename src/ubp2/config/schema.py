"""The configuration of a run: frozen dataclasses, one documented line a field.

This module imports neither jax nor any environment, so that ``ubp2 --help`` and errors in a configuration
are instant. Values that depend on others (``None`` below) are filled in by `ubp2.config.resolving.resolve`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeVar

from ubp2.config.sections import SacConfig, VisualConfig

__all__ = [
    "LAMBDA_RANGE",
    "NEIGHBOUR",
    "CheckpointConfig",
    "Config",
    "EnvironmentConfig",
    "EvaluationConfig",
    "ModelConfig",
    "OptimismConfig",
    "PlannerConfig",
    "PreferenceConfig",
    "SacConfig",
    "TeacherConfig",
    "TrainingConfig",
    "VisualConfig",
    "given",
]


T = TypeVar("T")

LAMBDA_RANGE = (1e-4, 1e2)  # in which coefficients of bonuses are tuned
NEIGHBOUR = 5  # novelty is the distance to the so many-th nearest state


@dataclass(frozen=True)
class EnvironmentConfig:
    """How the environment is presented to the agent."""

    protocol: Literal["ubp2", "bpref"] = "ubp2"
    """Meta-World protocol: ubp2 = goal visible, action repeat 2, 100 decisions; bpref = goal hidden, 500 steps."""
    action_repeat: int | None = None
    """Simulator steps per decision; None: what the protocol or the suite says."""
    episode_decisions: int | None = None
    """Decisions an episode at most; None: what the protocol or the suite says."""
    in_process: bool = False
    """Run the environment inside the training process instead of a worker (for debugging)."""
    patience: float = 600.0
    """Seconds after which a worker without an answer counts as hung and is started anew; 0: never."""


@dataclass(frozen=True)
class ModelConfig:
    """The world model: ensembles of dynamics, reward and value, and a policy."""

    space: Literal["observation", "latent"] = "observation"
    """The state that dynamics predict: the normalised observation, or a latent (TD-MPC2's: LayerNorm, SimNorm)."""
    latent_dim: int = 512
    """Size of the latent; used only in latent space."""
    width: int = 512
    """Units in each hidden layer."""
    depth: int = 2
    """Hidden layers of each network."""
    dynamics_members: int = 5
    """Members of the dynamics ensemble."""
    reward_members: int = 5
    """Members of the reward ensemble."""
    value_members: int = 5
    """Members of the value ensemble."""
    reward_head: Literal["tanh", "linear"] = "linear"
    """Mean of the reward: bounded to [-1, 1], or free."""
    reward_likelihood: Literal["mean", "marginal"] = "mean"
    """Bradley-Terry on the mean of the Gaussian reward, or with its noise integrated out (then bonuses mislead)."""
    reward_log_std: tuple[float, float] = (-2.0, 1.0)
    """Range of the log standard deviation of the Gaussian reward."""
    reward_inputs: Literal["state-action", "state"] = "state-action"
    """What the reward reads; state: it never comes to depend on the action, whatever the labels say."""
    reward_units: Literal["raw", "replay"] = "replay"
    """Rewards in plans, targets and bonus: as they are, or each member's less its mean over its deviation in replay."""
    value_head: Literal["scalar", "twohot"] = "scalar"
    """Value as one number with a squared error (Eq. 5), or as 101 two-hot bins on a symlog scale."""
    policy_log_std: tuple[float, float] = (-10.0, 2.0)
    """Range of the log standard deviation of the policy."""
    obs_floor: float = 0.01
    """Smallest standard deviation by which an observation is divided, in the observation's own units."""
    obs_limit: float = 10.0
    """Standard deviations up to which a normalised observation is linear."""
    obs_tail: float = 1.0
    """Beyond the limit it grows by this factor times log(1 + excess); 0: it stops there."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the factors in products, which add up in float32; auto: bfloat16 on a GPU, float32 elsewhere.
    An NVIDIA GPU rounds factors of float32 to TF32, unless JAX_DEFAULT_MATMUL_PRECISION=highest is set."""


@dataclass(frozen=True)
class PlannerConfig:
    """Model-predictive control over the optimistic objective (Eq. 1)."""

    optimizer: Literal["mppi", "cem"] = "mppi"
    """Refit the action distribution to score-weighted elites (mppi) or to elites of equal weight (cem)."""
    horizon: int = 7
    """Decisions looked ahead, H."""
    samples: int = 512
    """Action sequences drawn per iteration."""
    elites: int = 64
    """Best sequences that refit the distribution."""
    policy_samples: int = 24
    """Sequences that come from rolling out the policy."""
    iterations: int = 6
    """Refits per decision."""
    temperature: float = 0.5
    """Evenness of the weights over elites (mppi): the lower, the more the best sequences count."""
    min_std: float = 0.05
    """Lower bound on the standard deviation of the action distribution."""
    max_std: float = 2.0
    """Upper bound, and the starting value."""


@dataclass(frozen=True)
class OptimismConfig:
    """The three uncertainty bonuses of Eq. 1 and their coefficients (Eq. 2)."""

    reward: bool = True
    """Add the reward ensemble's uncertainty (Jensen-Renyi divergence)."""
    dynamics: bool = True
    """Add the dynamics ensemble's disagreement."""
    value: bool = True
    """Add the value ensemble's disagreement at the end of the horizon."""
    autotune: bool = True
    """Tune each coefficient online (Eq. 2), between 1e-4 and 100; otherwise they stay at their initial values."""
    lambda_reward: float = 1.0
    """Initial (or fixed) coefficient of the reward bonus."""
    lambda_dynamics: float = 5.0
    """Initial (or fixed) coefficient of the dynamics bonus, which is harder to farm than the others."""
    lambda_value: float = 1.0
    """Initial (or fixed) coefficient of the value bonus."""
    learning_rate: float = 3e-4
    """Adam step size on log lambda."""
    target_policy_rate: float = 0.005
    """Polyak rate of the target policy in Eq. 2."""


@dataclass(frozen=True)
class PreferenceConfig:
    """When, what and how many comparisons are asked, and how the reward is fitted to the answers."""

    strategy: Literal[
        "optimistic",
        "promising",
        "uniform",
        "disagreement",
        "entropy",
        "information-gain",
        "thompson",
        "kcenter",
        "kcenter-disagreement",
        "kcenter-entropy",
    ] = "uniform"
    """Which of the candidate pairs are asked; optimistic = Algorithm 2, uniform = any; or module:function, your own."""
    segment_length: int = 10
    """Decisions in a segment, L."""
    per_session: int = 12
    """Pairs asked in a session, K."""
    every: int = 2500
    """Decisions between sessions, F_pref; a session waits for the end of the episode."""
    first: int | None = None
    """Decisions before the first session; None: as between sessions, for pebble and its like at least two warm-ups."""
    budget: int | None = None
    """Labels asked, N_pref, skipped pairs not counted; None: what fits into the first two thirds of the run."""
    imported: int = 0
    """Labels of other runs that are there from the first decision; --labels FILE counts them."""
    candidates: int = 2000
    """Pairs that the strategy chooses from in a session (at least per_session)."""
    candidates_from: Literal["replay", "recent", "local"] = "replay"
    """Where a pair's segments come from: the whole replay, the newest episodes, or a batch of consecutive episodes."""
    candidate_episodes: int | None = None
    """How many those are; None: 100 newest episodes (recent), or batches of 5 (local)."""
    recent: float = 0.0
    """Share of the candidates from the whole replay whose first segment begins in the newest `every` frames."""
    batch_size: int = 50
    """Pairs in a minibatch of the reward's fit."""
    stop_accuracy: float | None = 0.97
    """A member skips a minibatch that it already answers this well (None: never skips)."""
    center: float = 0.05
    """Weight of the squared mean of the predicted reward, which the comparisons leave free."""
    smoothing: float = 0.0
    """Share of answers taken to be coin flips: a label of 1 counts as 1 - smoothing/2."""
    anchor: float = 0.0
    """Pull of each reward member towards where it started, which keeps members apart where no label speaks."""
    bootstrap: bool = False
    """Each reward member learns from its own half of the labels."""
    crop: int | None = None
    """Shortest stretch of a labelled segment that a minibatch may use instead; None: all of it (surf: nine tenths)."""
    compat: Literal["none", "bpref-code"] = "none"
    """none: a segment may end with its episode; bpref-code: never, as in the published code (a range one short)."""


@dataclass(frozen=True)
class TeacherConfig:
    """Who answers: a scripted teacher of B-Pref, by name, with any trait changed or added; --teacher noisy."""

    name: Literal["oracle", "noisy", "myopic", "mistake", "skip", "equal", "human"] = "oracle"
    """The traits to begin with, in brackets below (oracle has none); human: a page on which people compare clips."""
    beta: float | None = None
    """Prefer left with probability sigmoid(beta (R_left - R_right)); inf: the larger return, always (noisy: 1)."""
    gamma: float | None = None
    """Remember the reward of k decisions before the last by gamma^k; 1: all alike (myopic: 0.9)."""
    mistake: float | None = None
    """Share of the answers that are turned round (mistake: 0.1)."""
    skip: float | None = None
    """Skip a pair if neither return is above this share of what the agent got of late in a segment (skip: 0.1)."""
    equal: float | None = None
    """Call a pair equal if its returns differ by less than this share of what it got (equal: 0.1)."""
    compat: Literal["none", "bpref-code"] = "none"
    """none: as B-Pref's paper; bpref-code: as its code, which squares skip and equal after the first session."""
    wait: Literal["answers", "go-on", "fallback"] = "answers"
    """human: wait for the answers, go on with those that are there, or ask a scripted teacher after a while."""
    patience: float = 300.0
    """human: seconds until the scripted teacher of teacher.fallback answers what is open (fallback)."""
    fallback: Literal["oracle", "noisy", "myopic", "mistake", "skip", "equal"] = "oracle"
    """human: who answers then."""
    serve: bool = True
    """human: serve the page from the training process; otherwise `ubp2 label RUN` serves it."""
    url: str | None = None
    """human: address of a page on another machine (ubp2 label FOLDER --remote); --teacher http://... for short."""
    host: str = "127.0.0.1"
    """human: address of the page; any but this machine's own gets a token."""
    port: int = 8642
    """human: port of the page; one that is taken is left for the next free one. 0: any."""
    browser: bool = True
    """human: open the page in a browser, where there is one."""
    instruction: str | None = None
    """human: what people are asked to look for; None: a sentence made of the name of the task."""


@dataclass(frozen=True)
class TrainingConfig:
    """Optimisation of the world model and the policy."""

    batch_size: int = 256
    """Sub-sequences a gradient step."""
    horizon: int | None = None
    """Decisions in a sub-sequence, H of Eq. 3-6; None: the planner's horizon, without a planner 1."""
    warmup: int | None = None
    """Random decisions before learning starts; None: max(1000, 5 episodes)."""
    warmup_updates: int | None = None
    """Gradient steps right after the warm-up; None: as many as warm-up decisions, without a planner 1."""
    update_every: int = 1
    """Decisions between gradient steps."""
    learning_rate: float = 3e-4
    """Adam step size."""
    encoder_scale: float = 0.3
    """Factor on the encoder's step size (latent space)."""
    grad_clip: float = 20.0
    """Largest gradient norm of each component."""
    discount: float | None = None
    """Discount per decision; None: clip((T/5 - 1)/(T/5), 0.95, 0.995) for episodes of T decisions."""
    rho: float = 1.0
    """Weight rho^t of step t in the consistency loss (Eq. 3 has 1; TD-MPC2 uses 0.5)."""
    consistency_weight: float = 20.0
    """Weight of Eq. 3: of a sum over coordinates in observation space, of their mean in latent space."""
    reward_weight: float = 0.1
    """Weight of Eq. 4."""
    value_weight: float = 0.1
    """Weight of Eq. 5."""
    entropy: float = 1e-4
    """Weight of the policy's entropy in Eq. 6."""
    value_target_rate: float = 0.01
    """Polyak rate of the target values."""
    replay_capacity: int | None = None
    """Decisions kept in replay if episodes run to their limit (each takes a slot more); None: the run, at most 1e6."""
    replay_type: Literal["auto", "float32", "float16"] = "auto"
    """Type of observations in replay and labels; auto: float16 for visual environments, which need the room."""


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation on environments of its own, with a fixed list of seeds and without any bonus."""

    every: int = 5000
    """Decisions between evaluations (0: only at the end)."""
    episodes: int = 10
    """Episodes an evaluation."""
    controllers: tuple[Literal["policy", "planner"], ...] = ("policy", "planner")
    """What acts in the evaluation."""
    seed: int = 100_000
    """First of the evaluation seeds; the same for every run, so that runs are compared on the same episodes."""
    workers: int = 1
    """Environment processes that evaluation steps side by side."""
    bonus: float = 0.0
    """Factor on the bonuses of plans in evaluation: 0 none, -1 conservative (uncertainty counts as a loss)."""
    video: bool = False
    """Write a clip of the first episode of each evaluation."""


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept so that a killed run goes on."""

    every: int = 5000
    """Decisions between checkpoints."""
    keep: int = 2
    """Checkpoints kept, at least two."""


@dataclass(frozen=True)
class Config:
    """One run. Every section is a flag group: --planner.horizon 11."""

    env: str = "toy/reach"
    """Environment id: toy/reach, metaworld/door-close, dmc/walker-walk, gym/Pendulum-v1; dmc-visual/...: by frames."""
    agent: Literal["ubp2", "mbp", "sac", "pebble", "rune", "mrn", "surf"] = "ubp2"
    """Learning algorithm; mbp = ubp2 without bonuses and with pairs at random, sac = the true reward (--ceiling);
    or module:function, one of your own."""
    ablation: str | None = None
    """Four switches of ubp2, as 1011: reward, dynamics and value bonus, optimistic queries (else pairs at random)."""
    steps: int = 10_000
    """Decisions in the run."""
    seed: int = 0
    """Seed of everything random in the run."""
    ceiling: bool = False
    """RESEARCH UPPER BOUND: give the agent the true reward instead of preferences."""
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    optimism: OptimismConfig = field(default_factory=OptimismConfig)
    preferences: PreferenceConfig = field(default_factory=PreferenceConfig)
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    sac: SacConfig = field(default_factory=SacConfig)
    visual: VisualConfig = field(default_factory=VisualConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)


def given(value: T | None) -> T:
    """A field that `ubp2.config.resolving.resolve` has filled in."""
    if value is None:
        raise ValueError("this config is not resolved: call ubp2.config.resolving.resolve first")
    return value
