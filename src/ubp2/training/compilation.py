"""Programs that compile in the background, so that a run acts at random while what it plans with is still compiling.

Tracing and XLA's compilation take longer than hundreds of random decisions. XLA releases the interpreter's lock, so a
few threads compile side by side while the loop goes on; a program that is called too early waits for its own.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any

import jax

__all__ = ["Program", "busy"]

THREADS = min(4, max(2, (os.cpu_count() or 2) // 2))  # XLA uses several cores itself
EXIT_SECONDS = 60.0  # how long an interpreter that ends waits for the compilations under way
POLL_SECONDS = 0.1
# cuBLAS alone does the products: trying kernels of XLA's own against it takes longer than they ever save here.
GPU_OPTIONS: dict[str, bool | str] = {"xla_gpu_enable_triton_gemm": False}


class Program:
    """A jitted function for one set of shapes. `bound` are first arguments that never change, such as random keys.

    They are arguments and not constants, so that runs that differ in them alone share an entry of jax's cache.
    """

    def __init__(self, function: Callable[..., Any], *, bound: tuple[Any, ...] = (), donate: tuple[int, ...] = ()):
        self._jitted = jax.jit(
            function,
            donate_argnums=tuple(len(bound) + i for i in donate),
            compiler_options=GPU_OPTIONS if jax.default_backend() == "gpu" else None,
        )
        self._bound = bound
        self._tracing: Future[Any] = Future()
        self._compiling: Future[Any] = Future()
        self._begun = threading.Lock()  # held by whoever compiles, and never released: a program compiles once
        self._queued = self._cancelled = False
        self._executable: Callable[..., Any] | None = None

    def prepare(self, *shapes: Any) -> None:
        """Let a background thread trace and compile for arguments of these shapes (ShapeDtypeStructs or arrays)."""
        self._queued = True
        _BACKGROUND.submit(lambda: None if self._cancelled else self._compile(shapes))

    def outputs(self) -> Any:
        """Shapes of what it returns: of a function without arguments at once, of another as soon as it is traced."""
        if not self._begun.locked() and not self._queued:
            return self._jitted.trace(*self._bound).out_info
        return self._tracing.result()

    def ready(self, stopping: Callable[[], bool]) -> bool:
        """Wait until it can be called; False where a signal came first. An error of the compilation is raised here."""
        while self._executable is None:
            if not self._begun.locked() or stopping():
                return not stopping()  # nobody compiles it: the first call does
            try:
                self._compiling.result(timeout=POLL_SECONDS)
            except NotYet:
                continue
        return True

    def __call__(self, *arguments: Any) -> Any:
        if self._executable is None:
            self._compile(arguments)
            self._compiling.result()
        assert self._executable is not None
        return self._executable(*self._bound, *arguments)

    @property
    def compilations(self) -> int:
        """0 or 1: one program, one shape."""
        return int(self._executable is not None)

    def cancel(self) -> None:
        """Forget a compilation that has not begun."""
        self._cancelled = True

    def _compile(self, shapes: tuple[Any, ...]) -> None:
        if not self._begun.acquire(blocking=False):
            return
        try:
            traced = self._jitted.trace(*self._bound, *shapes)
            self._tracing.set_result(traced.out_info)
            self._executable = traced.lower().compile()
            self._compiling.set_result(self._executable)
        except BaseException as error:
            for future in (self._tracing, self._compiling):
                if not future.done():
                    future.set_exception(error)


class _Background:
    """Daemon threads that work off a queue. They start with the first piece of work and live as long as the process."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Condition()
        self._running = 0
        self._ending = False

    def submit(self, work: Callable[[], None]) -> None:
        if not self._threads:
            self._threads = [threading.Thread(target=self._serve, name="compile", daemon=True) for _ in range(THREADS)]
            for thread in self._threads:
                thread.start()
            atexit.register(self.finish)
        self._queue.put(work)

    def busy(self) -> bool:
        return self._running > 0

    def finish(self) -> None:
        """Begin nothing more, and let XLA end what it is in the middle of: an interpreter that goes away under it may
        crash. The command line does not wait for that (`ubp2.__main__`)."""
        with self._idle:
            self._ending = True
            self._idle.wait_for(lambda: not self._running, timeout=EXIT_SECONDS)

    def _serve(self) -> None:
        while True:
            work = self._queue.get()
            with self._idle:
                if self._ending:
                    return
                self._running += 1
            try:
                work()
            finally:
                del work  # it holds the program and, in its shapes, perhaps arrays
                with self._idle:
                    self._running -= 1
                    self._idle.notify_all()


_BACKGROUND = _Background()


def busy() -> bool:
    """Whether a background thread is compiling at this moment."""
    return _BACKGROUND.busy()
