"""python -m ubp2, and the command ubp2."""

from __future__ import annotations

import contextlib
import os
import sys

__all__ = ["run"]


def run() -> None:
    """Run one command and leave, also in the middle of a compilation that nobody waits for any more."""
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


def _find_modules_here() -> None:
    """Let module:function and gym/<module>:<id> name a module in the current folder, as with python -m ubp2.

    It comes last: nothing that lies there takes the place of what is installed.
    """
    with contextlib.suppress(OSError):  # the folder may be gone, or closed to us
        if not sys.flags.safe_path and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())


if __name__ == "__main__":
    run()
