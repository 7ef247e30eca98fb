"""The demos: train from comparisons alone, draw the learning curve, film the agent, say how it went.

    python scripts/demo.py              # toy/reach, about two minutes
    python scripts/demo.py metaworld    # a robot arm closes a door, a quarter of an hour

Only the command line is called, and each call is shown, so that a newcomer can do the same on another task. An
interrupted demo goes on where it stopped; once its folder is complete, the next demo is another seed, in runs/.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import imageio_ffmpeg

EVALUATION = "evaluation.json"  # a folder that has it is complete, but for the clip
UNUSABLE = 2  # exit code of ubp2 for what only the user can mend


class Demo(NamedTuple):
    """What one demo trains and where it leaves it."""

    folder: str
    flags: tuple[str, ...]
    following: str  # what to try next


DEMOS = {
    "toy": Demo("demo", ("--preset", "demo"), "make demo-metaworld"),
    "metaworld": Demo(
        "demo-metaworld",
        ("--env", "metaworld/door-close", "--preset", "cpu", "--steps", "15000", "--preferences.budget", "400"),
        ".venv/bin/ubp2 train --env metaworld/window-close --preset cpu",
    ),
}


def main(demo: Demo) -> int:
    number, run = next((n, folder) for n, folder in candidates(demo) if not (folder / EVALUATION).exists())
    code = UNUSABLE
    if (run / "config.yaml").exists():
        code = ubp2("train", "--resume", str(run)).returncode
    while code == UNUSABLE:  # also after a demo that was killed before its first checkpoint
        if not run.exists():
            code = ubp2("train", *demo.flags, "--seed", str(number - 1), "--out", str(run)).returncode
            break
        number, run = next((n, folder) for n, folder in candidates(demo) if not folder.exists())
    code = code or ubp2("plot", str(run), "--out", str(run / "curve.png")).returncode or evaluate(run)
    if not code:
        film(run)
        print(f"Next: {demo.following}")
    return code


def candidates(demo: Demo) -> Iterator[tuple[int, Path]]:
    """Number and folder of the first demo, the second, ..."""
    yield 1, Path(demo.folder)
    number = 2
    while True:
        yield number, Path("runs") / f"{demo.folder}-{number}"
        number += 1


def evaluate(run: Path) -> int:
    """Evaluate both controllers, and print the result."""
    found: dict[str, dict[str, float]] = {}
    for controller in ("planner", "policy"):
        command = ("eval", str(run), "--controller", controller, "--episodes", "20", "--json")
        done = ubp2(*command, stdout=subprocess.PIPE)
        if done.returncode:
            return done.returncode
        found[controller] = json.loads(done.stdout)["scores"]
    (run / EVALUATION).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    success = {controller: f"{scores['success_any']:.0%}" for controller, scores in found.items()}
    print(
        f"\nLearned from comparisons alone. In 20 new episodes the planner succeeds in {success['planner']},", end=" "
    )
    print(f"and the policy, which is faster and catches up later, in {success['policy']}.")
    print(f"Learning curve: {run / 'curve.png'}", flush=True)
    return 0


def film(run: Path) -> None:
    """A clip of the planner as mp4 and gif. It comes last: a machine that cannot draw loses nothing else."""
    clip = run / "clip.mp4"
    command = ("eval", str(run), "--controller", "planner", "--episodes", "1", "--video", str(clip))
    if ubp2(*command, stdout=subprocess.DEVNULL).returncode:
        print(f"note: there is no clip; once what is missing is installed: .venv/bin/{shlex.join(['ubp2', *command])}")
        return
    gif, palette = clip.with_suffix(".gif"), "split[a][b];[a]palettegen[p];[b][p]paletteuse"
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-y", "-i", clip, "-vf", palette, gif]
    made = subprocess.run(ffmpeg, stdin=subprocess.DEVNULL).returncode == 0
    print(f"Clip:           {clip}" + (f", {gif}" if made else ""))


def ubp2(*arguments: str, stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    """Show the command as the user would type it, and run it."""
    print(f"$ {shlex.join(['ubp2', *arguments])}", flush=True)
    command, stopped = [sys.executable, "-m", "ubp2", *arguments], False
    with subprocess.Popen(command, stdout=stdout, text=True) as process:
        while True:
            try:
                output, _ = process.communicate()
                break
            except KeyboardInterrupt:  # Ctrl-C reaches the command, too; it is left to write its checkpoint
                stopped = True
    if stopped:
        raise KeyboardInterrupt
    return subprocess.CompletedProcess(command, process.returncode, output)


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "toy"
    if name not in DEMOS:
        sys.exit(f"no demo is called '{name}'; there are: {', '.join(DEMOS)}")
    try:
        sys.exit(main(DEMOS[name]))
    except KeyboardInterrupt:
        print("stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        sys.exit(130)
