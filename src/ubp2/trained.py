"""Trained agents: evaluate the newest checkpoint of a run, or load it as a controller."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from ubp2.agents.base import Agent
from ubp2.agents.registry import make_agent
from ubp2.config.schema import Config
from ubp2.envs.base import EnvSpec, VectorEnv
from ubp2.envs.visual import is_visual
from ubp2.envs.workers import EnvOrder, make_mixed
from ubp2.errors import UserError
from ubp2.evaluation.rollout import filmed, summary
from ubp2.storage import population
from ubp2.storage.runs import Run
from ubp2.training import checkpoint
from ubp2.training.evaluate import controller as make_controller
from ubp2.training.evaluate import reward_correlations
from ubp2.training.member_axis import Layout, Sizes, program_key
from ubp2.training.programs import Programs
from ubp2.training.records import STREAMS, unpacked
from ubp2.training.shared import shared_programs
from ubp2.training.state import check_environment, restore_agent
from ubp2.vision import conv, conv_training
from ubp2.vision.encoders import FILE, Encoder, make_encoder
from ubp2.vision.seeing import Seeing, Stack, seen_spec

__all__ = [
    "Controller",
    "ControllerName",
    "MakeEnv",
    "Trained",
    "environment",
    "evaluate",
    "evaluate_members",
    "load",
    "mean_scores",
    "ready_encoder",
    "require_environment",
    "restored",
    "run_encoder",
    "see",
    "seen",
    "shown",
]

ControllerName = Literal["policy", "planner"]
MakeEnv = Callable[[], Any]  # returns a gymnasium.Env


def mean_scores(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each score over the rows in which it is a number; nan where there is none."""
    found: dict[str, list[float]] = {name: [] for row in rows for name in row}
    for row in rows:
        for name, value in row.items():
            found[name] += [] if math.isnan(value) else [value]
    return {name: float(np.mean(values)) if values else math.nan for name, values in found.items()}


def require_environment(run: Run, env: MakeEnv | None) -> None:
    """A run that was trained with env=... goes on only with it: its `config.env` is a name and no id."""
    if env is None and run.info().get("custom_environment"):
        raise UserError(
            f"{run.folder} was trained on an environment given from Python (env=...); pass the same one to "
            f"ubp2.resume or ubp2.evaluate, the command line cannot build it"
        )


@contextlib.contextmanager
def environment(
    env: MakeEnv | None, configs: Sequence[Config], each: int = 1, stopping: Callable[[], bool] | None = None
) -> Iterator[VectorEnv]:
    """Environments, `each` a run, of the user's function or of the id in its configuration; closed at the end.

    Those of a visual run show frames, of which `seen` makes what an agent is shown. stopping: see `VectorEnv.heed`.
    """
    orders: list[EnvOrder] = []
    for config in configs:
        visual = config.visual if is_visual(config.env) else None
        orders += [EnvOrder(env or config.env, config.environment, visual)] * each
    envs = make_mixed(orders, stopping or (lambda: False))
    try:
        yield envs
    finally:
        envs.close()


def seen(envs: VectorEnv, config: Config, encoder: Encoder | None) -> VectorEnv:
    """What an agent is shown of these environments: features of their frames, where there is an encoder."""
    return envs if encoder is None else Seeing(envs, encoder, config.visual.frames, config.visual.keep_frames)


def ready_encoder(config: Config) -> Encoder | None:
    """The encoder of a run that is about to begin; None: it is not visual, or trains one of its own."""
    own = config.visual.encoder == "conv" and config.visual.weights is None
    return None if own or not is_visual(config.env) else make_encoder(config.visual)


def shown(spec: EnvSpec, config: Config, encoder: Encoder | None) -> EnvSpec:
    """The sizes of what the agent of such a run will be shown; `encoder` is what `ready_encoder` found."""
    if not is_visual(config.env):
        return spec
    return seen_spec(spec, config.visual.frames, conv.FEATURES if encoder is None else encoder.features)


def run_encoder(config: Config, folder: Path, train: Callable[[Path], object] | None = None) -> Encoder | None:
    """The encoder that a visual run began with; None where it is not visual.

    train: makes one at a path, for a run that has not begun yet.
    """
    if not is_visual(config.env):
        return None
    began = Run.open(folder).info().get("encoder")
    encoder = make_encoder(config.visual, folder, None if began else train)
    if began is not None and began["digest"] != encoder.digest:
        raise UserError(
            f"{folder} began with other weights of the encoder {encoder.name} (sha256 {began['digest'][:12]}, and "
            f"visual.weights has {encoder.digest[:12]}); features of two encoders do not mean the same, so point "
            f"--visual.weights to the first, or start a new run"
        )
    return encoder


