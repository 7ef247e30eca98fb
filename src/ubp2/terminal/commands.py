"""What each command of the command line takes, does and answers. Heavy imports happen inside the functions."""

from __future__ import annotations

import functools
import importlib
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import tyro

from ubp2.bench import options
from ubp2.config.checking import notes
from ubp2.config.presets import DEFAULT_PRESET
from ubp2.config.schema import Config
from ubp2.errors import UserError, unknown_name
from ubp2.lab.options import Reward
from ubp2.signals import CHECKPOINTED, fake_preempt, left_early, number_heard
from ubp2.storage import population
from ubp2.storage.runs import Run
from ubp2.system import devices, prepare_jax
from ubp2.terminal import descriptions
from ubp2.vision import options as vision_options

if TYPE_CHECKING:  # imports jax
    from ubp2.api import PopulationResult, RunResult
from ubp2.terminal.flags import Json, Switch, check_least, check_minutes, words
from ubp2.terminal.progress import say

__all__ = [
    "Envs",
    "Eval",
    "Info",
    "Outcome",
    "Plot",
    "Train",
    "bench",
    "encoder",
    "envs",
    "evaluate",
    "info",
    "lab",
    "plot",
    "train",
]


class Outcome(NamedTuple):
    """What a command answers: `data` with --json, `text` otherwise, and the exit code."""

    data: dict[str, Any]
    text: str
    code: int = 0


@dataclass(frozen=True)
class Train:
    """Train an agent from preferences. Flags override the YAML file, which overrides the preset."""

    preset: str = DEFAULT_PRESET
    """Where the values below come from: cpu (small), best (for a GPU), demo, paper (its ten tasks), pebble."""
    file: Annotated[Path | None, tyro.conf.arg(name="config")] = None
    """YAML file with any of the settings below, laid over the preset."""
    seeds: int = 1
    """Seeds of each --env, from --seed on. They train together, and several get a run folder s<seed> each in --out."""
    resume: Path | None = None
    """Run folder, or folder of several runs, to go on with. It keeps its configuration, but --steps may grow, and
    the way in which people are waited for may change."""
    labels: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """File of labels (ubp2 labels export) to begin with; they cost no budget; can be repeated."""
    out: Path | None = None
    """Folder of the new run; None: runs/ and a name made of the environment, the seed and the time."""
    minutes: float | None = None
    """End within so many minutes, with an evaluation and a checkpoint; --resume goes on."""
    population: Path | None = None
    """File with the runs of one program, new or begun, as ubp2 sweep writes it (docs/sweeps.md); nothing else with it
    but --minutes."""
    fake_preempt: float | None = None
    """Send oneself SIGUSR1 at a random moment within so many seconds, as a scheduler does that needs the machine."""
    quiet: Switch = False
    """Show no progress."""
    json: Json = False
    config: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    configs: tyro.conf.Suppress[tuple[Config, ...]] = ()  # of each --env, where there are several


@dataclass(frozen=True)
class Eval:
    """Evaluate a trained agent, without any bonus."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder, or folder of several runs: each, and the mean."""
    episodes: int = 10
    """Episodes."""
    controller: Literal["policy", "planner"] = "policy"
    """What acts."""
    seed: int | None = None
    """First of the seeds of the episodes; None: the evaluation seeds of the run."""
    video: Path | None = None
    """Write a clip of the first episode to this .mp4 or .gif file."""
    json: Json = False


