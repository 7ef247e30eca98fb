"""`ubp2 train`: trains or resumes, and says how it ended. Heavy imports happen inside the functions."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ubp2.config.checking import notes
from ubp2.errors import UserError
from ubp2.signals import CHECKPOINTED, fake_preempt, left_early, number_heard
from ubp2.system import prepare_jax, seconds_since_start
from ubp2.terminal.commands import Outcome, Train
from ubp2.terminal.descriptions import evaluation_lines
from ubp2.terminal.flags import check_least, check_minutes

if TYPE_CHECKING:  # imports jax
    from ubp2.api import PopulationResult, RunResult

__all__ = ["answer"]


def answer(args: Train) -> Outcome:
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

    options: dict[str, Any] = {"progress": not args.quiet, "minutes": _left(args.minutes)}
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

    results = api.train_folders(folders, minutes=_left(args.minutes), progress=not args.quiet)
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
    """Say how a run ended, or several. why: the reason of a stop; told: sentences that come first."""
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
    if code == CHECKPOINTED and not apart:  # seeds of one program have come equally far
        return Outcome(_result_data(result), f"stopped at decision {result.decisions}{why}; go on with: {again}", code)
    if code:
        lines += [f"  {name}: {_state(run)}, at decision {run.decisions}" for name, run in named]
        lines.append(_going_on(runs, again, why))
        return Outcome(_result_data(result), "\n".join(lines), code)
    many = f"{len(runs)} {'runs' if apart else 'seeds'}, "
    lines += [*told, _finished(result, many)[0]]
    if apart:  # a mean over tasks would hide which of them is learned
        lines += [f"  {name:{max(map(len, names))}}  {_score(run.evaluation)}" for name, run in named]
    else:
        lines += ["mean over the seeds", *evaluation_lines(result.evaluation)]
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
    return [*lines, *evaluation_lines(result.evaluation), f"run folder: {result.folder}"]


def _code(runs: Sequence[RunResult]) -> int:
    """1: a run failed; 75: one was stopped; 0: all have come to their end."""
    if any(getattr(run, "error", None) is not None for run in runs):
        return 1
    return 0 if all(run.finished for run in runs) else CHECKPOINTED


def _state(run: RunResult) -> str:
    error = getattr(run, "error", None)
    return f"failed ({error})" if error is not None else "finished" if run.finished else "stopped"


def _going_on(runs: Sequence[RunResult], again: str, why: str) -> str:
    """Advice after a stop or a failure."""
    failed = sum(getattr(run, "error", None) is not None for run in runs)
    stopped = sum(not run.finished for run in runs) - failed
    told = [f"{failed} of {len(runs)} runs failed"] if failed else []
    told += [f"{stopped} of {len(runs)} runs stopped{why}"] if stopped else []
    return f"{' and '.join(told)}; go on with: {again}"


def _left(minutes: float | None) -> float | None:
    """Minutes left since the process began; a little if none are, so that the run ends with a sentence and a code."""
    return None if minutes is None else max(minutes - seconds_since_start() / 60, 1e-3)


def _because(minutes: float | None, signals_before: int) -> str:
    """Why a run was stopped, if it was the clock and no signal."""
    if minutes is None or number_heard() > signals_before:
        return ""
    return f" because the time ({minutes:g} min) is over"


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
