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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple, overload

import jax

from ubp2 import signals
from ubp2.agents.registry import find, make_agent
from ubp2.config import files as config_files
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.envs.base import EnvSpec, VectorEnv
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
from ubp2.training import checkpoint
from ubp2.training.crew import Crew, Member
from ubp2.training.limits import TimeLimit
from ubp2.training.loop import train as run_loop
from ubp2.training.member_axis import differences, group
from ubp2.vision.encoders import Encoder, describe

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
    "train_folders",
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


Configs = Config | Sequence[Config] | Mapping[str, Config]


@overload
def train(
    config: Config,
    *,
    seeds: Literal[1] = 1,
    env: MakeEnv | None = None,
    teacher: Teacher | None = None,
    labels: Sequence[Path | str] = (),
    out: Path | str | None = None,
    minutes: float | None = None,
    progress: bool = True,
) -> RunResult: ...


@overload
def train(
    config: Configs,
    *,
    seeds: int = 1,
    env: MakeEnv | None = None,
    teacher: Teacher | None = None,
    labels: Sequence[Path | str] = (),
    out: Path | str | None = None,
    minutes: float | None = None,
    progress: bool = True,
) -> RunResult | PopulationResult: ...


def train(
    config: Configs,
    *,
    seeds: int = 1,
    env: MakeEnv | None = None,
    teacher: Teacher | None = None,
    labels: Sequence[Path | str] = (),
    out: Path | str | None = None,
    minutes: float | None = None,
    progress: bool = True,
) -> RunResult | PopulationResult:
    """Train an agent in a new run folder, or several in as few programs as their shapes allow.

    Args:
        config: All settings of the run, such as `ubp2.preset` returns ([list](settings.md)). Several of them, as a
            list or by the names of their folders below `out`, train together where they differ in nothing that shapes
            a program: they may differ in task, budget, schedule, teacher, strategy, bonuses, rates and weights.
        seeds: How many of each configuration, from its seed on.
        env: A function that returns a Gymnasium environment, for environments without an id; `config.env` is then only
            a name.
        teacher: A function that answers in place of `config.teacher` (`ubp2.preference.teachers.Teacher`); with several
            runs it may be called from several threads at a time.
        labels: Files (`ubp2 labels export`) whose labels each run has from its first decision, besides its budget.
        out: The folder; None makes one under runs/. Each of several runs has a folder of its own inside.
        minutes: The longest that all of it may take. The runs stop in time to evaluate and to write a checkpoint, and
            `ubp2.resume` goes on with them.
        progress: Whether to show on stderr how far it is.

    Returns:
        A `RunResult`; of several runs a `PopulationResult`.
    """
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    if teacher is not None and not callable(teacher):
        raise UserError(
            f"teacher must be a function (key_seed, left_rewards, right_rewards) -> (labels, weights), "
            f"got {teacher!r}; a scripted one is chosen by its name in config.teacher"
        )
    require_32_bits()
    asked = _by_name(config, seeds)
    clock = _Clock.starts(minutes)
    configs = {name: config_files.checked(each) for name, each in asked.items()}
    for each in configs.values():
        _require_known(each)
        hosting.require_one_run(each, len(configs), teacher)
    found = [transfer.gather(labels, each) for each in configs.values()]
    with contextlib.ExitStack() as stack:
        own = list(configs.values())
        encoders = [ready_encoder(each) for each in own]
        envs, specs = _first_look(stack, env, own)
        shapes = [shown(*each) for each in zip(specs, own, encoders, strict=True)]
        for i, (spec, labelled) in enumerate(zip(shapes, found, strict=True)):
            own[i] = resolve(transfer.begin_with(own[i], spec._asdict(), labelled), spec.episode_decisions)
        groups = group(own, shapes)
        custom = [name for name, given in (("environment", env), ("teacher", teacher)) if given is not None]
        named = dict(zip(configs, own, strict=True))
        runs = population.create(stack, Path(out) if out else None, named, groups, _device(), custom=custom)
        for run, labelled in zip(runs, found, strict=True):
            transfer.put(run, labelled.labels)
        together = _Together(env, teacher, progress, clock)
        programs = [[runs[i] for i in members] for members in groups]
        results = _train_all(stack, programs, together, envs if len(groups) == 1 else None, encoders[0])
        if list(configs) == [""]:
            return results[0]
        in_order = {result.folder: result for result in results}
        folder = Path(out) if out else _common_folder(runs, configs)
        return PopulationResult(folder, [in_order[run.folder] for run in runs])


