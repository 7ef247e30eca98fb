"""How a run reports to the person who started it: a live bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from ubp2.terminal.colour import wanted

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["Progress", "say"]

LINE_EVERY = 15.0  # seconds between plain lines
RATE_OVER = 20.0  # seconds over which decisions/s is measured: follows the change from warm-up to planning


def say(text: str) -> None:
    """Tell whoever sits at the terminal; stdout is for answers."""
    print(text, file=sys.stderr, flush=True)


class Progress:
    """Shows where a run of `total` decisions stands. Writes to `stream` (stderr), never to stdout.

    `update` takes the decision and any of these fields; what is left out keeps its last value:
    phase ("warm-up", "planning", "policy" and the like), labels, budget, success, seeds. It is cheap to call.
    steady=False: what is left will not go at the rate of now, as in a warm-up, while programs compile or while people
    are waited for; there is no ETA then, and the rate is counted anew afterwards.
    With several seeds the phase is that of the slowest, labels and budget are those of all, and success is the mean.
    `above` draws something over the bar on a terminal: what it returns is for rich, and asked for at every refresh.
    """

    def __init__(
        self,
        total: int,
        quiet: bool = False,
        stream: TextIO | None = None,
        *,
        start: int = 0,
        above: Callable[[], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = total
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._above = above
        self._clock = clock
        self._fields: dict[str, Any] = {}
        self._bar: Bar | None = None
        self._task: Any = None
        self._decision = start
        self._marks: list[tuple[float, int]] = []  # (time, decision), the oldest about RATE_OVER seconds ago
        self._last_line = float("-inf")

    def __enter__(self) -> Self:
        self._marks = [(self._clock(), self._decision)]
        self._last_line = self._clock()
        if not self._quiet and self._stream.isatty():
            self._bar = _make_bar(self._stream, self._above)
            self._task = self._bar.add_task("", total=self.total, completed=self._decision, text="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        elif not self._quiet:
            self._line()

    def update(self, decision: int, **fields: Any) -> None:
        """Report that `decision` decisions are done."""
        now = self._clock()
        if fields.get("steady", True) and not self._fields.get("steady", True):
            self._marks = [(now, decision)]
        self._decision = decision
        self._fields.update(fields)
        if self._quiet:
            return
        self._mark(now)
        if self._bar is not None:
            self._bar.update(self._task, completed=decision, text=self._text())
        elif now - self._last_line >= LINE_EVERY:
            self._line()

    def resume(self, decision: int, **fields: Any) -> None:
        """Start from `decision`, so that what an earlier process did counts neither for the rate nor for the ETA."""
        self._decision = decision
        self._fields.update(fields)
        self._marks = [(self._clock(), decision)]

    def note(self, message: str) -> None:
        """Say something once, above the bar."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(message, markup=False, highlight=False)
        else:
            print(message, file=self._stream, flush=True)

    def _mark(self, now: float) -> None:
        """Remember the time about once a second, and forget what is older than the window."""
        if not self._marks or now - self._marks[-1][0] >= 1.0:
            self._marks.append((now, self._decision))
        while len(self._marks) > 2 and now - self._marks[1][0] > RATE_OVER:
            self._marks.pop(0)

    def _rate(self) -> float | None:
        if not self._marks:
            return None
        then, before = self._marks[0]
        elapsed = self._clock() - then
        return (self._decision - before) / elapsed if elapsed > 0 and self._decision > before else None

    def _text(self) -> str:
        """The fields as one short phrase, such as 'planning  80/400 labels  success 0.60  35.1/s  ETA 1:20'."""
        fields, rate = self._fields, self._rate()
        many = fields.get("seeds", 1) > 1
        parts = [f"{fields['seeds']} seeds"] if many else []
        parts += [str(fields["phase"])] if "phase" in fields else []
        if "labels" in fields:
            of = f"/{fields['budget']}" if fields.get("budget") is not None else ""
            parts.append(f"{fields['labels']}{of} labels{' in all' if many else ''}")
        if fields.get("success") is not None:
            parts.append(f"{'mean ' if many else ''}success {fields['success']:.2f}")
        if rate is not None:
            parts.append(f"{rate:.1f}/s")
        if rate is not None and fields.get("steady", True):
            parts.append(f"ETA {_duration((self.total - self._decision) / rate)}")
        return "  ".join(parts)

    def _line(self) -> None:
        self._last_line = self._clock()
        print(f"{self._decision}/{self.total} decisions  {self._text()}".rstrip(), file=self._stream, flush=True)


def _make_bar(stream: TextIO, above: Callable[[], Any] | None = None) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    class Below(Bar):
        def get_renderables(self) -> Iterable[Any]:
            if above is not None:
                yield above()
            yield from super().get_renderables()

    return Below(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        console=Console(file=stream) if wanted(stream) else Console(file=stream, color_system=None),
        refresh_per_second=4,
        redirect_stdout=False,
    )


def _duration(seconds: float) -> str:
    """Hours, minutes and seconds, as short as it goes: 1:20, 2:03:00."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"
