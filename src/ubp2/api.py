"""The Python interface: train, resume, evaluate, load. The command line calls these functions and nothing else."""

from __future__ import annotations

import contextlib
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
from ubp2.configs import Config, resolve
from ubp2.envs.base import EnvSpec, VectorEnv
from ubp2.envs.workers import make_vector
from ubp2.errors import UserError
from ubp2.evaluation.rollout import rollouts, summary
from ubp2.evaluation.video import write_video
from ubp2.preference.store import LabelStore
from ubp2.preference.teachers import make_teacher
from ubp2.progress import Progress
from ubp2.runs import Metrics, Run, read_metrics
from ubp2.training import checkpoint
from ubp2.training.evaluate import controller as make_controller
from ubp2.training.evaluate import reward_correlation, seeds
from ubp2.training.loop import Crew
from ubp2.training.loop import train as run_loop
from ubp2.training.programs import Programs, make_programs

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
        run = stack.enter_context(Run.create(Path(out) if out else None, config, device=_device()))
        return _run(stack, run, config, env, envs, progress)


def resume(
    run: Path | str, *, config: Config | None = None, env: MakeEnv | None = None, progress: bool = True
) -> RunResult:
    """Go on with a run from its newest intact checkpoint.

    config: what the caller wants the run to be; it must be the saved one, except that `steps` may grow.
    """
    folder = Path(run)
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(Run.open(folder, write=True, device=_device()))
        saved = opened.config
        wanted = _extend(folder, saved, config)
        envs = stack.enter_context(_environment(env or saved.env, saved, 1))
        return _run(stack, opened, wanted, env, envs, progress)


def _extend(folder: Path, saved: Config, wanted: Config | None) -> Config:
    """The saved config with the steps of the wanted one; anything else that differs is refused by name."""
    if wanted is None:
        return saved
    different = [d for d in config_io.differences(saved, wanted) if not d.startswith("steps:")]
    if different:
        raise UserError(
            f"the run {folder} was made with other settings ({'; '.join(different)}); resume it without them, or start "
            f"a new run with --out"
        )
    if wanted.steps < saved.steps:
        raise UserError(f"the run {folder} has {saved.steps} steps and cannot shrink to {wanted.steps}")
    return saved if wanted.steps == saved.steps else _with_steps(saved, wanted.steps)


def _with_steps(saved: Config, steps: int) -> Config:
    import dataclasses

    capacity = max(saved.training.replay_capacity or 0, min(steps, 1_000_000))
    return dataclasses.replace(
        saved, steps=steps, training=dataclasses.replace(saved.training, replay_capacity=capacity)
    )


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
    agent: Agent
    programs: Programs
    state: Any


def _load(folder: Path, spec: EnvSpec) -> _Trained:
    run = Run.open(folder)
    saved = checkpoint.load_latest(run.checkpoints)
    if saved is None:
        raise UserError(f"{folder} has no checkpoint yet; let it train past its first, or resume it")
    agent = make_agent(run.config, spec.obs_dim, spec.action_dim)
    programs = make_programs(run.config, agent)
    state = programs.init()
    prefix = "[0]"
    arrays = {name.removeprefix(prefix): array for name, array in saved.arrays.items() if name.startswith(prefix)}
    return _Trained(run.config, agent, programs, checkpoint.unflatten(state, arrays))


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
    config = Run.open(run).config
    with _environment(env or config.env, config, config.evaluation.workers) as envs:
        trained = _load(Path(run), envs.spec)
        act = make_controller(trained.agent, trained.programs, trained.state, controller, envs)
        first = config.evaluation.seed if seed is None else seed
        frames: list[np.ndarray] = []
        film = (lambda e: frames.append(e.render(0))) if video else None
        done = rollouts(act, envs, [first + i for i in range(episodes)], film)
        if video:
            write_video(Path(video), np.stack(frames[: len(done[0].action) + 1]), envs.spec.fps)
        scores = summary(done)
        scores["rank_correlation"] = reward_correlation(
            trained.programs, trained.state, done, envs.spec.episode_decisions
        )
        return scores


class Controller:
    """A trained policy or planner: `act` maps an observation to an action."""

    def __init__(self, trained: _Trained, name: ControllerName):
        self._trained = trained
        self._program = trained.programs.plan if name == "planner" else trained.programs.react
        self._decision = 0
        self.reset()

    def reset(self) -> None:
        """Forget the plan of the last episode; call it when an episode starts."""
        self._carry = self._trained.agent.carry()[None]

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The action in [-1, 1]^A for one raw observation [D]; no bonus, no noise."""
        batch = np.asarray(obs, np.float32).reshape(1, -1)
        decision = np.int32(self._decision)
        outcome = self._program(self._trained.state, self._carry, batch, np.float32(0.0), np.int32(4), decision)
        self._carry, self._decision = outcome.carry, self._decision + 1
        return np.asarray(outcome.action[0])


def load(run: Path | str, controller: ControllerName = "policy") -> Controller:
    """The newest checkpoint of a run as a controller with `.act(obs)`."""
    folder = Path(run)
    sizes = Run.open(folder).info().get("environment")
    raise NotImplementedError(sizes)