def resume(
    run: Path | str,
    *,
    config: Config | None = None,
    env: MakeEnv | None = None,
    teacher: Teacher | None = None,
    minutes: float | None = None,
    progress: bool = True,
) -> RunResult | PopulationResult:
    """Go on with a run, or all runs of a population, from the newest intact checkpoint.

    Args:
        run: The run folder, or that of several runs.
        config: None: as it was saved. Else the saved configuration (of the first run) with more `steps`, or,
            where people answer, with another page or way of waiting for them.
        env: The function that `ubp2.train` was given as `env`, if any.
        teacher: The function that `ubp2.train` was given as `teacher`, if any.
        minutes: The longest that it may take, as in `ubp2.train`.
        progress: Whether to show on stderr how far it is.

    Returns:
        A `RunResult`; of several runs a `PopulationResult`.
    """
    folder, clock = Path(run), _Clock.starts(minutes)
    with contextlib.ExitStack() as stack:
        members = population.members(folder)
        read = [Run.open(member) for member in members]
        for member in read:
            require_environment(member, env)
            _refuse_environment(member, env)
            _require_teacher(member, teacher)
            _require_known(member.config)
        first = config_files.extended(read[0].config, config)  # refused here, before anything is opened for writing
        wanted = {read[0].folder: first}
        for program in population.programs(folder):
            steps = config.steps if config is not None else Run.open(program[0]).config.steps
            for each in (each for each in read if each.folder in program and each.folder not in wanted):
                wanted[each.folder] = config_files.extended(each.config, _as_long(each, steps))
        runs = dict(zip(members, population.open_members(stack, folder, _device(), _apart), strict=True))
        for each in runs.values():
            if wanted[each.folder] != each.config:
                each.extend(wanted[each.folder])
        programs = [
            [runs[member] for member in some]
            for program in population.programs(folder)
            for some in checkpoint.side_by_side(program)
        ]
        if len(programs) > 1:
            programs = [program for program in programs if not _over(program)] or programs[-1:]
        results = {result.folder: result for result in _train_all(stack, programs, _Together(env, teacher, progress, clock))}
        ended = [results.get(member) or _as_it_ended(each) for member, each in runs.items()]
        return PopulationResult(folder, ended) if population.is_population(folder) else ended[0]


def _as_long(run: Run, steps: int) -> Config | None:
    """A run with as many decisions as the first of its program, which a kill may have made longer alone."""
    return dataclasses.replace(run.config, steps=steps) if steps > run.config.steps else None


def _apart(one: Config, other: Config) -> list[str]:
    """Settings that keep a run out of the program of another; a shorter one is made longer."""
    lagging = ("steps", "training.replay_capacity") if other.steps < one.steps else ()
    return [name for name in differences(one, other) if name not in lagging]


def _over(program: Sequence[Run]) -> bool:
    """Whether all runs of a program have come to their end."""
    found = [checkpoint.load_latest(run.checkpoints) for run in program]
    return all(saved is not None and saved.decision >= run.config.steps for saved, run in zip(found, program, strict=True))


def _as_it_ended(run: Run) -> RunResult:
    """How a run stands that is not trained any more, or not yet."""
    saved = checkpoint.load_latest(run.checkpoints)
    decisions, labels = (0, 0) if saved is None else (saved.decision, int(saved.meta["labels"]))
    return RunResult(run.folder, decisions, labels, decisions >= run.config.steps, _last_evaluation(run.folder))


