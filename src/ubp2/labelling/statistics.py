"""What `ubp2 labels stats` tells: who answered how much, how fast, how often the same, and how far people agree."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ubp2.labelling.agreement import summary
from ubp2.labelling.transfer import require_store
from ubp2.preference.imported import Label
from ubp2.preference.records import Given, encode
from ubp2.preference.store import LabelStore

__all__ = ["as_text", "describe"]

BREAK = 15 * 60  # seconds without an answer after which a new sitting begins


def describe(folder: Path) -> dict[str, Any]:
    """Numbers about the labels of one run, imported ones included."""
    with LabelStore(require_store(folder).labels) as store:
        labels, asked_again = list(store.labels()), store.checks()
        questions = {each.query_id: store.question(each.query_id) for each in asked_again}
        asked = store.count().asked
    # The same pair, answered here and in a file from elsewhere, is one pair.
    numbers = {fingerprint: n for n, fingerprint in enumerate(dict.fromkeys(each.fingerprint for each in labels))}
    given = [_given(each, numbers[each.fingerprint]) for each in labels]
    checks = []
    for check in asked_again:
        question = questions[check.query_id]
        number = numbers.get(encode(question.query)[0]) if question else None
        if number is not None:
            checks.append(check._replace(query_id=number))
    agreement = summary(given, checks)
    people = {own["name"]: own for own in agreement["annotators"]}
    return {
        "run": str(folder),
        "asked": asked,
        "labels": sum(each.weight > 0 for each in labels),
        "imported": sum(each.weight > 0 and each.run != "" for each in labels),
        "ties": sum(each.weight > 0 and each.label == 0.5 for each in labels),
        "skips": sum(each.weight == 0 for each in labels),
        "sessions": len({each.session for each in labels if each.run == ""}),
        "seconds": _seconds(labels),
        "annotators": {name: _person([e for e in labels if e.annotator == name], people[name]) for name in people},
        "agreement": {name: agreement[name] for name in ("alpha", "shared", "pairs")},
    }


def _given(label: Label, number: int) -> Given:
    said = (label.annotator, label.label, label.weight, label.seconds, label.swapped, label.answered_at)
    return Given(0, number, label.session, *said, label.reason)


def _seconds(labels: Sequence[Label]) -> dict[str, float | None]:
    """How long answers took, of those that were timed."""
    took = [each.seconds for each in labels if each.seconds is not None]
    if not took:
        return {"median": None, "p90": None}
    return {"median": float(np.median(took)), "p90": float(np.percentile(took, 90))}


def _person(labels: Sequence[Label], habits: dict[str, Any]) -> dict[str, Any]:
    """One annotator. A person who is asked again often says the same, and prefers neither side of the screen."""
    when = sorted(each.answered_at for each in labels)
    sittings = sum(now - before > BREAK for before, now in zip([-np.inf, *when], when, strict=False))
    return {
        "answers": len(labels),
        "ties": sum(each.weight > 0 and each.label == 0.5 for each in labels),
        "skips": sum(each.weight == 0 for each in labels),
        "seconds": _seconds(labels),
        "sittings": sittings,
        "first": _time(when[0]) if when else None,
        "last": _time(when[-1]) if when else None,
        "shown_left": habits["shown_left"],
        "asked_again": habits["repeated"],
        "same_again": habits["consistent"] / habits["repeated"] if habits["repeated"] else None,
    }


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def as_text(data: dict[str, Any]) -> str:
    """The same for a terminal."""
    took = data["seconds"]
    lines = [
        data["run"],
        f"  {data['labels']} labels ({data['imported']} of other runs), {data['ties']} ties, {data['skips']} skips, "
        f"{data['asked']} questions in {data['sessions']} sessions",
        f"  seconds an answer: median {_n(took['median'])}, 90 % below {_n(took['p90'])}",
        "",
    ]
    head = ("annotator", "answers", "ties", "skips", "median s", "p90 s", "sittings", "left", "again", "same")
    rows: list[tuple[str, ...]] = [head]
    for name, own in data["annotators"].items():
        seconds = (_n(own["seconds"]["median"]), _n(own["seconds"]["p90"]))
        numbers = (own["answers"], own["ties"], own["skips"], *seconds, own["sittings"], _n(own["shown_left"], 2))
        rows.append((name, *map(str, numbers), str(own["asked_again"]), _n(own["same_again"], 2)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  " + "  ".join([row[0].ljust(widths[0]), *cells[1:]]))
    agreement = data["agreement"]
    lines += [
        "",
        f"  pairs answered by several: {agreement['shared']}; Krippendorff's alpha {_n(agreement['alpha'], 2)}",
    ]
    lines += [
        f"  {pair['a']} and {pair['b']}: {pair['both']} pairs, {pair['agree'] / pair['both']:.0%} the same, "
        f"Cohen's kappa {_n(pair['kappa'], 2)}"
        for pair in agreement["pairs"]
    ]
    return "\n".join(lines)


def _n(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
