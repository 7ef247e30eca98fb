"""Scores in tables and sentences of the docs are those that the commands beside them print from the raw files.

A score stands with its interval, `0.95 [0.75, 1.00]`, which is too particular to be there by chance. Where a page has
the planner and the policy in one cell, `0.95 [0.75, 1.00] / 0.60`, the policy's number is held, too. Of a difference
the sign is held where it is negative: a page may leave out a plus.
"""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from tests.bench.scripts import load
from tests.docs.pages import ROOT, pages
from ubp2.evaluation import figures
from ubp2.evaluation.imports import read_file

NUMBER = r"-?\d\.\d\d"
SCORE = re.compile(rf"({NUMBER}) \[({NUMBER}), ({NUMBER})\](?: / ({NUMBER}))?")
READS = re.compile(r"^python benchmarks/curves\.py (.*--(?:table|versus|stability) .*)$", re.MULTILINE)
REPORTS = re.compile(r"^ubp2 report (benchmarks/\S+\.csv) ", re.MULTILINE)
# Pages that repeat what the commands of another print.
REPEATS = {
    "README.md": "docs/results.md",
    "docs/agents/pebble.md": "docs/results.md",
    "docs/agents/mrn.md": "docs/results.md",
    "docs/agents/surf.md": "docs/results.md",
}
SCORED = sorted(name for name, text in pages().items() if SCORE.search(text))


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What the commands of each page print, and those of the page that it repeats."""
    said = {page: _said(pages()[page]) for page in {*SCORED, *REPEATS.values()}}
    return {page: said[page] + said.get(REPEATS.get(page, ""), "") for page in said}


def _said(text: str) -> str:
    """What the commands of a page print, and what they write into the figure of improvement."""
    curves, lines = load("curves"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "print", lines.append, raising=False)
        for line in READS.findall(text):
            patch.setattr(sys, "argv", ["curves.py", *shlex.split(line)])
            assert curves.main() == 0
    for file in REPORTS.findall(text):
        (axes,) = figures.improvement(read_file(ROOT / file), "UBP2").axes
        lines += [own.get_text() for own in axes.texts]
    return "\n".join(lines).replace("+", "")


def test_pages_with_scores_are_found() -> None:
    assert {"README.md", "docs/results.md", "docs/reward-learning.md"} <= set(SCORED)


@pytest.mark.slow
@pytest.mark.parametrize("page", SCORED)
def test_scores_are_printed_by_a_command(page: str, printed: dict[str, str]) -> None:
    cells = {match.groups() for match in SCORE.finditer(pages()[page].replace("+", ""))}
    unknown = [_text(cell) for cell in sorted(cells, key=str) if not _stands(cell, printed[page])]
    assert not unknown, f"{page}: no command on the page prints {', '.join(unknown)}"


def _text(cell: tuple[str | None, ...]) -> str:
    score, low, high, policy = cell
    return f"{score} [{low}, {high}]" + (f" / {policy}" if policy else "")


def _stands(cell: tuple[str | None, ...], printed: str) -> bool:
    score, low, high, policy = cell
    words = re.escape(f"{score} [{low}, {high}]") + (rf" \| {re.escape(policy)}\b" if policy else "")
    return re.search(rf"(?<![\d.-]){words}", printed) is not None
