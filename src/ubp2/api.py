"""The Python interface: train, resume, evaluate, load. The command line calls these functions and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from ubp2 import config_io
from ubp2.agents.base import Agent
from ubp2.agents.registry import make_agent
from ubp2.archive import EpisodeArchive
from ubp2.configs import Config
from ubp2.envs.base import EnvSpec, VectorEnv
from ubp2.envs.workers import make_vector
from ubp2.errors import UserError
from ubp2.evaluation.rollout import filmed, summary
from ubp2.preference.store import LabelStore
from ubp2.preference.teachers import make_teacher
from ubp2.progress import Progress
from ubp2.resolving import resolve
from ubp2.runs import Metrics, Run, read_metrics
from ubp2.training import checkpoint
from ubp2.training.evaluate import controller as make_controller
from ubp2.training.evaluate import reward_correlation
from ubp2.training.loop import Crew
from ubp2.training.loop import train as run_loop
from ubp2.training.programs import STREAMS, Programs, make_programs
from ubp2.training.state import check_environment, restore_agent

__all__ = ["Controller", "ControllerName", "RunResult", "evaluate", "load", "resume", "train"]

ControllerName = Literal["policy", "planner"]
MakeEnv = Callable[[], Any]  # returns a gymnasium.Env


class RunResult(NamedTuple):
    """How a run ended, and where its folder is."""

    folder: Path
    decisions: int
    labels: int
    finished: bool  # False: a signal stopped it after a checkpoint
    evaluation: dict[str, float]


def train(
    config: Config, *, env: MakeEnv | None = None, out: Path | str | None = None, progress: bool = True
) -> RunResult:
    """Train an agent in a new run folder.

    env: a function that returns a Gymnasium environment, for environments without an id; `config.env` is then only a
    name. out: the run folder; None makes one under runs/.
    """
    with contextlib.ExitStack() as stack:
        envs = stack.enter_context(_environment(env or config.env, config, 1))
        config = resolve(config, envs.spec.episode_decisions)
        custom = env is not None
        run = stack.enter_context(Run.create(Path(out) if out else None, config, device=_device(), custom=custom))
        return _run(stack, run, config, env, envs, progress)


def resume(
    run: Path | str, *, config: Config | None = None, env: MakeEnv | None = None, progress: bool = True
) -> RunResult:
    """Go on with a run from its newest intact checkpoint.

    config: what the caller wants the run to be; it must be the saved one, except that `steps` may grow.
    """
    folder = Path(run)
    with contextlib.ExitStack() as stack:
        _require_environment(Run.open(folder), env)
        opened = stack.enter_context(Run.open(folder, write=True, device=_device()))
        wanted = _extend(opened.config, config)
        envs = stack.enter_context(_environment(env or wanted.env, wanted, 1))
        if wanted != opened.config:
            opened.extend(wanted)
        return _run(stack, opened, wanted, env, envs, progress)


def _require_environment(run: Run, env: MakeEnv | None) -> None:
    """A run that was trained with env=... goes on only with it: its `config.env` is a name and no id."""
    if env is None and run.info().get("custom_environment"):
        raise UserError(
            f"{run.folder} was trained on an environment given from Python (env=...); pass the same one to "
            f"ubp2.resume or ubp2.evaluate, the command line cannot build it"
        )


def _extend(saved: Config, wanted: Config | None) -> Config:
    """The saved config, with the steps of the wanted one; a replay that held the whole run still does."""
    if wanted is None:
        return saved
    wanted = config_io.filled(wanted, saved)
    config_io.check_resumable(saved, wanted)
    training = saved.training
    if training.replay_capacity == min(saved.steps, 1_000_000):  # as `resolve` fills it in
        training = dataclasses.replace(training, replay_capacity=min(wanted.steps, 1_000_000))
    return dataclasses.replace(saved, steps=wanted.steps, training=training)


def _run(
    stack: contextlib.ExitStack, run: Run, config: Config, env: MakeEnv | None, envs: VectorEnv, progress: bool
) -> RunResult:
    eval_envs = stack.enter_context(_environment(env or config.env, config, config.evaluation.workers))
    crew = Crew(
        config=config,
        run=run,
        envs=envs,
        eval_envs=eval_envs,
        archive=stack.enter_context(EpisodeArchive(run.episodes)),
        store=stack.enter_context(LabelStore(run.labels)),
        teacher=make_teacher(config.preferences.teacher),
        metrics=stack.enter_context(Metrics(run.folder)),
        progress=stack.enter_context(Progress(config.steps, quiet=not progress)),
        stopping=stack.enter_context(_signals()),
    )
    agent = make_agent(config, envs.spec.obs_dim, envs.spec.action_dim)
    crew.progress.update(0, budget=None if config.ceiling else config.preferences.budget, labels=0)
    result = run_loop(crew, agent)
    evaluation = result.evaluation or _last_evaluation(run.folder)
    return RunResult(run.folder, result.decisions, result.labels, result.finished, evaluation)


def _last_evaluation(folder: Path) -> dict[str, float]:
    rows = [row for row in read_metrics(folder) if row["kind"] == "eval"]
    return {name: value for name, value in rows[-1].items() if name not in ("kind", "decision")} if rows else {}


def _device() -> str:
    return jax.devices()[0].device_kind


@contextlib.contextmanager
def _environment(env: str | MakeEnv, config: Config, size: int) -> Iterator[VectorEnv]:
    envs = make_vector(env, config.environment, size)
    try:
        yield envs
    finally:
        envs.close()


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """A flag that Ctrl-C or SIGTERM raises; a second Ctrl-C stops at once."""
    asked = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Trained(NamedTuple):
    config: Config
    spec: EnvSpec
    agent: Agent
    programs: Programs
    state: Any


def _load(folder: Path) -> _Trained:
    run = Run.open(folder)
    saved = checkpoint.load_latest(run.checkpoints)
    if saved is None:
        raise UserError(f"{folder} has no checkpoint yet; let it train to its first one, or resume it")
    spec = EnvSpec.from_dict(saved.meta["environment"])
    agent = make_agent(run.config, spec.obs_dim, spec.action_dim)
    programs = make_programs(run.config, agent)
    return _Trained(run.config, spec, agent, programs, restore_agent(saved, programs.init()))


def evaluate(
    run: Path | str,
    *,
    episodes: int = 10,
    controller: ControllerName = "policy",
    seed: int | None = None,
    video: Path | str | None = None,
    env: MakeEnv | None = None,
) -> dict[str, float]:
    """Evaluate the newest checkpoint of a run, without bonus or noise; optionally film the first episode."""
    _require_environment(Run.open(run), env)
    trained = _load(Path(run))
    config = trained.config
    first = config.evaluation.seed if seed is None else seed
    with _environment(env or config.env, config, config.evaluation.workers) as envs:
        check_environment(trained.spec, envs.spec)
        act = make_controller(trained.agent, trained.programs, trained.state, controller, envs)
        done = filmed(act, envs, [first + i for i in range(episodes)], Path(video) if video else None)
    correlation = reward_correlation(trained.programs, trained.state, done, trained.spec.episode_decisions)
    return {**summary(done, trained.spec.has_success), "rank_correlation": correlation}


class Controller:
    """A trained policy or planner: `act` maps an observation to an action."""

    def __init__(self, trained: _Trained, name: ControllerName):
        self._trained = trained
        self._program = trained.programs.plan if name == "planner" else trained.programs.react
        self._low, self._high = (np.array(x) for x in (trained.spec.action_low, trained.spec.action_high))
        self.reset()

    def reset(self) -> None:
        """Forget the plan of the last episode; call it when an episode starts."""
        self._carry, self._decision = self._trained.agent.carry()[None], 0

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The environment's own action, flat, for one raw observation; no bonus, no noise.

        It stands for one decision: repeat it in the simulator as often as the run did (`environment.action_repeat`).
        """
        spec = self._trained.spec
        batch = np.asarray(obs, np.float32).reshape(1, -1)
        if batch.shape[1] != spec.obs_dim or not np.isfinite(batch).all():
            raise UserError(f"expected an observation of {spec.obs_dim} finite numbers, got shape {np.shape(obs)}")
        stream, decision = np.int32(STREAMS["evaluate"]), np.int32(self._decision)
        outcome = self._program(self._trained.state, self._carry, batch, np.float32(0.0), stream, decision)
        self._carry, self._decision = outcome.carry, self._decision + 1
        return (self._low + (np.asarray(outcome.action[0]) + 1.0) / 2.0 * (self._high - self._low)).astype(np.float32)


def load(run: Path | str, controller: ControllerName = "policy") -> Controller:
    """The newest checkpoint of a run as a controller with `.act(obs)`."""
    return Controller(_load(Path(run)), controller)
