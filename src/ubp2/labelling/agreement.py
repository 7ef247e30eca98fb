"""How far annotators agree with each other and with themselves: Cohen's kappa and Krippendorff's alpha.

Both compare what was seen to what chance would give. Two people who both answer "left" nine times in ten agree often
without having looked, and only the part of their agreement beyond that counts.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Protocol

__all__ = ["cohen_kappa", "krippendorff_alpha", "summary"]


class _Given(Protocol):
    """What is read of an answer; `ubp2.preference.store.Given` has it."""

    @property
    def query_id(self) -> int: ...
    @property
    def annotator(self) -> str: ...
    @property
    def label(self) -> float: ...
    @property
    def weight(self) -> float: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def swapped(self) -> bool: ...


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Cohen's kappa of two annotators over the same units, in order (Cohen 1960).

    1: they always agree; 0: as often as chance. NaN without units, or where both always say the same one thing: chance
    alone then gives full agreement, and nothing can be said.
    """
    if len(first) != len(second):
        raise ValueError(f"both annotators judge the same units, got {len(first)} and {len(second)}")
    if not first:
        return math.nan
    count = len(first)
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / count
    a, b = Counter(first), Counter(second)
    expected = sum(a[value] * b[value] for value in a) / count**2
    return math.nan if expected == 1 else (observed - expected) / (1 - expected)


def krippendorff_alpha(units: Iterable[Iterable[Hashable]]) -> float:
    """Krippendorff's alpha for nominal values; a unit is the values it was given, missing ones left out.

    Any number of annotators, who need not have judged all units. A unit with one value says nothing about agreement
    and drops out (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"). NaN where no unit has two values,
    or where all values are alike.
    """
    values: Counter[Hashable] = Counter()
    disagreement = 0.0
    for unit in units:
        own = Counter(unit)
        size = own.total()
        if size < 2:
            continue
        values += own
        # Ordered pairs of unlike values, each unit weighted so that a value counts once whoever judged how often.
        disagreement += (size**2 - sum(n**2 for n in own.values())) / (size - 1)
    total = values.total()
    expected = total**2 - sum(n**2 for n in values.values())
    return 1 - (total - 1) * disagreement / expected if expected else math.nan


def summary(given: Sequence[_Given], checks: Sequence[_Given]) -> dict[str, Any]:
    """Agreement between annotators, of each with himself, and habits that spoil labels; JSON, None for "cannot say".

    Values are left, tie and right of the question, whichever side they were shown on. Who cannot tell has not judged.
    """
    judged: dict[str, dict[int, float]] = defaultdict(dict)
    for answer in given:
        if answer.weight > 0:
            judged[answer.annotator][answer.query_id] = answer.label
    units: dict[int, list[float]] = defaultdict(list)
    for own in judged.values():
        for query, label in own.items():
            units[query].append(label)
    return {
        "alpha": _number(krippendorff_alpha(units.values())),
        "shared": sum(len(unit) > 1 for unit in units.values()),
        "pairs": [
            _pair(a, b, judged) for a, b in combinations(sorted(judged), 2) if judged[a].keys() & judged[b].keys()
        ],
        "annotators": [
            _person(name, [a for a in given if a.annotator == name], [c for c in checks if c.annotator == name])
            for name in sorted({a.annotator for a in given} | {c.annotator for c in checks})
        ],
    }


def _pair(a: str, b: str, judged: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    both = sorted(judged[a].keys() & judged[b].keys())
    first, second = [judged[a][query] for query in both], [judged[b][query] for query in both]
    agree = sum(x == y for x, y in zip(first, second, strict=True))
    return {"a": a, "b": b, "both": len(both), "agree": agree, "kappa": _number(cohen_kappa(first, second))}


def _person(name: str, given: Sequence[_Given], checks: Sequence[_Given]) -> dict[str, Any]:
    """One annotator: how many answers, how fast, how often the same when asked again, how often the left picture."""
    before = {answer.query_id: answer.label for answer in given if answer.weight > 0}
    now = {check.query_id: check.label for check in checks if check.weight > 0}  # the last of several counts
    again = before.keys() & now.keys()
    seconds = [answer.seconds for answer in given if answer.seconds is not None]
    decided = [answer for answer in given if answer.weight > 0 and answer.label != 0.5]
    shown_left = sum((answer.label > 0.5) != bool(answer.swapped) for answer in decided)
    return {
        "name": name,
        "answers": len(given),
        "cannot_tell": sum(answer.weight == 0 for answer in given),
        "equal": sum(answer.weight > 0 and answer.label == 0.5 for answer in given),
        "seconds": statistics.median(seconds) if seconds else None,
        "shown_left": shown_left / len(decided) if decided else None,
        "repeated": len(again),
        "consistent": sum(before[query] == now[query] for query in again),
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
