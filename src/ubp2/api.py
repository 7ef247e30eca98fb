"""The Python interface: train, resume, evaluate, load. The commands train and eval call these functions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple, overload

import jax

from ubp2 import signals
from ubp2.agents.registry import find, make_agent
from ubp2.config import files as config_files
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config, given
from ubp2.envs.base import VectorEnv
from ubp2.errors import UserError
from ubp2.labelling import hosting, transfer
from ubp2.preference.queries import make_strategy
from ubp2.preference.store import LabelStore
from ubp2.preference.teachers import Teacher
from ubp2.storage import population
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import Metrics, Run, read_metrics
from ubp2.system import require_32_bits, seconds_since_start
from ubp2.terminal.progress import Progress, say
from ubp2.trained import (
    Controller,
    ControllerName,
    MakeEnv,
    environment,
    evaluate,
    evaluate_members,
    load,
    mean_scores,
    ready_encoder,
    require_environment,
    see,
    seen,
    shown,
)
from ubp2.training.crew import Crew, Member
from ubp2.training.loop import train as run_loop
from ubp2.vision.encoders import describe

__all__ = [
    "Controller",
    "ControllerName",
    "PopulationResult",
    "RunResult",
    "evaluate",
    "evaluate_members",
    "load",
    "mean_scores",
    "resume",
    "train",
]

Waited = Callable[[], float]


class RunResult(NamedTuple):
    """How a run ended, and where its folder is."""

    folder: Path
    """The run folder."""
    decisions: int
    """Decisions that the run has made."""
    labels: int
    """Labels that it has learned from."""
    finished: bool
    """False: a signal stopped it after a checkpoint."""
    evaluation: dict[str, float]
    """Scores of the last evaluation, empty without one: `policy/return`, `policy/length`, where the environment
    reports success `policy/success_any` and `policy/success_last`, the same of `planner/`, and
    `reward/rank_correlation` (`ubp2.evaluate` says what they are)."""


class PopulationResult(NamedTuple):
    """How several seeds that trained together ended, and where the folder of their runs is."""

    folder: Path
    """The folder of their run folders `s<seed>`."""
    runs: list[RunResult]
    """How each seed ended."""

    @property
    def decisions(self) -> int:
        """Decisions of each run."""
        return self.runs[0].decisions

    @property
    def labels(self) -> int:
        """Labels of all runs."""
        return sum(run.labels for run in self.runs)

    @property
    def finished(self) -> bool:
        """False: a signal stopped them after a checkpoint."""
        return all(run.finished for run in self.runs)

    @property
    def evaluation(self) -> dict[str, float]:
        """Mean over the runs."""
        return mean_scores([run.evaluation for run in self.runs])


@overload
def train(
    config: Config,
    *,
    seeds: Literal[1] = 1,
    env: MakeEnv | None = None,
    teacher: Teacher | None = None,
    labels: Sequence[Path | str] = (),
    out: Path | str | None = None,
    progress: bool = True,
) -> RunResult: ...


@overload
def train(
    config: Config,
    *,
    seeds: int,
    env: MakeEnv | None = None,
    teacher: Teacher | None = None,
    labels: Sequence[Path | str] = (),
    out: Path | str | None = None,
    progress: bool = True,
) -> RunResult | PopulationResult: ...


def train(
    config: Config,
    *,
    seeds: int = 1,
    env: MakeEnv | None = None,
    teacher: Teacher | None = None,
    labels: Sequence[Path | str] = (),
    out: Path | str | None = None,
    progress: bool = True,
) -> RunResult | PopulationResult:
    """Train an agent in a new run folder, or with `seeds` > 1 that many agents in one program.

    Args:
        config: All settings of the run, such as `ubp2.preset` returns ([list](settings.md)).
        seeds: How many, from `config.seed` on; several get a folder `s<seed>` each inside `out`.
        env: A function that returns a Gymnasium environment, for environments without an id; `config.env` is then only
            a name.
        teacher: A function that answers in place of `config.teacher` (`ubp2.preference.teachers.Teacher`); with several
            seeds it may be called from several threads at a time.
        labels: Files (`ubp2 labels export`) whose labels each run has from its first decision, besides its budget.
        out: The folder; None makes one under runs/.
        progress: Whether to show on stderr how far it is.

    Returns:
        A `RunResult`; of several seeds a `PopulationResult`.
    """
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    if teacher is not None and not callable(teacher):
        raise UserError(
            f"teacher must be a function (key_seed, left_rewards, right_rewards) -> (labels, weights), "
            f"got {teacher!r}; a scripted one is chosen by its name in config.teacher"
        )
    require_32_bits()
    config = config_files.checked(config)
    _require_known(config)
    hosting.require_one_run(config, seeds, teacher)
    waited, found = _waiting(), transfer.gather(labels, config)
    with contextlib.ExitStack() as stack:
        envs, encoder = stack.enter_context(environment(env, config, seeds)), ready_encoder(config)
        config = transfer.begin_with(config, shown(envs.spec, config, encoder)._asdict(), found)
        config = resolve(config, envs.spec.episode_decisions)
        folder = Path(out) if out else None
        custom = [name for name, own in (("environment", env), ("teacher", teacher)) if own is not None]
        runs = population.create(stack, folder, config, seeds, _device(), custom=custom)
        for run in runs:
            transfer.put(run, found.labels)
        envs = see(runs, envs, encoder, say if progress else _silent)
        results = _run(stack, runs, env, teacher, envs, progress, waited)
        return results[0] if seeds == 1 else PopulationResult(runs[0].folder.parent, results)


def resume(
    run: Path | str,
    *,
    config: Config | None = None,
    env: MakeEnv | None = None,
    teacher: Teacher | None = None,
    progress: bool = True,
) -> RunResult | PopulationResult:
    """Go on with a run, or all runs of a population, from the newest intact checkpoint.

    Args:
        run: The run folder, or that of several seeds.
        config: None: as it was saved. Else the saved configuration (of the first seed) with more `steps`, or,
            where people answer, with another page or way of waiting for them.
        env: The function that `ubp2.train` was given as `env`, if any.
        teacher: The function that `ubp2.train` was given as `teacher`, if any.
        progress: Whether to show on stderr how far it is.

    Returns:
        A `RunResult`; of several seeds a `PopulationResult`.
    """
    folder, waited = Path(run), _waiting()
    with contextlib.ExitStack() as stack:
        read = [Run.open(member) for member in population.members(folder)]
        for member in read:
            require_environment(member, env)
            _refuse_environment(member, env)
            _require_teacher(member, teacher)
            _require_known(member.config)
        config_files.extended(read[0].config, config)  # refused here, before anything is opened for writing
        runs = population.open_members(stack, folder, _device())
        wanted = config_files.extended(runs[0].config, config)
        envs = stack.enter_context(environment(env, wanted, len(runs)))
        for each in runs:
            own = dataclasses.replace(wanted, seed=each.config.seed)
            if own != each.config:
                each.extend(own)
        envs = see(runs, envs, None, say if progress else _silent)
        results = _run(stack, runs, env, teacher, envs, progress, waited)
        return PopulationResult(folder, results) if population.is_population(folder) else results[0]


def _require_known(config: Config) -> None:
    """Look up agent and strategy before anything is made or written: what is refused leaves all as it was."""
    find(config.agent)
    make_strategy(config.preferences.strategy)


def _silent(sentence: str) -> None:
    """In place of `say`, for those who asked for no progress."""


def _refuse_environment(run: Run, env: MakeEnv | None) -> None:
    """A run of an environment with an id goes on in that; an evaluation may be in another."""
    if env is not None and not run.info().get("custom_environment"):
        raise UserError(f"{run.folder} was trained on {run.config.env}, which has an id; leave out env=...")


def _require_teacher(run: Run, teacher: Teacher | None) -> None:
    """A run goes on with the teacher that it began with: answers of two would be one curve."""
    began = run.info().get("custom_teacher", False)
    if began and teacher is None:
        raise UserError(
            f"{run.folder} was answered by a teacher given from Python (teacher=...); pass the same one to "
            f"ubp2.resume, the command line cannot build it"
        )
    if teacher is not None and not began:
        raise UserError(f"{run.folder} was answered by the teacher of its configuration; leave out teacher=...")


def _run(
    stack: contextlib.ExitStack,
    runs: list[Run],
    env: MakeEnv | None,
    teacher: Teacher | None,
    envs: VectorEnv,
    progress: bool,
    waited: Waited,
) -> list[RunResult]:
    config, encoder = runs[0].config, getattr(envs, "encoder", None)

    @functools.cache
    def eval_envs() -> VectorEnv:
        size = config.evaluation.workers * len(runs)
        return seen(stack.enter_context(environment(env, config, size, crew.stopping)), config, encoder)

    def member(run: Run) -> Member:
        archive, store = EpisodeArchive(run.episodes), LabelStore(run.labels)
        metrics = Metrics(run.folder)
        return Member(run, *(stack.enter_context(each) for each in (archive, store, metrics)))  # type: ignore[arg-type]

    crew = Crew(
        config=config,
        members=[member(run) for run in runs],
        envs=envs,
        eval_envs=eval_envs,
        teacher=teacher,
        progress=stack.enter_context(Progress(config.steps, quiet=not progress)),
        stopping=stack.enter_context(_signals()),
        waited=waited,
        pool=stack.enter_context(ThreadPoolExecutor(min(len(runs), 16))),
    )
    envs.heed(crew.stopping)
    agent = make_agent(config, envs.spec.obs_dim, envs.spec.action_dim)
    most = given(config.preferences.budget) + config.preferences.imported
    budget = None if config.ceiling else most * len(runs)
    crew.progress.update(0, budget=budget, labels=0, seeds=len(runs), steady=False)
    if encoder is not None:
        crew.progress.note(describe(encoder))
    hosting.serve_page(stack, crew, env)
    results = run_loop(crew, agent)
    return [
        RunResult(run.folder, *result[:3], evaluation=result.evaluation or _last_evaluation(run.folder))
        for run, result in zip(runs, results, strict=True)
    ]


def _last_evaluation(folder: Path) -> dict[str, float]:
    rows = [row for row in read_metrics(folder) if row["kind"] == "eval"]
    about = ("kind", "decision", "labels/asked")
    scores = rows[-1].items() if rows else ()
    return {name: math.nan if value is None else value for name, value in scores if name not in about}


_RUNS = itertools.count()


def _waiting() -> Waited:
    """A clock of how long the user waits: since the process began for its first run, since this call for later ones."""
    began = time.monotonic()
    return seconds_since_start if next(_RUNS) == 0 else lambda: time.monotonic() - began


def _device() -> str:
    return jax.devices()[0].device_kind


_STOPPING = b"stopping: a checkpoint is being written; Ctrl-C again stops at once, at the last one\n"


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """A flag that Ctrl-C or SIGTERM raises; a second Ctrl-C stops at once."""
    asked = threading.Event()

    def handle(number: int) -> None:
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not asked.is_set():
            with contextlib.suppress(OSError):  # nobody reads it any more: the checkpoint matters, not the word
                os.write(2, _STOPPING)  # at once, and from a signal: print may be in the middle of something
        asked.set()

    with signals.heard(handle):
        yield asked.is_set
