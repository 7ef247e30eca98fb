"""The Python interface: train, resume, evaluate, load. The commands train and eval call these functions."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, overload

from ubp2.agents.registry import find
from ubp2.config import files as config_files
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.labelling import hosting, transfer
from ubp2.preference.queries import make_strategy
from ubp2.preference.teachers import Teacher
from ubp2.run_names import Configs, by_name, common_folder
from ubp2.storage import population
from ubp2.storage.runs import Run
from ubp2.system import require_32_bits
from ubp2.trained import (
    Controller,
    ControllerName,
    MakeEnv,
    evaluate,
    evaluate_members,
    load,
    mean_scores,
    ready_encoder,
    require_environment,
    shown,
)
from ubp2.trainer import (
    Clock,
    PopulationResult,
    RunResult,
    Together,
    as_it_ended,
    at_one_decision,
    device,
    first_look,
    is_over,
    look,
    train_all,
)
from ubp2.training.member_axis import differences, group

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
    asked = by_name(config, seeds)
    clock = Clock.starts(minutes)
    configs = {name: config_files.checked(each) for name, each in asked.items()}
    for each in configs.values():
        _require_known(each)
        hosting.require_one_run(each, len(configs), teacher)
    found = [transfer.gather(labels, each) for each in configs.values()]
    with contextlib.ExitStack() as stack:
        own = list(configs.values())
        encoders = [ready_encoder(each) for each in own]
        envs, specs = first_look(stack, env, own)
        shapes = [shown(*each) for each in zip(specs, own, encoders, strict=True)]
        for i, (spec, labelled) in enumerate(zip(shapes, found, strict=True)):
            own[i] = resolve(transfer.begin_with(own[i], spec._asdict(), labelled), spec.episode_decisions)
        groups = group(own, shapes)
        custom = [name for name, given in (("environment", env), ("teacher", teacher)) if given is not None]
        named = dict(zip(configs, own, strict=True))
        runs = population.create(stack, Path(out) if out else None, named, groups, device(), custom=custom)
        for run, labelled in zip(runs, found, strict=True):
            transfer.put(run, labelled.labels)
        together = Together(env, teacher, progress, clock)
        programs = [[runs[i] for i in members] for members in groups]
        only = (envs, encoders[0]) if len(groups) == 1 else (None, None)
        results = train_all(stack, programs, together, *only)
        if list(configs) == [""]:
            return results[0]
        in_order = {result.folder: result for result in results}
        folder = Path(out) if out else common_folder(runs, configs)
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
    folder, clock = Path(run), Clock.starts(minutes)
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
        runs = dict(zip(members, population.open_members(stack, folder, device(), _apart), strict=True))
        for each in runs.values():
            if wanted[each.folder] != each.config:
                each.extend(wanted[each.folder])
        programs = [
            some
            for program in population.programs(folder)
            for some in at_one_decision([runs[member] for member in program])
        ]
        if len(programs) > 1:
            programs = [program for program in programs if not is_over(program)] or programs[-1:]
        results = {
            result.folder: result for result in train_all(stack, programs, Together(env, teacher, progress, clock))
        }
        ended = [results.get(member) or as_it_ended(each) for member, each in runs.items()]
        return PopulationResult(folder, ended) if population.is_population(folder) else ended[0]


def _as_long(run: Run, steps: int) -> Config | None:
    """A run with as many decisions as the first of its program, which a kill may have made longer alone."""
    return dataclasses.replace(run.config, steps=steps) if steps > run.config.steps else None


def _apart(one: Config, other: Config) -> list[str]:
    """Settings that keep a run out of the program of another; a shorter one is made longer."""
    lagging = ("steps", "training.replay_capacity") if other.steps < one.steps else ()
    return [name for name in differences(one, other) if name not in lagging]


def _require_known(config: Config) -> None:
    """Look up agent and strategy before anything is made or written: what is refused leaves all as it was."""
    find(config.agent)
    make_strategy(config.preferences.strategy)


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


def train_folders(
    folders: Mapping[Path, Sequence[Config]], *, minutes: float | None = None, progress: bool = True
) -> list[RunResult]:
    """Train runs that lie in several folders, in as few programs as their shapes allow: new ones, and those begun.

    folders: resolved configurations of the runs in each. A single run is the folder itself, several are `s<seed>`. What
        exists goes on with the configuration that it was saved with.
    """
    require_32_bits()
    clock = Clock.starts(minutes)
    begun = [folder for folder in folders if folder.exists()]
    over: list[Run] = []
    with contextlib.ExitStack() as stack:
        runs: dict[bool, list[Run]] = {True: [], False: []}  # by whether they are new
        for folder in begun:
            read = [Run.open(member) for member in population.members(folder)]
            if is_over(read):
                over += read
            else:
                runs[False] += population.open_members(stack, folder, device(), _apart)
        for folder, configs in folders.items():
            if folder not in begun:
                names = {f"s{config.seed}": config for config in configs} if len(configs) > 1 else {"": configs[0]}
                runs[True] += population.create(stack, folder, names, None, device())
        programs = [some for program in _alike(runs[False]) for some in at_one_decision(program)]
        over += [run for program in programs if is_over(program) for run in program]
        programs = [program for program in programs if not is_over(program)] + _alike(runs[True])
        together = Together(None, None, progress, clock)
        results = train_all(stack, programs, together) if programs else []
        ended = {result.folder: result for result in (*results, *map(as_it_ended, over))}
        members = [member for folder in folders for member in population.members(folder)]
        return [ended[member] for member in members]


def _alike(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs by what may share a program."""
    if not runs:
        return []
    configs = [run.config for run in runs]
    specs = look(None, configs)
    return [[runs[i] for i in some] for some in group(configs, specs)]
