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


def test_a_run_that_has_nothing_left_to_do_tells_its_labels() -> None:
    stream = io.StringIO()
    with Progress(100, stream=stream, clock=Clock()) as progress:
        progress.update(0, labels=0, budget=40)
        progress.resume(100, labels=40)
    assert stream.getvalue() == "100/100 decisions  40/40 labels\n"


def test_no_eta_from_a_rate_that_will_not_last() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(1000, stream=stream, clock=clock) as progress:
        for decision in range(1, 301):
            warm = decision <= 100  # 20 decisions a second there, 2 a second afterwards
            clock.now += 0.05 if warm else 0.5
            progress.update(decision, phase="warm-up" if warm else "planning", steady=not warm)
            if decision == 90:
                progress._line()
        clock.now += 40.0
        progress.update(300, phase="waiting for a person", steady=False)
        for decision in (301, 302):
            clock.now += 0.5
            progress.update(decision, phase="planning", steady=True)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "90/1000 decisions  warm-up  20.0/s"
    assert lines[1] == "130/1000 decisions  planning  2.0/s  ETA 7:15"
    assert "waiting" in lines[-2] and "ETA" not in lines[-2]
    assert lines[-1] == "302/1000 decisions  planning  2.0/s  ETA 5:49"


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
