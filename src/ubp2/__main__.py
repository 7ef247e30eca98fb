"""python -m ubp2, and the command ubp2."""

from __future__ import annotations

import os
import sys

__all__ = ["run"]


def run() -> None:
    """Run one command and leave, also in the middle of a compilation that nobody waits for any more."""
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


if __name__ == "__main__":
    run()
