"""The part of a plan that fits into the minutes of a call: programs that end, how far the next comes, the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ubp2.experiments.clock import LEAST, Clock
from ubp2.experiments.costs import START, Cost, device_kind, duration
from ubp2.experiments.execution import program_label
from ubp2.experiments.plans import How, Plan
from ubp2.experiments.programs import Program

__all__ = ["Fitting", "as_data", "within", "words"]


@dataclass(frozen=True)
class Share:
    """The part of one program that a call does."""

    program: Program
    seconds: float | None  # that the rest of it takes; None: nobody knows
    rate: float | None  # decisions a second of all its runs
    given: float  # seconds of this call
    decision: int  # to which its runs come

    @property
    def ends(self) -> bool:
        """Whether it is finished in this call."""
        return self.seconds is not None and self.given >= self.seconds


@dataclass(frozen=True)
class Fitting:
    """A plan held against the clock."""

    clock: Clock
    kept: float  # seconds for the report
    shares: list[Share]
    left: float | None  # seconds of later calls; None: nobody knows


def within(made: Plan, how: How) -> Fitting | None:
    """The work of the next call in its minutes; None: it has no limit."""
    if how.clock is None:
        return None
    kept = how.clock.kept(sum(program.runs for program in made.programs))
    end = 60.0 * how.clock.minutes - kept
    lanes = [0.0] * (how.jobs or 1)
    shares: list[Share] = []
    for program, cost in zip(made.programs, made.costs, strict=True):
        if program.finished:
            continue
        lane = lanes.index(min(lanes))
        given = max(end - lanes[lane], 0.0)
        given = given if given >= LEAST else 0.0
        shares.append(_share(program, cost, given))
        lanes[lane] += given if cost.seconds is None else min(given, cost.seconds)
    known = [max(share.seconds - share.given, 0.0) for share in shares if share.seconds is not None]
    return Fitting(how.clock, kept, shares, sum(known) if len(known) == len(shares) else None)


def _share(program: Program, cost: Cost, given: float) -> Share:
    """One program, with so many seconds in this call."""
    group = min(program.groups, key=lambda group: group.decision)
    left, start = group.cell.config.steps - group.decision, 0.0 if cost.measured else START[device_kind()]
    if cost.seconds is None:
        return Share(program, None, None, given, group.decision)
    working = max(cost.seconds - start, 1e-9)
    come = min(max(given - start, 0.0) / working, 1.0)
    return Share(program, cost.seconds, cost.decisions / working, given, group.decision + int(left * come))


def words(fitting: Fitting) -> str:
    """The schedule as a person reads it."""
    minutes = fitting.clock.minutes
    ending = [share for share in fitting.shares if share.ends]
    known = all(share.seconds is not None for share in fitting.shares)
    count = f": {len(ending)} of {len(fitting.shares)} program{'s' * (len(fitting.shares) != 1)} to the end"
    lines = [f"in {minutes:g} minutes, {duration(fitting.kept)} of them for the report{count * known}"]
    lines += [f"  {_line(share)}" for share in fitting.shares if share.given]
    waiting = [share for share in fitting.shares if not share.given]
    if waiting:
        runs = sum(share.program.runs for share in waiting)
        lines.append(f"  {len(waiting)} more programs, {runs} runs: not begun")
    if len(ending) < len(fitting.shares):
        time = "" if fitting.left is None else f" with what is left, about {duration(fitting.left)}"
        lines.append(f"the next call goes on{time}" if known else "the next call goes on with what is left")
    return "\n".join(lines)


def _line(share: Share) -> str:
    program, steps = share.program, share.program.groups[0].cell.config.steps
    name = program_label([program])
    name += "" if len(program.groups) > 1 else f": {program.runs} run{'s' * (program.runs > 1)}"
    if share.seconds is None or share.rate is None:
        return f"{name}, {steps:,} decisions each, at a rate that nobody has measured"
    come = "to the end" if share.ends else f"to decision {share.decision:,} of {steps:,}"
    spent = min(share.seconds, share.given)
    return f"{name}, about {share.rate:,.0f} decisions a second, {spent / 60:.1f} min of this call: {come}"


def as_data(fitting: Fitting | None) -> Mapping[str, Any]:
    """For --json: nothing without a limit."""
    if fitting is None:
        return {}
    programs = [
        {
            "program": share.program.number,
            "runs": share.program.runs,
            "decisions_per_second": share.rate,
            "seconds": share.seconds,
            "seconds_of_this_call": share.given if share.seconds is None else min(share.given, share.seconds),
            "decision_after_this_call": share.decision,
            "ends_in_this_call": share.ends,
        }
        for share in fitting.shares
    ]
    return {
        "minutes": fitting.clock.minutes,
        "seconds_for_the_report": fitting.kept,
        "programs": programs,
        "seconds_left_for_later_calls": fitting.left,
    }
