"""`ubp2 reproduce`: plan the cells of an experiment, say what they cost, run what is missing, write the report.

The folder is the only state. A cell that is finished is skipped, one that was cut off goes on from its checkpoint, one
that fails is tried again and then reported; the same command continues whatever was interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ubp2.errors import UserError, unknown_name
from ubp2.experiments import plans, running, schedules
from ubp2.experiments.catalogue import ALIASES, EXPERIMENTS, Experiment, Method, chosen_methods, chosen_tasks, find
from ubp2.experiments.cells import PRESETS, folder_of, short
from ubp2.experiments.clock import Clock
from ubp2.experiments.options import Reproduce, settings
from ubp2.experiments.plans import How, Request
from ubp2.experiments.running import Answer, Summary
from ubp2.terminal.flags import check_minutes
from ubp2.terminal.progress import say

__all__ = ["answer", "listing"]

_PRESETS = tuple(name for name in PRESETS if name != "demo")  # which is for a first look


def listing() -> dict[str, dict[str, Any]]:
    """The experiments that there are."""
    return {
        name: {
            "title": each.title,
            "place": each.place,
            "also": [alias for alias, target in ALIASES.items() if target == name],
            "tasks": [short(task) for task in each.tasks],
            "methods": [method.name for method in each.methods],
        }
        for name, each in EXPERIMENTS.items()
    }


def answer(args: Reproduce) -> Answer:
    """Run a table or figure of the paper; 1: some cells failed, 75: stopped, the same command goes on."""
    if args.experiment is None:
        data = listing()
        width = max(map(len, data))
        lines = [f"  {name:{width}}  {own['title']} ({own['place']})" for name, own in data.items()]
        return {"experiments": data}, "\n".join(["ubp2 reproduce NAME, one of:", *lines]), 0
    return _run(args)


def _run(args: Reproduce) -> Answer:
    """Everything: plan, train what is missing, report."""
    check_minutes(args.minutes)
    clock = Clock.starts(args.minutes)
    how = How(args.on, args.address, args.jobs, args.retries, not args.no_clips, args.json, clock)
    how.check()
    wanted = _request(args)
    out = args.out
    if out is None:
        made, _ = plans.planned_cells(wanted)
        out = folder_of(wanted.experiment, args.preset, made[0].config.steps, wanted.settings)
    made = plans.plan(wanted, how, out)
    plans.require_functions(made)
    say(plans.describe(made))
    fitting = schedules.within(made, how)
    if fitting is not None:
        say(schedules.words(fitting))
    if args.dry_run:
        return {**running.as_data(Summary(made, [], [])), **schedules.as_data(fitting)}, "", 0
    with running.only_one(out):
        summary = running.run(made, how, say, train=not args.report_only)
    return running.answer(summary, "the same command")


def _request(args: Reproduce) -> Request:
    experiment = find(args.experiment or "")
    if args.preset not in _PRESETS:
        raise unknown_name("preset of an experiment", args.preset, _PRESETS)
    methods, given = chosen_methods(experiment, args.methods), settings(args.set)
    _check_settings(experiment, methods, given)
    if args.steps is not None and "steps" in given:
        raise UserError("--steps and --set steps both say how long runs are; leave one of them out")
    return Request(
        experiment,
        chosen_tasks(experiment, args.tasks),
        methods,
        preset=args.preset,
        steps=args.steps,
        seeds=args.seeds,
        settings=given,
        together=args.together,
    )


def _check_settings(experiment: Experiment, methods: Sequence[Method], given: Mapping[str, Any]) -> None:
    """Refuse what every cell would get in place of what makes it the cell that it is."""
    for name, flag in (("env", "--tasks"), ("seed", "--seeds")):
        if name in given:
            raise UserError(f"--set {name} would make all cells the same; choose with {flag}")
    own = {name: method.name for method in methods for name in method.settings}
    reduced = [method.name for method in methods if method.budget != 1]
    if reduced:
        own["preferences.budget"] = reduced[-1]
    for name in given:
        if name in own:
            raise UserError(
                f"{name} is what makes {own[name]} the method that it is in {experiment.name}, and --set {name} would "
                f"change it in all cells; leave it out, or compare other values of it with ubp2 sweep (docs/sweeps.md)"
            )
