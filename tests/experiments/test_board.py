"""The table of a plan while it runs, and once for whoever asks."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from tests.experiments.test_cells import made
from ubp2.experiments import board
from ubp2.experiments.board import Board
from ubp2.experiments.cells import Group
from ubp2.storage import locks
from ubp2.terminal.progress import Progress


def groups(out: Path) -> list[Group]:
    cells = made(out=out, preset="cpu", tasks=("toy/reach",), methods=("ubp2",), steps=2000)
    return [Group(cells[0], first, 1) for first in range(4)]


def evaluated(group: Group, decision: int, success: float) -> None:
    group.folder.mkdir(parents=True)
    row = {"kind": "eval", "decision": decision, "policy/success_any": success, "policy/return": 3.0}
    (group.folder / "metrics.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")


def test_states_are_read_from_the_folders(tmp_path: Path) -> None:
    done, busy, broken, waiting = groups(tmp_path)
    evaluated(done, 2000, 0.5)
    evaluated(busy, 200, 0.25)
    broken.folder.with_name("seeds-2.failed").write_text("code 2; the end of its log", encoding="utf-8")
    lock = locks.take(busy.folder)
    try:
        rows = [board.row(group) for group in (done, busy, broken, waiting)]
    finally:
        os.close(lock)
    assert [row.state for row in rows] == ["finished", "running", "failed", "waiting"]
    assert rows[0].score == ("success", 0.5)
    text = board.text(rows)
    assert "200 of 2,000" in text and "success 0.25" in text
    assert text.endswith("1 failed, 1 running, 1 waiting, 1 finished")


def test_the_score_is_there_however_long_ago_it_was_seen(tmp_path: Path) -> None:
    """A run writes about 1,200 bytes every hundred decisions, and may be evaluated every 20,000."""
    own = groups(tmp_path)[0]
    evaluated(own, 200, 0.25)
    with (own.folder / "metrics.jsonl").open("a", encoding="utf-8") as stream:
        for decision in range(300, 20_300, 100):
            stream.write(json.dumps({"kind": "train", "decision": decision, "loss": "x" * 1200}) + "\n")
    found = board.row(own)
    assert (found.decision, found.score) == (20_200, ("success", 0.25))


def test_the_live_table_stands_above_the_bar_and_follows_the_runs(tmp_path: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    first, *_ = groups(tmp_path)
    live, stream = Board(groups(tmp_path)), Terminal()
    evaluated(first, 2000, 1.0)
    assert [row.state for row in live.refresh()] == ["finished", "waiting", "waiting", "waiting"]
    with Progress(4000, stream=stream, above=live.drawn) as progress:
        progress.update(1000)
    assert "3 waiting, 1 finished" in stream.getvalue() and "1000/4000" in stream.getvalue()


def test_a_long_table_shows_what_runs_and_counts_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "_ROWS", 1)
    broken = groups(tmp_path)[3]
    broken.folder.parent.mkdir(parents=True)
    broken.folder.with_name("seeds-3.failed").write_text("why", encoding="utf-8")
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(Board(groups(tmp_path)).drawn())
    text = console.export_text()
    assert "seed 3" in text and "seed 0" not in text and "1 failed, 3 waiting; 3 not shown" in text
