"""What each command of the command line takes, does and answers. Heavy imports happen inside the functions."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from ubp2.bench import options
from ubp2.config.presets import DEFAULT_PRESET
from ubp2.config.schema import Config
from ubp2.errors import UserError, unknown_name
from ubp2.lab.options import Reward
from ubp2.storage import population
from ubp2.storage.runs import Run
from ubp2.system import devices, prepare_jax
from ubp2.terminal import descriptions
from ubp2.terminal.descriptions import evaluation_lines
from ubp2.terminal.flags import Json, Switch, check_least, words
from ubp2.terminal.progress import say
from ubp2.vision import options as vision_options

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
    configs: Annotated[tuple[Config, ...], tyro.conf.Suppress] = ()  # of each --env, where there are several


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
            lines += [name, *evaluation_lines(own)]
        seeds = all(re.fullmatch(r"s\d+", name) for name in members)
        lines.append(f"mean over {len(members)} {'seeds' if seeds else 'runs'}")
    lines += evaluation_lines(scores)
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