def _by_name(config: Configs, seeds: int) -> dict[str, Config]:
    """Configurations by the names of their run folders; "" for a single one."""
    if isinstance(config, Config):
        if seeds == 1:
            return {"": config}
        return {f"s{own.seed}": own for own in _seeded(config, seeds)}
    if isinstance(config, Mapping):
        named = {str(name): each for name, each in config.items()}
    elif isinstance(config, Sequence) and not isinstance(config, str):
        named = _named(list(config), seeds)
    else:
        raise UserError(
            f"expected a configuration such as ubp2.preset() returns, or several of them, got {type(config).__name__}"
        )
    for name, each in named.items():
        if not isinstance(each, Config):
            raise UserError(f"expected configurations, got {type(each).__name__} for {name}; ubp2.preset() makes one")
    if not named:
        raise UserError("expected at least one configuration, got none")
    if isinstance(config, Mapping) and seeds > 1:
        return {f"{name}/s{own.seed}": own for name, each in named.items() for own in _seeded(each, seeds)}
    return named


def _seeded(config: Config, seeds: int) -> list[Config]:
    return [dataclasses.replace(config, seed=seed) for seed in range(config.seed, config.seed + seeds)]


def _named(configs: Sequence[Config], seeds: int) -> dict[str, Config]:
    """Names of task, agent and seed; configurations that share them are numbered."""
    named: dict[str, Config] = {}
    for config in configs:
        if not isinstance(config, Config):
            raise UserError(f"expected configurations, got {type(config).__name__}; ubp2.preset() makes one")
        agent = config.agent.replace(":", "-") + (f"-{config.ablation}" if config.ablation else "")
        for own in _seeded(config, seeds):
            task = own.env.replace("/", "-").replace(":", "-")
            names = (f"{task}/{agent}{number}/s{own.seed}" for number in ("", *(f"-{n}" for n in range(2, 10**6))))
            named[next(name for name in names if name not in named)] = own
    return named


def _common_folder(runs: Sequence[Run], names: Mapping[str, Config]) -> Path:
    """The folder of a population, from the first of its runs."""
    return runs[0].folder.parents[len(Path(next(iter(names))).parts) - 1]


def _first_look(
    stack: contextlib.ExitStack, env: MakeEnv | None, configs: Sequence[Config]
) -> tuple[VectorEnv | None, list[EnvSpec]]:
    """Specs of the environments, and the environments themselves where all are of one kind."""
    if len({(config.env, config.environment, config.visual) for config in configs}) == 1:
        envs = stack.enter_context(environment(env, configs))
        return envs, list(envs.specs)
    unlike = {(config.env, config.environment, config.visual): config for config in configs}
    with ThreadPoolExecutor(min(len(unlike), os.cpu_count() or 1)) as pool:  # their sizes may differ: no vector has all
        found = dict(zip(unlike, pool.map(functools.partial(_look, env), unlike.values()), strict=True))
    return None, [found[config.env, config.environment, config.visual] for config in configs]


def _look(env: MakeEnv | None, config: Config) -> EnvSpec:
    with environment(env, [config]) as envs:
        return envs.spec


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


class _Clock(NamedTuple):
    """When the user began to wait, and for how long."""

    waited: Waited
    limit: TimeLimit

    @classmethod
    def starts(cls, minutes: float | None) -> _Clock:
        """The clock of a call of `train` or `resume`."""
        if minutes is not None and not minutes > 0:
            raise UserError(f"minutes must be more than 0, got {minutes:g}; leave it out for no limit")
        waited, limit = _waiting(), TimeLimit.after(minutes)
        limit.end -= waited()
        return cls(waited, limit)


class _Together(NamedTuple):
    """What all programs of a call share."""

    env: MakeEnv | None
    teacher: Teacher | None
    progress: bool
    clock: _Clock


