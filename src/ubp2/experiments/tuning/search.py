"""`ubp2 tune`: plan the trials, run what is missing under Ray Tune, say which settings are best.

The folder is the only state, as for `ubp2 reproduce`: the same command goes on after whatever ended it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ubp2 import signals
from ubp2.config.files import load_yaml, overridden, save_yaml
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.config.schedule import first_session
from ubp2.config.schema import Config, given
from ubp2.config.switching import check_asked
from ubp2.errors import UserError
from ubp2.experiments.execution import CHECKPOINTED
from ubp2.experiments.on_ray import connected, fitting, nodes_of
from ubp2.experiments.options import settings
from ubp2.experiments.plans import spec_of
from ubp2.experiments.resources import Shape, largest, needed
from ubp2.experiments.tuning import study as studies
from ubp2.experiments.tuning.judging import judge
from ubp2.experiments.tuning.options import TRIALS, Tune, check
from ubp2.experiments.tuning.space import default, load
from ubp2.experiments.tuning.study import Score, Study, Trial
from ubp2.storage import locks
from ubp2.storage.database import disk_errors
from ubp2.terminal.progress import say

__all__ = ["Ranked", "Summary", "answer", "as_data", "as_text", "run"]

BEST = "best.yaml"
_SHOWN = 10  # trials in the table
_PATIENCE = 60.0  # seconds


@dataclass(frozen=True)
class Ranked:
    """A trial and what became of it."""

    trial: Trial
    state: str  # finished, stopped early, unfinished, to do, failed
    score: Score | None
    reason: str = ""


@dataclass(frozen=True)
class Summary:
    """All trials, the best first, and the settings of the best."""

    study: Study
    out: Path
    ranked: list[Ranked]
    best: Path | None
    stopped: bool

    @property
    def failed(self) -> list[Ranked]:
        return [each for each in self.ranked if each.state == "failed"]


def answer(args: Tune) -> tuple[dict[str, Any], str, int]:
    """What the command says, as data and as text, and its exit code."""
    summary = run(args, say)
    return as_data(summary), as_text(summary), CHECKPOINTED if summary.stopped else int(bool(summary.failed))


def run(args: Tune, say: Callable[[str], None]) -> Summary:
    """Everything: plan, train what is missing, rank."""
    check(args)
    study, out = _resumed(args, args.resume) if args.resume else _asked(args)
    found = studies.trials(study, out)
    if args.dry_run:
        return Summary(study, out, _in_order(study, found), None, False)
    with disk_errors(out, None):
        out.mkdir(parents=True, exist_ok=True)
        lock = locks.take(out, what="the folder")
    try:
        study = studies.settle(study, out)
        found = studies.trials(study, out)
        studies.write_configs(found)
        say(_described(study, out))
        missing = [trial for trial in found if not studies.ended(trial, study.metric)]
        return _summary(study, out, found, _execute(args, study, out, found) if missing else {})
    finally:
        os.close(lock)


def _resumed(args: Tune, folder: Path) -> tuple[Study, Path]:
    """The search in a folder as it was asked for, with more trials if they are wanted."""
    study = studies.open_study(folder)
    return replace(study, trials=max(study.trials, args.trials or 0)), folder.absolute()


def _asked(args: Tune) -> tuple[Study, Path]:
    """The search that the flags ask for, checked as far as it can be before anything runs."""
    config, trials = _base(args), args.trials or TRIALS
    if config.teacher.name == "human":
        raise UserError(
            f"{trials} trials would ask people {trials} times as much as one run; tune with a scripted teacher "
            f"(--set 'teacher: oracle'), and train with people what turns out best"
        )
    metric, episode_decisions = judge(config.env, config.environment, args.score)
    resolved = resolve(config, episode_decisions)
    space = default(config) if args.space is None else load(args.space, config)
    grace = _grace(resolved, args.reduction) if args.grace is None else args.grace
    if grace > config.steps:
        raise UserError(f"--grace {grace} is longer than a trial, which has {config.steps} decisions")
    shape = (trials, args.seeds, args.seed, metric, args.reduction, grace, episode_decisions)
    name = f"tune-{config.env.replace('/', '-').replace(':', '-')}-{args.preset}-{config.steps}"
    return Study(config, space, *shape), (args.out or Path("runs") / name).absolute()


def _base(args: Tune) -> Config:
    """The settings that trials share: the preset, the file, --set, --steps."""
    config = preset(args.preset, args.env or "")
    if args.config is not None:
        config = load_yaml(args.config, config)
    asked = settings(args.set)
    config = overridden(config, asked)
    check_asked(config, asked)
    if config.env != args.env:
        raise UserError(f"--env is {args.env} and the settings name {config.env}; leave one of them out")
    return replace(config, steps=args.steps or config.steps, seed=args.seed)


def _grace(config: Config, reduction: float) -> int:
    """Decisions before a trial may be stopped: two rungs below the end, and twice as late as the first labels."""
    first = given(config.training.warmup)
    if not config.ceiling:
        first = max(first, first_session(config.preferences))
    return min(max(int(config.steps / reduction**2), 2 * first), config.steps)


def _execute(args: Tune, study: Study, out: Path, found: Sequence[Trial]) -> dict[str, str]:
    """Let Ray Tune train; Ctrl-C or SIGTERM let every run write a checkpoint, a second one ends at once.

    Returns the reasons of trials that failed, by name.
    """
    on_tune = _engine()
    ray = connected(args.address)
    stop = out / on_tune.STOP
    stop.unlink(missing_ok=True)

    def ask(_: int) -> None:
        if stop.exists():
            raise KeyboardInterrupt
        stop.touch()

    try:
        cpus, gpus = _needs(args, study, found, nodes_of(ray))
        needs = on_tune.Resources(cpus, gpus, args.jobs, args.retries)
        with signals.heard(ask):
            return on_tune.search(study, out, found, needs)
    finally:
        ray.shutdown()
        _wait_for_runs(out)
        with contextlib.suppress(OSError):
            stop.unlink(missing_ok=True)


def _engine() -> ModuleType:
    try:
        from ubp2.experiments.tuning import on_tune
    except ImportError as error:
        raise UserError(f"ubp2 tune needs Ray Tune ({error}); run: pip install 'ubp2[ray]'") from None
    return on_tune


def _needs(
    args: Tune, study: Study, found: Sequence[Trial], nodes: Sequence[Mapping[str, float]]
) -> tuple[float, float]:
    """Cores and GPUs of a trial: as told, else what the largest needs, as every group of seeds of an experiment does.

    What no node has is told, since Ray would wait for it.
    """
    spec, gpu = spec_of(study.config), any(node.get("GPU", 0) >= 1 for node in nodes)
    shape = Shape(spec.obs_dim, spec.action_dim)
    most = largest([needed(trial.group.cell.config, study.seeds, shape, gpu=gpu) for trial in found])
    cpus = most.cpus if args.cpus is None else args.cpus
    cores, devices = fitting(cpus, most.gpus if args.gpus is None else args.gpus, nodes)
    for name, told, there in (("GPU", args.gpus, devices), ("CPU", args.cpus, cores)):
        if told is not None and told > there:
            beside = f" beside {devices:g} GPU" if name == "CPU" and devices else ""
            raise UserError(
                f"a trial wants {told:g} {name} and no node of the cluster has more than {there:g}{beside}; "
                f"lower --{name.lower()}s or give another --address"
            )
    return cores, devices


def _wait_for_runs(out: Path) -> None:
    """Give the last runs that were stopped the time to leave, so that nothing goes on after the command."""
    end = time.monotonic() + _PATIENCE
    while studies.written(out) and time.monotonic() < end:
        time.sleep(0.2)


def _summary(study: Study, out: Path, found: Sequence[Trial], failed: Mapping[str, str]) -> Summary:
    ranked = _in_order(study, found, failed)
    best = None
    if ranked[0].score is not None and ranked[0].state != "failed":
        best = out / BEST
        save_yaml(studies.best_config(study, ranked[0].trial), best)
    return Summary(study, out, ranked, best, any(each.state in ("unfinished", "to do") for each in ranked))


def _in_order(study: Study, found: Sequence[Trial], failed: Mapping[str, str] | None = None) -> list[Ranked]:
    return sorted((_ranked(study, trial, failed or {}) for trial in found), key=_order)


def _ranked(study: Study, trial: Trial, failed: Mapping[str, str]) -> Ranked:
    score = studies.last_score(trial.group, study.metric)
    if trial.name in failed:
        return Ranked(trial, "failed", score, failed[trial.name])
    if score is not None and score.decision >= study.config.steps:
        return Ranked(trial, "finished", score)
    if studies.ended_early(trial):
        return Ranked(trial, "stopped early", score)
    return Ranked(trial, "to do" if score is None else "unfinished", score)


def _order(each: Ranked) -> tuple[bool, bool, float, float, int]:
    """Whoever came further stands before whoever was stopped; among those that came as far, the better score.

    Those that failed come last, however far they came: with their settings the next run may fail, too.
    """
    at, score = each.score or (0, 0.0)
    return each.state == "failed", each.score is None, -at, -score, each.trial.number


def _described(study: Study, out: Path) -> str:
    return (
        f"{study.trials} trials of {study.config.steps:,} decisions on {study.config.env} in {out}; compared by "
        f"{study.metric} from decision {study.grace:,} on, searched: {', '.join(study.space)}"
    )


def as_text(summary: Summary) -> str:
    """The best trials as a table, and what to do with them."""
    rows = [("trial", "state", "decisions", summary.study.metric, "settings")]
    for each in summary.ranked[:_SHOWN]:
        at, score = (f"{each.score.decision:,}", f"{each.score.score:.3g}") if each.score else ("", "")
        settings = ", ".join(f"{name}: {value}" for name, value in each.trial.point.items()) or "as the preset"
        rows.append((each.trial.name, each.state, at, score, settings))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)) + f"  {row[4]}" for row in rows
    ]
    if len(summary.ranked) > _SHOWN:
        lines.append(f"and {len(summary.ranked) - _SHOWN} more")
    lines += [f"{each.trial.name} failed: {each.reason}" for each in summary.failed]
    if summary.best:
        lines.append(f"best settings: ubp2 train --config {summary.best}")
    if summary.stopped:
        lines.append(f"stopped; the same command goes on, and so does: ubp2 tune --resume {summary.out}")
    elif summary.failed:
        lines.append(f"{len(summary.failed)} of {len(summary.ranked)} failed; the same command tries them again")
    return "\n".join(lines)


def as_data(summary: Summary) -> dict[str, Any]:
    """For --json."""
    study = summary.study
    listed = [
        {
            "trial": each.trial.number,
            "state": each.state,
            "decision": each.score.decision if each.score else 0,
            "score": each.score.score if each.score else None,
            "settings": each.trial.point,
            "folder": each.trial.group.folder,
            "reason": each.reason or None,
        }
        for each in summary.ranked
    ]
    shape = {"env": study.config.env, "metric": study.metric, "steps": study.config.steps, "grace": study.grace}
    return {**shape, "out": summary.out, "trials": listed, "best": summary.best, "stopped": summary.stopped}
