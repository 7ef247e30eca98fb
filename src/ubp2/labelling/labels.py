"""What `ubp2 labels export | import | verify | stats` do, and what they answer: data for --json, text, exit code."""

from __future__ import annotations

import shlex
from typing import Any

from ubp2.errors import UserError
from ubp2.labelling import statistics, transfer
from ubp2.labelling.labels_options import Export, Import, Labels, Stats, Verify
from ubp2.storage import population

__all__ = ["answer"]

Answer = tuple[dict[str, Any], str, int]


def answer(args: Labels) -> Answer:
    """Do what was asked for."""
    match args.what:
        case Export():
            return _export(args.what)
        case Import():
            return _import(args.what)
        case Verify():
            return _verify(args.what)
        case Stats():
            return _stats(args.what)


def _export(args: Export) -> Answer:
    done = transfer.export(args.run, args.file, anonymous=args.anonymous, overwrite=args.overwrite, intact=args.intact)
    counts = done.header.counts
    people = f"{counts['annotators']} annotator{'' if counts['annotators'] == 1 else 's'}"
    text = f"{counts['labels']} labels and {counts['skips']} skips of {people}: {args.file}"
    if done.damaged:
        text += f"\nleft out: {done.damaged} answers whose question is damaged"
    data = {"file": args.file, "counts": counts, "damaged": done.damaged, "header": done.header.as_dict()}
    return data, text, 0


def _import(args: Import) -> Answer:
    if not args.files:
        raise UserError("ubp2 labels import needs at least one file: ubp2 labels import RUN FILE")
    runs = transfer.import_files(args.run, args.files)
    lines = [
        f"{own.run}: {own.added} added, {own.known} were there; it has {own.labels} labels of other runs"
        for own in runs
    ]
    if any(own.added for own in runs):
        lines.append(f"it learns from them when it goes on: ubp2 train --resume {shlex.quote(str(args.run))}")
    return {"runs": [own._asdict() for own in runs]}, "\n".join(lines), 0


def _verify(args: Verify) -> Answer:
    from ubp2.preference.verification import verify

    data, lines, broken = {}, [], False
    for member in population.members(args.run):
        found = verify(transfer.require_store(member).labels)
        data[str(member)] = found._asdict()
        broken = broken or bool(found.problems)
        counted = ", ".join(f"{number} {name}" for name, number in found.counts.items())
        lines.append(f"{member}: {'DAMAGED' if found.problems else 'whole'}" + (f"; {counted}" if counted else ""))
        lines += [f"  {problem}" for problem in found.problems]
        lines += [f"  what to do: {found.advice}"] if found.problems else []
    return {"whole": not broken, "runs": data}, "\n".join(lines), int(broken)


def _stats(args: Stats) -> Answer:
    runs = [statistics.describe(member) for member in population.members(args.run)]
    return {"runs": runs}, "\n\n".join(map(statistics.as_text, runs)), 0