def see(runs: Sequence[Run], envs: VectorEnv, encoder: Encoder | None, note: Callable[[str], None]) -> VectorEnv:
    """What the agents of runs that begin or go on are shown; each run keeps what it sees with.

    encoder: one that is there already. A run that trains its own does so here, in the folder of the first.
    """
    config, first = runs[0].config, runs[0].folder
    encoder = encoder or run_encoder(config, first, partial(conv_training.train, envs, note=note))
    if encoder is not None:
        for run in runs:
            _keep_encoder(run, encoder, first / FILE)
    return seen(envs, config, encoder)


def _keep_encoder(run: Run, encoder: Encoder, made: Path) -> None:
    """Write down what a visual run sees with, and keep the weights if they were made for it; a kill leaves no half."""
    own = run.folder / FILE
    if made.exists() and not own.exists():
        part = own.with_name(f"{FILE}.part")
        shutil.copyfile(made, part)
        part.replace(own)
    if "encoder" not in run.info():
        run.note({"encoder": {"name": encoder.name, "digest": encoder.digest}})


class Trained(NamedTuple):
    """Agents of runs that share a program, as their newest checkpoints have them."""

    config: Config  # of the first run
    spec: EnvSpec  # of the first run's environment
    specs: list[EnvSpec]
    agent: Agent
    programs: Programs
    state: Any  # with a seed axis
    counters: list[dict[str, Any]]  # of each seed: decision, labels and more


def restored(folders: Sequence[Path], controller: ControllerName) -> Trained:
    """The newest checkpoint of each of these runs, which share a program, to act with a controller."""
    runs = [Run.open(folder) for folder in folders]
    all_saved = [_newest(run) for run in runs]
    specs = [EnvSpec.from_dict(saved.meta["environment"]) for saved in all_saved]
    config, spec = runs[0].config, specs[0]
    agent = make_agent(config, spec.obs_dim, spec.action_dim)
    if controller == "planner" and not agent.plans:
        raise UserError(f"{folders[0]} is a run of {config.agent}, which has no planner; use its policy")
    programs = shared_programs(Layout.of([run.config for run in runs], spec), agent)
    like = jax.eval_shape(agent.init, jax.random.key(0))
    state = restore_agent(all_saved, like)
    return Trained(config, spec, specs, agent, programs, state, [saved.meta for saved in all_saved])


def _newest(run: Run) -> checkpoint.Checkpoint:
    saved = checkpoint.load_latest(run.checkpoints)
    if saved is None:
        raise UserError(f"{run.folder} has no checkpoint yet; let it train to its first one, or resume it")
    return saved


def _together(folders: Sequence[Path]) -> list[list[Path]]:
    """The folders of runs that share a program each."""
    runs = [Run.open(folder) for folder in folders]
    specs = [EnvSpec.from_dict(_newest(run).meta["environment"]) for run in runs]
    keys = [(program_key(run.config), run.config.visual, Sizes.of(spec)) for run, spec in zip(runs, specs, strict=True)]
    unlike = list(dict.fromkeys(keys))
    return [[folder for folder, own in zip(folders, keys, strict=True) if own == key] for key in unlike]


def evaluate(
    run: Path | str,
    *,
    episodes: int = 10,
    controller: ControllerName = "policy",
    seed: int | None = None,
    video: Path | str | None = None,
    env: MakeEnv | None = None,
) -> dict[str, float]:
    """Evaluate the newest checkpoint of a run, without bonus or noise; optionally film the first episode.

    Args:
        run: The run folder. Of several runs the scores are the mean, all evaluated on the same episodes.
        episodes: How many.
        controller: What acts: policy or planner.
        seed: First of the seeds of the episodes; None: the evaluation seeds of the run.
        video: .mp4 or .gif file for a clip of the first episode.
        env: The environment that the run was given from Python, if any.

    Returns:
        Means over the episodes: `return` (of the true reward) and `length` (decisions); where the environment reports
            success, the share of episodes with one at any (`success_any`) and at the last decision (`success_last`);
            and `rank_correlation` of the learned with the true reward (nan where one of them is constant).
    """
    options: dict[str, Any] = {"episodes": episodes, "controller": controller, "seed": seed, "env": env}
    return mean_scores(list(evaluate_members(run, video=video, **options).values()))


