"""python -m ubp2, and the command ubp2."""

from __future__ import annotations

import contextlib
import os
import sys

__all__ = ["run"]


def run() -> None:
    """Run one command and leave, also in the middle of a compilation that nobody waits for any more."""
    _open_streams()
    _find_modules_here()
    try:
        from ubp2.terminal.cli import main

        code = main()
    except KeyboardInterrupt:  # before the command line was there to hear it
        print("ubp2: interrupted", file=sys.stderr)
        sys.exit(130)
    compilation = sys.modules.get("ubp2.training.compilation")
    if compilation is not None and compilation.busy():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # XLA cannot be interrupted, and an interpreter that ends under its threads may crash
    sys.exit(code)


def _open_streams() -> None:
    """Put /dev/null where a standard stream was closed (2>&-): a file that is opened later would take its number.

    What is printed would then end up in that file, such as a checkpoint.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _find_modules_here() -> None:
    """Let module:function and gym/<module>:<id> name a module in the current folder, as with python -m ubp2.

    It comes last: nothing that lies there takes the place of what is installed.
    """
    with contextlib.suppress(OSError):  # the folder may be gone, or closed to us
        if not sys.flags.safe_path and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())


if __name__ == "__main__":
    run()