def _train_all(
    stack: contextlib.ExitStack,
    programs: Sequence[Sequence[Run]],
    together: _Together,
    envs: VectorEnv | None = None,
    encoder: Encoder | None = None,
) -> list[RunResult]:
    """Train the runs of each program, one program after the other; `envs` are those of the only one."""
    results: list[RunResult] = []
    stopped = False
    note = say if together.progress else _silent
    for number, runs in enumerate(programs):
        limit = TimeLimit(together.clock.limit.end)
        if number and (stopped or limit.near(0.0)):
            results += [_as_it_ended(run) for run in runs]
            continue
        if len(programs) > 1:
            note(f"program {number + 1} of {len(programs)}: {len(runs)} run{'s' * (len(runs) > 1)}")
        with contextlib.ExitStack() as inner:
            configs = [run.config for run in runs]
            made = inner.enter_context(environment(together.env, configs)) if envs is None else envs
            try:
                ended = _run(inner, runs, together, see(runs, made, encoder, note), limit)
            except UserError as error:
                if len(programs) == 1:
                    raise
                note(f"program {number + 1} ended with an error: {error}")
                ended = [_as_it_ended(run)._replace(error=error, finished=False) for run in runs]
        stopped = any(not each.finished and each.error is None for each in ended)
        results += ended
    errors = [each.error for each in results if each.error is not None]
    if len(errors) == len(results):
        raise errors[0]
    return results


def _run(
    stack: contextlib.ExitStack, runs: Sequence[Run], together: _Together, envs: VectorEnv, limit: TimeLimit
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

    asked_to_stop = stack.enter_context(_signals())
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
    return [
        RunResult(
            run.folder, *result[:3], evaluation=result.evaluation or _last_evaluation(run.folder), error=result.error
        )
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


def train_folders(
    folders: Mapping[Path, Sequence[Config]], *, minutes: float | None = None, progress: bool = True
) -> list[RunResult]:
    """Train runs that lie in several folders, in as few programs as their shapes allow: new ones, and those begun.

    folders: resolved configurations of the runs in each. A single run is the folder itself, several are `s<seed>`. What
        exists goes on with the configuration that it was saved with.
    """
    require_32_bits()
    clock = _Clock.starts(minutes)
    begun = [folder for folder in folders if folder.exists()]
    over: list[Run] = []
    with contextlib.ExitStack() as stack:
        runs: dict[bool, list[Run]] = {True: [], False: []}  # by whether they are new
        for folder in begun:
            read = [Run.open(member) for member in population.members(folder)]
            if _over(read):
                over += read
            else:
                runs[False] += population.open_members(stack, folder, _device(), _apart)
        for folder, configs in folders.items():
            if folder not in begun:
                names = {f"s{config.seed}": config for config in configs} if len(configs) > 1 else {"": configs[0]}
                runs[True] += population.create(stack, folder, names, None, _device())
        programs = [*_side_by_side(_alike(runs[False])), *_alike(runs[True])]
        together = _Together(None, None, progress, clock)
        results = _train_all(stack, programs, together) if programs else []
        ended = {result.folder: result for result in (*results, *map(_as_it_ended, over))}
        members = [member for folder in folders for member in population.members(folder)]
        return [ended[member] for member in members]


def _alike(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs by what may share a program."""
    if not runs:
        return []
    configs = [run.config for run in runs]
    with contextlib.ExitStack() as stack:
        _, specs = _first_look(stack, None, configs)
    return [[runs[i] for i in some] for some in group(configs, specs)]


def _side_by_side(programs: Sequence[Sequence[Run]]) -> list[list[Run]]:
    """Programs whose runs have come to different decisions, apart."""
    found = []
    for program in programs:
        by_folder = {run.folder: run for run in program}
        found += [[by_folder[folder] for folder in some] for some in checkpoint.side_by_side([*by_folder])]
    return found
