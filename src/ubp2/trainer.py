"""Training the programs of a call one after the other: environments, signals, the clock, and how each run ended."""

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
from typing import NamedTuple

import jax

from ubp2 import signals
from ubp2.agents.registry import make_agent
from ubp2.config.schema import Config
from ubp2.envs.base import EnvSpec, VectorEnv
from ubp2.errors import UserError
from ubp2.labelling import hosting
from ubp2.preference.store import LabelStore
from ubp2.preference.teachers import Teacher
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import Metrics, Run, read_metrics
from ubp2.system import seconds_since_start
from ubp2.terminal.progress import Progress, say
from ubp2.trained import MakeEnv, environment, mean_scores, see, seen
from ubp2.training import checkpoint
from ubp2.training.crew import Crew, Member
from ubp2.training.limits import TimeLimit
from ubp2.training.loop import Result
from ubp2.training.loop import train as run_loop
from ubp2.vision.encoders import Encoder, describe

__all__ = [
    "Clock",
    "PopulationResult",
    "RunResult",
    "Together",
    "as_it_ended",
    "at_one_decision",
    "device",
    "first_look",
    "is_over",
    "last_evaluation",
    "look",
    "train_all",
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
    """False: a signal, the clock or an error stopped it; it goes on from its checkpoint."""
    evaluation: dict[str, float]
    """Scores of the last evaluation, empty without one: `policy/return`, `policy/length`, where the environment
    reports success `policy/success_any` and `policy/success_last`, the same of `planner/`, and
    `reward/rank_correlation` (`ubp2.evaluate` says what they are)."""
    error: UserError | None = None
    """Why it failed while the other runs of its program went on."""


class PopulationResult(NamedTuple):
    """How several runs that trained together ended, and where the folder of their runs is."""

    folder: Path
    """The folder of their run folders."""
    runs: list[RunResult]
    """How each run ended."""

    @property
    def decisions(self) -> int:
        """Decisions of each run; of runs that came to different lengths the fewest."""
        return min(run.decisions for run in self.runs)

    @property
    def labels(self) -> int:
        """Labels of all runs."""
        return sum(run.labels for run in self.runs)

    @property
    def finished(self) -> bool:
        """False: a signal, the clock or an error stopped some of them; they go on from their checkpoints."""
        return all(run.finished for run in self.runs)

    @property
    def evaluation(self) -> dict[str, float]:
        """Mean over the runs."""
        return mean_scores([run.evaluation for run in self.runs])


def at_one_decision(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of one program that may go on together. Those that failed are apart: they must take nobody back."""
    well = [run for run in runs if not run.info().get("failed")]
    by_folder = {run.folder: run for run in well}
    groups = [[by_folder[folder] for folder in some] for some in checkpoint.side_by_side([*by_folder])] if well else []
    behind: dict[tuple[int, ...], list[Run]] = {}
    for run in runs:
        if run not in well:
            behind.setdefault(checkpoint.held(run.checkpoints), []).append(run)
    return [*groups, *behind.values()]


def is_over(program: Sequence[Run]) -> bool:
    """Whether all runs of a program have come to their end."""
    found = [checkpoint.load_latest(run.checkpoints) for run in program]
    return all(
        saved is not None and saved.decision >= run.config.steps for saved, run in zip(found, program, strict=True)
    )


def as_it_ended(run: Run) -> RunResult:
    """How a run stands that is not trained any more, or not yet."""
    saved = checkpoint.load_latest(run.checkpoints)
    decisions, labels = (0, 0) if saved is None else (saved.decision, int(saved.meta["labels"]))
    return RunResult(run.folder, decisions, labels, decisions >= run.config.steps, last_evaluation(run.folder))


def first_look(
    stack: contextlib.ExitStack, env: MakeEnv | None, configs: Sequence[Config]
) -> tuple[VectorEnv | None, list[EnvSpec]]:
    """Specs of the environments, and the environments themselves where only seeds differ: they are one program."""
    if len({dataclasses.replace(config, seed=0) for config in configs}) == 1:
        envs = stack.enter_context(environment(env, configs))
        return envs, list(envs.specs)
    return None, look(env, configs)


def look(env: MakeEnv | None, configs: Sequence[Config]) -> list[EnvSpec]:
    """Specs of the environments of these runs, of which one of a kind is built and closed again."""
    unlike = {(config.env, config.environment, config.visual): config for config in configs}
    with ThreadPoolExecutor(min(len(unlike), os.cpu_count() or 1)) as pool:  # their sizes may differ: no vector has all
        found = dict(zip(unlike, pool.map(functools.partial(_look, env), unlike.values()), strict=True))
    return [found[config.env, config.environment, config.visual] for config in configs]


def _look(env: MakeEnv | None, config: Config) -> EnvSpec:
    with environment(env, [config]) as envs:
        return envs.spec


def _silent(sentence: str) -> None:
    """In place of `say`, for those who asked for no progress."""


class Clock(NamedTuple):
    """When the user began to wait, and for how long."""

    waited: Waited
    limit: TimeLimit

    @classmethod
    def starts(cls, minutes: float | None) -> Clock:
        """The clock of a call of `train` or `resume`."""
        if minutes is not None and not minutes > 0:
            raise UserError(f"minutes must be more than 0, got {minutes:g}; leave it out for no limit")
        return cls(_waiting(), TimeLimit.after(minutes))


class Together(NamedTuple):
    """Things that all programs of a call share."""

    env: MakeEnv | None
    teacher: Teacher | None
    progress: bool
    clock: Clock


def train_all(
    stack: contextlib.ExitStack,
    programs: Sequence[Sequence[Run]],
    together: Together,
    envs: VectorEnv | None = None,
    encoder: Encoder | None = None,
) -> list[RunResult]:
    """Train the runs of each program, one program after the other; `envs` and `encoder` are those of the only one.

    `stack` outlives all of them: a signal in the last moments of one program keeps the next from beginning.
    """
    results: list[RunResult] = []
    stopped = False
    note = say if together.progress else _silent
    asked_to_stop = stack.enter_context(_signals())
    _allow_many_files()
    for number, runs in enumerate(programs):
        limit = TimeLimit(together.clock.limit.end)
        if number and (stopped or asked_to_stop() or limit.near(0.0)):
            results += [as_it_ended(run) for run in runs]
            continue
        if len(programs) > 1:
            note(f"program {number + 1} of {len(programs)}: {len(runs)} run{'s' * (len(runs) > 1)}")
        try:
            with contextlib.ExitStack() as inner:
                configs = [run.config for run in runs]
                made = inner.enter_context(environment(together.env, configs)) if envs is None else envs
                ended = _run(inner, runs, together, see(runs, made, encoder, note), limit, asked_to_stop)
        except UserError as error:
            if len(programs) == 1:
                raise
            note(f"program {number + 1} ended with an error: {error}")
            ended = [as_it_ended(run)._replace(error=error, finished=False) for run in runs]
        stopped = any(not each.finished and each.error is None for each in ended)
        results += ended
    errors = [each.error for each in results if each.error is not None]
    if len(errors) == len(results):
        raise errors[0]
    return results


def _allow_many_files() -> None:
    """Raise the limit of open files to the highest that this process may set: a run takes about ten."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _run(
    stack: contextlib.ExitStack,
    runs: Sequence[Run],
    together: Together,
    envs: VectorEnv,
    limit: TimeLimit,
    asked_to_stop: Callable[[], bool],
) -> list[RunResult]:
    config, encoder, env = runs[0].config, getattr(envs, "encoder", None), together.env

    @functools.cache
    def eval_envs() -> VectorEnv:
        configs = [run.config for run in runs]
        made = environment(env, configs, config.evaluation.workers, crew.stopping)
        return seen(stack.enter_context(made), config, encoder)

    def member(run: Run, spec: EnvSpec) -> Member:
        archive, store = EpisodeArchive(run.episodes), LabelStore(run.labels)
        opened = [stack.enter_context(each) for each in (archive, store, Metrics(run.folder))]
        return Member(run, *opened, spec, together.teacher)  # type: ignore[arg-type]

    crew = Crew(
        config=config,
        members=[member(run, spec) for run, spec in zip(runs, envs.specs, strict=True)],
        envs=envs,
        eval_envs=eval_envs,
        progress=stack.enter_context(Progress(config.steps, quiet=not together.progress)),
        stopping=lambda: asked_to_stop() or limit.over(),
        waited=together.clock.waited,
        pool=stack.enter_context(ThreadPoolExecutor(min(len(runs), 16))),
        limit=limit,
    )
    envs.heed(crew.stopping)
    agent = make_agent(config, envs.spec.obs_dim, envs.spec.action_dim)
    most = sum(each.budget + each.config.preferences.imported for each in crew.members)
    budget = None if config.ceiling else most
    crew.progress.update(0, budget=budget, labels=0, seeds=len(runs), steady=False)
    if encoder is not None:
        crew.progress.note(describe(encoder))
    hosting.serve_page(stack, crew, env)
    results = run_loop(crew, agent)
    return [_ended(run, result) for run, result in zip(runs, results, strict=True)]


def _ended(run: Run, result: Result) -> RunResult:
    """How a run ended; one that failed stands where its newest checkpoint is."""
    if result.error is not None:
        return as_it_ended(run)._replace(finished=False, error=result.error)
    if result.finished and run.info().get("failed"):
        run.note({"failed": None})
    return RunResult(run.folder, *result[:3], evaluation=result.evaluation or last_evaluation(run.folder))


def last_evaluation(folder: Path) -> dict[str, float]:
    """Scores of the last evaluation of a run; empty without one."""
    rows = [row for row in read_metrics(folder) if row["kind"] == "eval"]
    about = ("kind", "decision", "labels/asked")
    scores = {name: value for name, value in (rows[-1] if rows else {}).items() if not name.startswith("time/")}
    return {name: math.nan if value is None else value for name, value in scores.items() if name not in about}


_RUNS = itertools.count()


def _waiting() -> Waited:
    """A clock of how long the user waits: since the process began for its first run, since this call for later ones."""
    began = time.monotonic()
    return seconds_since_start if next(_RUNS) == 0 else lambda: time.monotonic() - began


def device() -> str:
    """The accelerator of this process, or its processor."""
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
