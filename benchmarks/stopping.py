"""From SIGTERM to a checkpoint and the end of the process, at the worst moments of a run.

    python benchmarks/stopping.py [--env metaworld/door-close] [--preset cpu] [--moments evaluation fit]

Each moment is a run of its own, `ubp2 train` in a process that sends itself the signal there; nothing is compiled yet.
Prints a table of seconds, and fails if one is above `--most` (30) or a run left without its checkpoint.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ubp2.signals import CHECKPOINTED
from ubp2.training import checkpoint

MOST = 30.0
SIGNALLED = "signalled at "
WARMUP = 250
SHORT = ["--training.warmup", str(WARMUP), "--evaluation.every", str(WARMUP + 60), "--steps", "5000", "--quiet"]
SESSION = ["--preferences.every", "200", "--preferences.per-session", "10", "--preferences.budget", "100"]
PEOPLE = [*SESSION, "--teacher", "human", "--teacher.no-browser", "--teacher.port", "0"]
PEBBLE = [*SESSION, "--agent", "pebble", "--preferences.first", "300"]

# Where the signal comes: module, name of the function at whose n-th call, n, and further arguments of the run.
MOMENTS: dict[str, tuple[str, str, int, list[str]]] = {
    "start": ("ubp2.training.loop", "_begin", 1, []),
    "warm-up": ("ubp2.training.loop", "_record", 50, []),
    "compilation": ("ubp2.training.loop", "_ready", WARMUP + 1, []),
    "updates after the warm-up": ("ubp2.training.loop", "_update", 2, []),
    "planning": ("ubp2.training.loop", "_act", WARMUP + 20, []),
    "session": ("ubp2.training.session", "ask", 1, SESSION),
    "evaluation": ("ubp2.evaluation.rollout", "_group", 1, []),
    "waiting for people": ("ubp2.training.asking", "_wait", 1, PEOPLE),
    "fit of the reward (pebble)": ("ubp2.training.asking", "fit", 1, PEBBLE),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="toy/reach")
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--most", type=float, default=MOST)
    parser.add_argument("--moments", nargs="+", default=list(MOMENTS), choices=list(MOMENTS))
    args = parser.parse_args()
    worst, lost = 0.0, []
    print(f"| moment ({args.env}, {args.preset}) | seconds from SIGTERM to the end | checkpoint |\n|---|---|---|")
    for moment in args.moments:
        with tempfile.TemporaryDirectory() as folder:
            seconds, decision = measure(moment, args.env, args.preset, Path(folder))
        worst = max(worst, seconds)
        lost += [moment] if decision is None else []
        print(f"| {moment} | {seconds:.1f} | {decision} |", flush=True)
    return 0 if worst <= args.most and not lost else 1


def measure(moment: str, env: str, preset: str, folder: Path) -> tuple[float, int | None]:
    """Seconds, and the decision of the checkpoint; None where there is none, or the run did not end as it should."""
    run = folder / "run"
    *_, further = MOMENTS[moment]
    command = ["train", "--env", env, "--preset", preset, "--out", str(run), *SHORT, *further]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}
    line = [sys.executable, __file__, "--child", moment, *command]
    ended = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=1800)
    at = time.monotonic()
    told = [text for text in ended.stderr.splitlines() if text.startswith(SIGNALLED)]
    if not told:
        raise SystemExit(f"the run of '{moment}' never came there:\n{ended.stderr[-3000:]}")
    found = checkpoint.load_latest(run / "checkpoints")
    whole = ended.returncode == CHECKPOINTED and found is not None
    return at - float(told[0].removeprefix(SIGNALLED)), found.decision if whole and found else None


def child(moment: str, command: list[str]) -> None:
    """`ubp2 COMMAND`, which gets SIGTERM at the moment."""
    import importlib
    import signal

    from ubp2.__main__ import run

    module, name, count, _ = MOMENTS[moment]
    owner = importlib.import_module(module)
    real: Callable[..., Any] = getattr(owner, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count -= 1
        if count == 0:
            print(f"{SIGNALLED}{time.monotonic()}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments, **named)

    setattr(owner, name, counted)
    sys.argv = ["ubp2", *command]
    run()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
    sys.exit(main())
