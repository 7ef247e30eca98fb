"""Programs that compile in the background, so that a run acts at random while what it plans with is still compiling.

Tracing and XLA's compilation take longer than hundreds of random decisions. XLA releases the interpreter's lock, so a
few threads compile side by side while the loop goes on; a program that is called too early waits for its own.
"""

from __future__ import annotations

import atexit
import copy
import os
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any

import jax
import numpy as np

__all__ = ["Program", "busy"]

THREADS = min(4, max(2, (os.cpu_count() or 2) // 2))  # XLA uses several cores itself
SILENT_SECONDS = 5.0  # how long an interpreter that ends waits for the compilations under way before it says so
POLL_SECONDS = 0.1
# cuBLAS alone does the products: trying kernels of XLA's own against it takes longer than they ever save here.
GPU_OPTIONS: dict[str, bool | str] = {"xla_gpu_enable_triton_gemm": False}


class _Compilation:
    """A function for one set of shapes: compiled by whoever comes first, waited for by all others."""

    def __init__(self) -> None:
        self.tracing: Future[Any] = Future()
        self.compiling: Future[Any] = Future()
        self._begun = threading.Lock()  # held by whoever compiles, and never released

    @property
    def begun(self) -> bool:
        return self._begun.locked()

    @property
    def done(self) -> bool:
        return self.compiling.done() and self.compiling.exception() is None

    @property
    def failed(self) -> bool:
        return self.compiling.done() and self.compiling.exception() is not None

    def compile(self, jitted: Any, shapes: tuple[Any, ...]) -> None:
        if not self._begun.acquire(blocking=False):
            return
        try:
            traced = jitted.trace(*shapes)
            self.tracing.set_result(traced.out_info)
            self.compiling.set_result(traced.lower().compile())
        except BaseException as error:
            for future in (self.tracing, self.compiling):
                if not future.done():
                    future.set_exception(error)


class Program:
    """A jitted function for one set of shapes. `bound` are first arguments that never change, such as random keys.

    They are arguments and not constants, so that runs that differ in them alone share an entry of jax's cache and, in
    one process, the compiled program itself (`bind`).
    """

    def __init__(self, function: Callable[..., Any], *, bound: tuple[Any, ...] = (), donate: tuple[int, ...] = ()):
        self._jitted = jax.jit(
            function,
            donate_argnums=tuple(len(bound) + i for i in donate),
            compiler_options=GPU_OPTIONS if jax.default_backend() == "gpu" else None,
        )
        self._compiled: dict[Any, _Compilation] = {}  # by shapes; of all that are bound from it
        self._begin(bound)

    def _begin(self, bound: tuple[Any, ...]) -> None:
        self.bound = bound
        self._own: _Compilation | None = None  # known with the shapes
        self._executable: Callable[..., Any] | None = None
        self._queued = False  # a background thread will compile it

    def bind(self, *bound: Any) -> Program:
        """The same function with other first arguments of the same shapes; what either compiles is there for both."""
        other = copy.copy(self)
        other._begin(bound)
        return other

    def prepare(self, *shapes: Any) -> None:
        """Let a background thread trace and compile for arguments of these shapes (ShapeDtypeStructs or arrays)."""
        own, arguments = self._for(shapes), (*self.bound, *shapes)
        self._queued = True
        _BACKGROUND.submit(lambda: own.compile(self._jitted, arguments) if self._queued else None)

    def outputs(self) -> Any:
        """Shapes of what it returns: of a function without arguments at once, of another as soon as it is traced."""
        return self._jitted.trace(*self.bound).out_info if self._own is None else self._own.tracing.result()

    def ready(self, stopping: Callable[[], bool]) -> bool:
        """Wait until it can be called; False where a signal came first. An error of the compilation is raised here."""
        while self._executable is None:
            if self._own is None or not (self._own.begun or self._queued) or stopping():
                return not stopping()  # nobody compiles it: the first call does
            try:
                self._executable = self._own.compiling.result(timeout=POLL_SECONDS)
            except NotYet:
                continue
        return True

    def __call__(self, *arguments: Any) -> Any:
        if self._executable is None:
            own = self._for(arguments)
            own.compile(self._jitted, (*self.bound, *arguments))
            self._executable = own.compiling.result()
        assert self._executable is not None
        return self._executable(*self.bound, *arguments)

    @property
    def compilations(self) -> int:
        """0 or 1: one program, one shape."""
        return int(self._own is not None and self._own.done)

    def cancel(self) -> None:
        """Forget a compilation that has not begun."""
        self._queued = False

    def _for(self, shapes: tuple[Any, ...]) -> _Compilation:
        """The compilation for these shapes, of this program or of one that shares it; one that failed is tried anew."""
        if self._own is None:
            leaves, tree = jax.tree.flatten(shapes)
            key = tree, tuple((np.shape(leaf), str(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves)
            self._own = self._compiled.setdefault(key, _Compilation())
            if self._own.failed:
                self._own = self._compiled[key] = _Compilation()
        return self._own


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
        """Begin nothing more, and let XLA end what it is in the middle of: an interpreter that goes away under it would
        crash. The command line does not wait for that (`ubp2.__main__`)."""
        try:
            with self._idle:
                self._ending = True
                if not self._idle.wait_for(self._all_done, timeout=SILENT_SECONDS):
                    text = "ubp2: waiting for a compilation, which cannot be interrupted; Ctrl-C leaves at once"
                    print(text, file=sys.stderr, flush=True)
                    self._idle.wait_for(self._all_done)
        except KeyboardInterrupt:
            sys.stdout.flush()
            os._exit(130)

    def _all_done(self) -> bool:
        return not self._running

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