@dataclass(frozen=True)
class Plot:
    """Draw the learning curves of runs; runs of one environment become a mean over seeds."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]
    """Run folders; a folder of several runs stands for all of them."""
    out: Path = Path("curve.png")
    """File to write: .png, .pdf or .svg."""
    json: Json = False


@dataclass(frozen=True)
class Info:
    """Show versions and folders for a bug report, or what is in a run folder."""

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]")] = None
    """Run folder to summarise; None: this installation."""
    devices: Switch = False
    """Also list the devices that jax sees (takes seconds: imports jax)."""
    json: Json = False


@dataclass(frozen=True)
class Envs:
    """List the environment ids that --env takes."""

    suite: str | None = None
    """Only this suite: toy, metaworld, dmc, gym."""
    json: Json = False


def train(args: Train) -> Outcome:
    """Start or resume runs; unfinished ones (a signal or the clock stopped them) end with a code of their own."""
    if args.resume and args.out:
        raise UserError("--resume goes on in the folder of the run; leave out --out")
    check_least(args, {"seeds": 1, "fake_preempt": 0})
    check_minutes(args.minutes)
    if args.labels:
        from ubp2.labelling import transfer

        for config in args.configs or (args.config,):
            transfer.check(args.labels, config)  # mistakes are told before jax is imported
    with left_early():
        if args.fake_preempt is not None:
            fake_preempt(args.fake_preempt)
        return _trained(args)


def _trained(args: Train) -> Outcome:
    """The run itself; while jax is imported and where the run hears no signal yet, a signal ends the process."""
    why = functools.partial(_because, args.minutes, number_heard())
    if args.population is not None:
        return _program(args.population, args, why)
    prepare_jax()
    from ubp2 import api

    options: dict[str, Any] = {"progress": not args.quiet, "minutes": args.minutes}
    if args.resume:
        result = api.resume(args.resume, config=args.config, **options)
    else:
        chosen = list(args.configs) or args.config
        result = api.train(chosen, seeds=args.seeds, labels=args.labels, out=args.out, **options)
    told = [] if args.resume else notes(args.config)
    return _outcome(result, why(), told)


def _program(file: Path, args: Train, why: Callable[[], str]) -> Outcome:
    """The runs that a file of a sweep names; how each ended is left beside it."""
    from ubp2.experiments import programs

    folders = programs.read(file)
    prepare_jax()
    from ubp2 import api

    results = api.train_folders(folders, minutes=args.minutes, progress=not args.quiet)
    told = {
        own.folder: {"finished": own.finished, "error": None if own.error is None else str(own.error)}
        for own in results
    }
    programs.write_ended(file, told)
    again = f"ubp2 train --population {shlex.quote(str(file))}"
    lines = [f"{_state(own)}: {own.folder}" for own in results]
    data = {"population": file, "runs": [_result_data(own) for own in results]}
    ended = Outcome(data, "\n".join(lines), _code(results))
    return ended if not ended.code else ended._replace(text=f"{ended.text}\n{_going_on(results, again, why())}")


def _outcome(result: RunResult | PopulationResult, why: str, told: Sequence[str]) -> Outcome:
    """What is said of a run, or of several; why: of those that were stopped; told: before the rest, at the end."""
    runs: list[RunResult] = getattr(result, "runs", [])
    code = _code(runs or [result])  # type: ignore[list-item]
    again = f"ubp2 train --resume {shlex.quote(str(result.folder))}"
    if not runs:
        if not result.finished:
            stopped = f"stopped at decision {result.decisions}{why}; go on with: {again}"
            return Outcome(_result_data(result), stopped, code)
        return Outcome(_result_data(result), "\n".join([*told, *_finished(result, "")]))
    names = _names(result.folder, runs)
    apart = not all(re.fullmatch(r"s\d+", name) for name in names)
    lines = list[str]()
    named = list(zip(names, runs, strict=True))
    if code:
        lines += [f"  {name}: {_state(run)}, at decision {run.decisions}" for name, run in named]
        lines.append(_going_on(runs, again, why))
        return Outcome(_result_data(result), "\n".join(lines), code)
    many = f"{len(runs)} {'runs' if apart else 'seeds'}, "
    lines += [*told, _finished(result, many)[0]]
    if apart:  # a mean over tasks would hide which of them is learned
        lines += [f"  {name:{max(map(len, names))}}  {_score(run.evaluation)}" for name, run in named]
    else:
        lines += ["mean over the seeds", *_evaluation_lines(result.evaluation)]
    below = "/".join("*" * len(Path(names[0]).parts[:-1])) + "/" * (len(Path(names[0]).parts) > 1)
    lines.append(f"run folders: {result.folder}/{below}s*")
    return Outcome(_result_data(result), "\n".join(lines))


def _score(scores: Mapping[str, float]) -> str:
    """Success of each controller where the environment reports it, else the return, in one line."""
    for measure in ("success_any", "return"):
        found = {name: value for name, value in scores.items() if name.endswith(f"/{measure}")}
        if found:
            return ", ".join(f"{name} {value:.3g}" for name, value in found.items())
    return "not evaluated"


def _finished(result: RunResult | PopulationResult, many: str) -> list[str]:
    of = " in all" if many else ""
    lines = [f"finished: {many}{result.decisions} decisions, {result.labels} labels{of}"]
    return [*lines, *_evaluation_lines(result.evaluation), f"run folder: {result.folder}"]


def _code(runs: Sequence[RunResult]) -> int:
    """1: a run failed; 75: one was stopped; 0: all have come to their end."""
    if any(getattr(run, "error", None) is not None for run in runs):
        return 1
    return 0 if all(run.finished for run in runs) else CHECKPOINTED


def _state(run: RunResult) -> str:
    error = getattr(run, "error", None)
    return f"failed ({error})" if error is not None else "finished" if run.finished else "stopped"


def _going_on(runs: Sequence[RunResult], again: str, why: str) -> str:
    """What to do after a stop or a failure."""
    failed = sum(getattr(run, "error", None) is not None for run in runs)
    stopped = sum(not run.finished for run in runs) - failed
    told = [f"{failed} of {len(runs)} runs failed"] if failed else []
    told += [f"{stopped} of {len(runs)} runs stopped{why}"] if stopped else []
    return f"{' and '.join(told)}; go on with: {again}"


def _because(minutes: float | None, signals_before: int) -> str:
    """Why a run was stopped, if it was the clock and no signal."""
    if minutes is None or number_heard() > signals_before:
        return ""
    return f" because the {minutes:g} minutes are over"


def _names(folder: Path, runs: Sequence[RunResult]) -> list[str]:
    """Run folders as seen from the folder of all."""
    return [
        str(run.folder.relative_to(folder)) if run.folder.is_relative_to(folder) else str(run.folder) for run in runs
    ]


def _result_data(result: RunResult | PopulationResult) -> dict[str, Any]:
    """A result as it goes into JSON; of several runs the totals, and each run by its name below the folder."""
    names = ("folder", "decisions", "labels", "finished", "evaluation")
    data = {name: getattr(result, name) for name in names}
    error = getattr(result, "error", None)
    if error is not None:
        data["error"] = str(error)
    runs: list[RunResult] | None = getattr(result, "runs", None)
    if runs is None:
        return data
    own = [{"name": name, **_result_data(run)} for name, run in zip(_names(result.folder, runs), runs, strict=True)]
    return {**data, "runs": own}


def evaluate(args: Eval) -> Outcome:
    """Evaluate the last checkpoint of a run."""
    check_least(args, {"episodes": 1, "seed": 0})
    folders = population.members(args.run)
    for folder in folders:
        Run.open(folder)  # a wrong folder is told before jax is imported
    if args.video and len(folders) > 1:
        raise UserError(f"a clip shows one run; film a member of {args.run}: ubp2 eval {folders[0]} --video ...")
    prepare_jax()
    from ubp2 import api

    options: dict[str, Any] = {"episodes": args.episodes, "controller": args.controller, "seed": args.seed}
    members = api.evaluate_members(args.run, video=args.video, **options)
    scores = api.mean_scores(list(members.values()))
    data = {"run": args.run, "controller": args.controller, "episodes": args.episodes, "scores": scores}
    lines = [f"{args.controller} over {args.episodes} episodes of {args.run}"]
    if len(members) > 1:
        data["members"] = members
        for name, own in members.items():
            lines += [name, *_evaluation_lines(own)]
        seeds = all(re.fullmatch(r"s\d+", name) for name in members)
        lines.append(f"mean over {len(members)} {'seeds' if seeds else 'runs'}")
    lines += _evaluation_lines(scores)
    if args.video:
        data["video"] = args.video
        lines.append(f"clip: {args.video}")
    return Outcome(data, "\n".join(lines))


def plot(args: Plot) -> Outcome:
    """Draw the curves of one or several runs into one figure."""
    if not args.runs:
        raise UserError("ubp2 plot needs at least one run folder: ubp2 plot RUN --out curve.png")
    from ubp2.evaluation.plots import plot_runs

    folders = population.run_folders(args.runs)
    plot_runs(folders, args.out)
    return Outcome({"out": args.out, "runs": folders}, f"curves: {args.out}")


def info(args: Info) -> Outcome:
    """Describe the installation, or a run."""
    data = descriptions.installation() if args.run is None else descriptions.folder(args.run)
    if args.devices:
        data["devices"] = devices()
    return Outcome(data, "\n".join(descriptions.lines(data)))


def envs(args: Envs) -> Outcome:
    """List environment ids, one a line."""
    from ubp2.envs.registry import list_ids, missing

    suites, absent = list_ids(), missing()
    if args.suite is not None and args.suite not in suites:
        raise unknown_name("suite", args.suite, suites)
    if args.suite in absent:
        raise UserError(f"nothing of {args.suite} can be used: {absent[args.suite]}")
    for suite, reason in absent.items() if args.suite is None else ():
        say(f"nothing of {suite}: {reason}")
    ids = [name for suite, names in suites.items() if args.suite in (None, suite) for name in names]
    return Outcome({"envs": ids}, "\n".join(ids))


def bench(args: options.Bench) -> Outcome:
    """Measure one part, or all; each is a module of `ubp2.bench` with the name of its options."""
    options.check(args.what)
    prepare_jax()
    report = importlib.import_module(f"ubp2.bench.{type(args.what).__name__.lower()}").measure(args.what)
    data = report.data(words("bench", args.what))
    if args.what.out:
        args.what.out.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return Outcome(data, f"{data['device']}\n\n{report.text()}")


def encoder(args: vision_options.Encoder) -> Outcome:
    """Train an encoder on the frames of an environment."""
    vision_options.check(args)
    prepare_jax()
    from ubp2.vision import training

    return Outcome(*training.answer(args))


def lab(args: Reward) -> Outcome:
    """Compare settings of the reward model on recorded episodes; with --out also files and figures."""
    from ubp2.lab.subject import gather

    subject = gather(args)  # mistakes in the options are told before jax is imported
    prepare_jax()
    from ubp2.lab import report
    from ubp2.lab.reward import study

    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)  # before the work, which a folder that cannot be made would waste
    results = study(args, subject, (lambda text: None) if args.quiet else say)
    data, text = report.as_data(results), report.as_text(results)
    if args.out:
        report.write(results, data, args.out)
        text += f"\nfiles: {args.out}"
    return Outcome(data, f"{data['device']}\n\n{text}")


def _evaluation_lines(scores: Mapping[str, float]) -> list[str]:
    width = max(map(len, scores), default=0)
    return [f"  {name:{width}}  {value:.3g}" for name, value in scores.items()]
