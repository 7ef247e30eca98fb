"""Results of other people: CSV or JSONL, one evaluation of one seed a line.

Columns are task, method, seed, decision and one of success, return and score. Optional are labels, steps (decisions
that a run was to have) and settings of the protocol (``preferences.budget``); others are left alone. A column whose
name says so, as "success (%)", is in percent. Files as `benchmarks/results/` has them, with ``planner/success_any``,
can be read as well.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from ubp2.errors import UserError, did_you_mean
from ubp2.evaluation.protocol import SETTINGS
from ubp2.evaluation.results import Controller, Series

__all__ = ["SUFFIXES", "read_file"]

SUFFIXES = (".csv", ".jsonl")
_PERCENT = re.compile(r"[\s_]*(\(%\)|\[%\]|%|percent)$", re.IGNORECASE)
_MOST = 2**53  # from here on not every whole number is one of its own as a float
_METRICS = {"success": "success", "return": "return", "score": "success"}  # a column, and what it measures


class _Column(NamedTuple):
    """Where the scores stand."""

    name: str
    metric: str
    scale: float = 1.0


class _Line(NamedTuple):
    """One line, and how errors call the place."""

    path: Path
    number: int
    values: Mapping[str, Any]

    def error(self, column: str, expected: str) -> UserError:
        """What was expected in a column, and what came."""
        return UserError(
            f"{self.path}, line {self.number}, column '{column}': expected {expected}, got {self.values.get(column)!r}"
        )

    def number_in(self, column: str, expected: str = "a number") -> float:
        """A finite number."""
        value = self.values.get(column)
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            raise self.error(column, expected) from None
        if isinstance(value, bool) or not math.isfinite(number):
            raise self.error(column, expected)
        return number

    def count_in(self, column: str) -> int:
        """A whole number that is not negative."""
        expected = "a whole number, 0 or more"
        number = self.number_in(column, expected)
        if not 0 <= number < _MOST or number != int(number):
            raise self.error(column, expected)
        return int(number)

    def text_in(self, column: str) -> str:
        """A name."""
        value = self.values.get(column)
        if not isinstance(value, str) or not value.strip():
            raise self.error(column, "a name")
        return value.strip()


def read_file(
    path: Path | str, *, task: str | None = None, method: str | None = None, controller: Controller = "acting"
) -> list[Series]:
    """Read the series of a file; `task` and `method` stand for columns that it does not have, and go before them."""
    path = Path(path)
    lines = list(_lines(path))
    if not lines:
        raise UserError(f"{path} has no line of results")
    columns = list(dict.fromkeys(name for line in lines for name in line.values))
    for name, given in (("task", task), ("method", method)):
        if given is None and name not in columns:
            raise UserError(
                f"{path} has no column '{name}'.{did_you_mean(name, columns)} Add one, or name both where the file is "
                f"named: TASK:METHOD={path}"
            )
    for name in ("seed", "decision"):
        if name not in columns:
            raise UserError(
                f"{path} has no column '{name}'.{did_you_mean(name, columns)} Columns: {', '.join(columns)}"
            )
    score = _score_column(path, columns, controller)
    groups: dict[tuple[str, str, int], list[_Line]] = defaultdict(list)
    for line in lines:
        named = (task or line.text_in("task"), method or line.text_in("method"))
        groups[*named, line.count_in("seed")].append(line)
    last: dict[tuple[str, str], int] = defaultdict(int)
    series = [_series(key, own, score) for key, own in groups.items()]
    for one in series:
        last[one.task, one.method] = max(last[one.task, one.method], int(one.decision[-1]), one.steps)
    # Where nothing says how far a seed was to go, one that ends before its like was not finished.
    return [replace(one, steps=one.steps or last[one.task, one.method]) for one in series]


def _lines(path: Path) -> Iterator[_Line]:
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"results are read from {' or '.join(SUFFIXES)} files, got {path}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if path.suffix.lower() == ".csv":
        yield from _csv_lines(path, text)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                values = json.loads(line)
            except ValueError as error:
                raise UserError(f"{path}, line {number}: not valid JSON ({error})") from None
            if not isinstance(values, dict):
                raise UserError(f"{path}, line {number}: expected a JSON object, got {line.strip()[:40]}")
            yield _Line(path, number, values)


def _csv_lines(path: Path, text: str) -> Iterator[_Line]:
    """A line for each row; a column without a name, as pandas writes its index, is left alone."""
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        for row in filter(None, reader):
            if len(row) != len(header):
                raise UserError(
                    f"{path}, line {reader.line_num}: expected {len(header)} values as in the header, got {len(row)}"
                )
            named = {name: value for name, value in zip(header, row, strict=True) if name}
            yield _Line(path, reader.line_num, named)
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from None


def _score_column(path: Path, columns: list[str], controller: Controller) -> _Column:
    """The one column of scores: a plain one, or the controller's of a file of `benchmarks/results/`."""
    found = [
        _Column(name, _METRICS[plain], 0.01 if plain != name.strip().lower() else 1.0)
        for name in columns
        if (plain := _PERCENT.sub("", name.strip().lower())) in _METRICS
    ]
    if len(found) > 1:
        raise UserError(f"{path} has several columns of scores: {', '.join(c.name for c in found)}; leave one")
    if found:
        return found[0]
    for key, metric in (("success_any", "success"), ("return", "return")):
        own = [who for who in ("planner", "policy") if f"{who}/{key}" in columns]
        if len(own) == 2 and controller == "acting":
            raise UserError(
                f"{path} has scores of the planner and of the policy and does not tell which the agent acted with; "
                f"choose one with --controller planner or --controller policy"
            )
        own = own if controller == "acting" else [who for who in own if who == controller]
        if own:
            return _Column(f"{own[0]}/{key}", metric)
    raise UserError(
        f"{path} has no column of scores; expected success, 'success (%)', return or score, got {', '.join(columns)}"
    )


