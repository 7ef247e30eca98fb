"""Progress on a terminal, in a log file, and not at all."""

from __future__ import annotations

import io

from ubp2.terminal.progress import LINE_EVERY, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_log_gets_a_line_now_and_then() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(1000, stream=stream, clock=clock) as progress:
        for decision in range(1, 401):
            clock.now += 0.125
            phase = "warm-up" if decision <= 100 else "planning"
            progress.update(decision, phase=phase, labels=decision // 100 * 20, budget=200)
        progress.note("evaluation: policy 0.60")
        progress.update(400, success=0.6)
    assert LINE_EVERY == 15.0
    assert stream.getvalue().splitlines() == [
        "120/1000 decisions  planning  20/200 labels  8.0/s  ETA 1:50",
        "240/1000 decisions  planning  40/200 labels  8.0/s  ETA 1:35",
        "360/1000 decisions  planning  60/200 labels  8.0/s  ETA 1:20",
        "evaluation: policy 0.60",
        "400/1000 decisions  planning  80/200 labels  success 0.60  8.0/s  ETA 1:15",
    ]


def test_rate_follows_the_last_seconds_and_a_resumed_run_starts_where_it_was() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(10_000, stream=stream, start=5000, clock=clock) as progress:
        for step in range(1, 101):  # 10 a second
            clock.now += 1.0
            progress.update(5000 + 10 * step)
        for step in range(1, 61):  # 1 a second
            clock.now += 1.0
            progress.update(6000 + step)
    lines = stream.getvalue().splitlines()
    assert "  10.0/s  " in lines[0]
    assert "  1.0/s  " in lines[-1]


def test_terminal_gets_a_bar_and_notes_as_they_are() -> None:
    stream = Terminal()
    with Progress(10, stream=stream) as progress:
        progress.update(5, phase="planning", labels=20, budget=40)
        progress.note("[kept] as written")
    shown = stream.getvalue()
    assert "5/10" in shown and "20/40 labels" in shown and "[kept] as written" in shown


def test_quiet_says_nothing() -> None:
    stream = io.StringIO()
    with Progress(10, quiet=True, stream=stream) as progress:
        progress.update(5)
        progress.note("nothing")
    assert stream.getvalue() == ""


def test_several_seeds_say_what_is_summed_and_what_is_a_mean() -> None:
    stream = io.StringIO()
    with Progress(10, stream=stream, clock=Clock()) as progress:
        progress.update(5, seeds=16, phase="planning", labels=80, budget=640, success=0.5)
    assert stream.getvalue() == "5/10 decisions  16 seeds  planning  80/640 labels in all  mean success 0.50\n"