def evaluate_members(
    run: Path | str,
    *,
    episodes: int = 10,
    controller: ControllerName = "policy",
    seed: int | None = None,
    video: Path | str | None = None,
    env: MakeEnv | None = None,
) -> dict[str, dict[str, float]]:
    """`evaluate` for each run of a population, by its name in the folder, in lock-step; a run is its only member."""
    folders = population.members(run)
    if video and len(folders) > 1:
        raise UserError(f"a clip shows one run; film a member of {run}, such as {folders[0]}")
    for folder in folders:
        require_environment(Run.open(folder), env)
    first = Run.open(folders[0]).config.evaluation.seed if seed is None else seed
    for name, number, least in (("episodes", episodes, 1), ("seed", first, 0)):
        if number < least:
            raise UserError(f"{name} must be at least {least}, got {number}")
    seeds, scores = range(first, first + episodes), dict[Path, dict[str, float]]()
    for program in _together(folders):
        scores |= _evaluated(program, seeds, controller, env, None if video is None else Path(video))
    root = Path(run)
    return {folder.name if folder == root else str(folder.relative_to(root)): scores[folder] for folder in folders}


def _evaluated(
    folders: Sequence[Path], seeds: range, controller: ControllerName, env: MakeEnv | None, video: Path | None
) -> dict[Path, dict[str, float]]:
    """Scores of runs that share a program."""
    trained, count = restored(folders, controller), len(folders)
    configs = [Run.open(folder).config for folder in folders]
    config = configs[0]
    with environment(env, configs, config.evaluation.workers) as made:
        envs = seen(made, config, run_encoder(config, folders[0]))
        for spec, here in zip(trained.specs, envs.specs[:: config.evaluation.workers], strict=True):
            check_environment(spec, here)
        act = make_controller(trained.agent, trained.programs, trained.state, controller, count)
        done = filmed(act, envs, seeds, [video] if video else [None] * count)
    correlations = reward_correlations(trained.programs, trained.state, done, trained.spec.episode_decisions)
    return {
        folder: {**summary(own, spec.has_success), "rank_correlation": correlation}
        for folder, own, spec, correlation in zip(folders, done, trained.specs, correlations, strict=True)
    }


class Controller:
    """A trained policy or planner: `act` maps an observation to an action."""

    def __init__(self, trained: Trained, name: ControllerName, stack: Stack | None = None):
        """`stack`: encodes frames, for an agent that is shown those."""
        self._trained = trained
        self._program = trained.programs.plan if name == "planner" else trained.programs.react
        self._low, self._high = (np.array(x) for x in (trained.spec.action_low, trained.spec.action_high))
        self._stack = stack
        self.reset()

    def reset(self) -> None:
        """Forget the plan of the last episode; call it when an episode starts."""
        self._carry, self._decision = self._trained.agent.carry()[None, None], 0

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The environment's own action, flat, for one raw observation; no bonus, no noise.

        The action stands for one decision: repeat it in the simulator as often as the run did
        (`environment.action_repeat`). Of a visual run the observation is a frame [pixels, pixels, 3] of uint8; earlier
        ones are remembered.
        """
        spec = self._trained.spec
        batch = np.asarray(obs, np.float32).reshape(1, -1) if self._stack is None else self._see(obs)
        if batch.shape[1] != spec.obs_dim or not np.isfinite(batch).all():
            raise UserError(f"expected an observation of {spec.obs_dim} finite numbers, got shape {np.shape(obs)}")
        stream, decision = np.int32(STREAMS["evaluate"]), np.int32(self._decision)
        first, explore = np.zeros((1, 1), bool), np.float32(0.0)
        self._carry, decided = self._program(
            self._trained.state, self._carry, batch[None], first, explore, stream, decision
        )
        self._decision += 1
        share = (unpacked(decided).action[0, 0] + 1.0) / 2.0
        return (self._low + share * (self._high - self._low)).astype(np.float32)

    def _see(self, frame: np.ndarray) -> np.ndarray:
        """What the agent makes of a frame and those before it, [1, D]."""
        assert self._stack is not None
        frame, pixels = np.asarray(frame), self._trained.config.visual.pixels
        if frame.shape != (pixels, pixels, 3) or frame.dtype != np.uint8:
            raise UserError(
                f"expected a frame of shape {(pixels, pixels, 3)} and type uint8, got {frame.shape} of {frame.dtype}; "
                f"render it at the size of visual.pixels"
            )
        if self._decision == 0:
            return self._stack.start({0: frame})[0][None]
        return self._stack.push(frame[None], [0])


def load(run: Path | str, controller: ControllerName = "policy") -> Controller:
    """The newest checkpoint of a run as a controller with `.act(obs)`.

    Args:
        run: The run folder; of several seeds that of one of them.
        controller: policy, one network, or planner, which looks ahead with the learned model and is slower.
    """
    folders = population.members(run)
    if len(folders) > 1:
        raise UserError(f"{run} holds {len(folders)} runs; load one of them, such as {folders[0]}")
    trained = restored(folders, controller)
    visual, encoder = trained.config.visual, run_encoder(trained.config, folders[0])
    stack = None if encoder is None else Stack(encoder, visual.pixels, visual.frames)
    return Controller(trained, controller, stack)