def _series(key: tuple[str, str, int], lines: list[_Line], column: _Column) -> Series:
    points: dict[int, tuple[float, float]] = {}
    for line in lines:
        decision, score = line.count_in("decision"), line.number_in(column.name) * column.scale
        if decision in points:
            raise line.error("decision", f"each decision once for seed {key[2]} of {key[1]} on {key[0]}")
        if column.metric == "success" and not 0 <= score <= 1:
            scale = "0 and 100" if column.scale < 1 else "0 and 1 (or call the column 'success (%)')"
            raise line.error(column.name, f"a number between {scale}")
        labels = line.values.get("labels")
        points[decision] = (score, math.nan if labels in (None, "") else line.count_in("labels"))
    decisions = sorted(points)
    values = np.array([points[decision] for decision in decisions], float)
    return Series(
        *key,
        np.array(decisions, int),
        values[:, 0],
        values[:, 1],
        column.metric,
        max((line.count_in("steps") for line in lines if line.values.get("steps") not in (None, "")), default=0),
        protocol=_protocol(lines) | {"metric": column.metric},
    )


def _protocol(lines: list[_Line]) -> dict[str, Any]:
    """Settings of the protocol among the columns; as they stand in a configuration, so that 500 is a number.

    What is empty is not known; null is known to be unset.
    """
    known: dict[str, Any] = {}
    for line in lines:
        for name in SETTINGS:
            if line.values.get(name, "") != "":
                value = _setting(line, name)
                if known.setdefault(name, value) != value:
                    raise line.error(name, f"{known[name]!r} as on the lines before of the same seed")
    return known


def _setting(line: _Line, name: str) -> Any:
    """A value as a configuration takes it, also 1e-5, which YAML reads as text."""
    value = line.values[name]
    try:
        value = yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError:
        raise line.error(name, "a value as in a configuration file") from None
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return value
