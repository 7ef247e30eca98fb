"""`ubp2 sweep`: a plan of one's own on processes, on Ray or on SLURM; looked at, stopped and resumed by its folder.

The folder holds the sweep itself (`sweep.yaml`), so that nobody needs the file from which it was started.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from ubp2 import signals
from ubp2.errors import UserError, did_you_mean
from ubp2.experiments import board, on_slurm, plans, running, schedules, sweep_file
from ubp2.experiments.clock import Clock
from ubp2.experiments.execution import Workers, label, program_label
from ubp2.experiments.group_folders import failure
from ubp2.experiments.options import WORKS, Sweep
from ubp2.experiments.plans import Plan
from ubp2.experiments.running import STOP, Answer, Summary
from ubp2.experiments.sweep_file import FILE, SweepFile
from ubp2.storage import locks
from ubp2.terminal.flags import check_minutes
from ubp2.terminal.progress import say

__all__ = ["answer"]

_PATIENCE = 120.0  # seconds that `stop` waits for the last checkpoint


def answer(args: Sweep) -> Answer:
    """Do what was asked; 1: some cells failed, 75: stopped, resume goes on."""
    check_minutes(args.minutes)
    if args.what not in WORKS:
        if args.folder is not None:
            raise UserError(
                f"ubp2 sweep takes a file, or one of {', '.join(WORKS)} and a folder, got '{args.what} {args.folder}'."
                + did_you_mean(args.what, WORKS)
            )
        return _start(_with_flags(sweep_file.read(Path(args.what)), args), args)
    folder = _folder(args)
    if args.minutes is not None and args.what in ("status", "stop"):
        raise UserError(f"ubp2 sweep {args.what} trains nothing; leave out --minutes")
    if args.out is not None:
        raise UserError(f"ubp2 sweep {args.what} is about the sweep in {folder}, where it stays; leave out --out")
    if args.what == "status":
        return _status(folder)
    if args.what == "stop":
        return _stop(folder)
    saved = replace(sweep_file.read(folder / FILE), out=str(folder))
    if args.what == "cell":
        return _cell(_planned(saved, quiet=True, fixed=True), saved, args)
    return _start(_with_flags(saved, args), args)


def _folder(args: Sweep) -> Path:
    """The folder of a sweep that was started."""
    if args.folder is None:
        raise UserError(f"ubp2 sweep {args.what} needs the folder of a sweep: ubp2 sweep {args.what} runs/NAME")
    if not (args.folder / FILE).is_file():
        raise UserError(f"{args.folder} holds no sweep (no {FILE} in it); start one with: ubp2 sweep FILE.yaml")
    return args.folder


def _with_flags(sweep: SweepFile, args: Sweep) -> SweepFile:
    """The sweep with what the flags say."""
    flags = {name: getattr(args, name) for name in ("on", "address", "jobs", "retries")}
    flags["out"] = None if args.out is None else str(args.out)
    changed = replace(sweep, **{name: value for name, value in flags.items() if value is not None})
    if args.fake_preempt is not None and changed.on != "slurm":
        raise UserError("--fake-preempt runs the script of --on slurm; for one run there is ubp2 train --fake-preempt")
    if args.fake_preempt is not None and args.fake_preempt < 0:
        raise UserError(f"--fake-preempt must not be negative, got {args.fake_preempt}")
    if args.minutes is not None and changed.on == "slurm":
        raise UserError("SLURM ends its tasks itself: leave out --minutes, and give sbatch a --time")
    return changed


def _planned(sweep: SweepFile, quiet: bool, *, fixed: bool = False) -> Plan:
    return plans.plan(sweep.request(), sweep.how(quiet), sweep.folder, fixed=fixed)


def _start(sweep: SweepFile, args: Sweep) -> Answer:
    """Run it, or write the script that does."""
    made = _planned(sweep, args.json)
    plans.require_functions(made)
    say(plans.describe(made))
    how = replace(sweep.how(args.json), clock=Clock.starts(args.minutes))
    fitting = schedules.within(made, how)
    if fitting is not None:
        say(schedules.words(fitting))
    if args.dry_run:
        return {**running.as_data(Summary(made, [], [])), **schedules.as_data(fitting)}, "", 0
    with running.only_one(made.out):
        sweep_file.write(sweep, made.out)
        if sweep.on == "slurm" and made.missing:
            return _on_slurm(made, sweep, args.fake_preempt)
        summary = running.run(made, how, say)
        return running.answer(summary, f"ubp2 sweep resume {made.out}")


def _on_slurm(made: Plan, sweep: SweepFile, fake_preempt: float | None) -> Answer:
    """Write the array script; run it here where preemption is to be tried."""
    (made.out / STOP).unlink(missing_ok=True)
    script = on_slurm.write(made, sweep.how(quiet=True))
    if fake_preempt is None:
        command = on_slurm.submit(script)
        text = f"submit {len(made.missing)} tasks with: {command}"
        return {"out": made.out, "script": script, "submit": command, "tasks": len(made.missing)}, text, 0
    numbers = [program.number for program in made.missing]
    with signals.heard(lambda _: (made.out / STOP).touch()):
        codes = on_slurm.emulate(script, numbers, sweep.jobs or 1, fake_preempt, say)
    pages = running.run(made, sweep.how(quiet=True), say, train=False).pages
    rows = [board.row(group) for group in made.groups]
    code = signals.CHECKPOINTED if signals.CHECKPOINTED in codes else int(any(codes))
    return {**_as_data(made, rows), **running.reports(pages)}, "\n".join([board.text(rows), *running.told(pages)]), code


def _cell(made: Plan, sweep: SweepFile, args: Sweep) -> Answer:
    """One program, as a job of a scheduler that may want its machine back."""
    chosen = {program.number: program for program in made.programs}
    if args.number not in chosen:
        numbers = sorted(chosen)
        known = (
            f"{numbers[0]} to {numbers[-1]}" if numbers == list(range(len(numbers))) else ", ".join(map(str, numbers))
        )
        raise UserError(f"--number must be one of {known} for {made.out}, got {args.number}")
    program = chosen[args.number]
    name, folders = program_label([program]), [group.folder for group in program.groups]
    if program.finished or (made.out / STOP).exists():
        state = "finished" if program.finished else "stopped"
        return {"folder": folders[0], "folders": folders, "state": state}, f"{name}: {state} already", 0
    how, clock = sweep.how(quiet=True), Clock.starts(args.minutes)
    workers = Workers(1, how.tries_again, say, clock and clock.end)
    with signals.heard(lambda _: workers.stop()), running.stopped_by_file(made.out, workers.stop):
        outcomes = list(workers.run([program], clips=how.clips))
    states = {outcome.state for outcome in outcomes}
    state = next((each for each in ("stopped", "failed") if each in states), "finished")
    code = {"finished": 0, "stopped": signals.CHECKPOINTED}.get(state, 1)
    reasons = [f"{label(outcome.group)}: {outcome.reason}" for outcome in outcomes if outcome.reason]
    data = {"folder": folders[0], "folders": folders, "state": state, "reason": "\n".join(reasons)}
    return data, "\n".join([f"{name}: {state}", *reasons]), code


def _status(folder: Path) -> Answer:
    made = _planned(replace(sweep_file.read(folder / FILE), out=str(folder)), quiet=True, fixed=True)
    rows = [board.row(group) for group in made.groups]
    reasons = [f"{label(row.group)}: {failure(row.group)}" for row in rows if row.state == "failed"]
    return _as_data(made, rows), "\n".join([board.text(rows), *reasons]), 0


def _as_data(made: Plan, rows: list[board.Row]) -> dict[str, object]:
    def one(row: board.Row) -> dict[str, object]:
        group = row.group
        return {
            "task": group.cell.task,
            "method": group.cell.method,
            "seeds": list(range(group.first, group.first + group.seeds)),
            "folder": group.folder,
            "state": row.state,
            "decision": row.decision,
            "steps": group.cell.config.steps,
            "score": None if row.score is None else {row.score[0]: row.score[1]},
            "reason": failure(group) if row.state == "failed" else "",
        }

    return {"out": made.out, "counts": board.counted(rows), "groups": [one(row) for row in rows]}


def _stop(folder: Path) -> Answer:
    """Ask whoever runs the sweep, on whatever machine, to write checkpoints and leave."""
    (folder / STOP).touch()
    again = f"ubp2 sweep resume {folder} goes on"
    running_here = locks.held(folder)
    end = time.monotonic() + _PATIENCE
    while locks.held(folder) and time.monotonic() < end:
        time.sleep(0.5)
    if locks.held(folder):
        text = f"asked to stop; it still writes checkpoints after {_PATIENCE:.0f} s; {again}"
    elif running_here:
        text = f"stopped; {again}"
    else:
        text = (
            "nothing runs here; tasks on other machines see the request within seconds, and waiting ones leave when "
            f"they start; {again}"
        )
    return {"out": folder, "stopped": not locks.held(folder)}, text, 0
