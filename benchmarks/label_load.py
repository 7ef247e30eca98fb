"""Many annotators at once against one label server: no lost label, no error, and how long each request takes.

    python benchmarks/label_load.py                          # 50 annotators, 60 s, and the table as Markdown
    python benchmarks/label_load.py --people 100 --think 0   # as fast as the server answers

Server and annotators share the machine: the times are of both. Each annotator does what the page does (asks for a pair,
loads a clip of each side, answers, some of them twice), beside a process that asks questions as a trainer does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from tests.labelling import crowd, processes  # noqa: E402
from ubp2.labelling.clips import Clips  # noqa: E402
from ubp2.preference.store import LabelStore  # noqa: E402
from ubp2.storage.runs import Run  # noqa: E402

NAMES = {
    "next": "`POST /api/next`",
    "answer": "`POST /api/answer`",
    "clip": "`GET /clips/...`",
    "undo": "`POST /api/undo`",
}


def spread(times: list[float]) -> dict[str, float]:
    """Seconds: median, 95 %, 99 % and the longest."""
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"median": cuts[49], "95 %": cuts[94], "99 %": cuts[98], "longest": max(times)}


def table(seconds: dict[str, list[float]], wall: float) -> str:
    """Milliseconds a request."""
    lines = ["| request | count | a second | median, ms | 95 %, ms | 99 %, ms | longest, ms |", "|---" * 7 + "|"]
    for what, title in NAMES.items():
        if len(times := seconds.get(what, [])) > 1:
            shown = " | ".join(f"{1000 * value:.0f}" for value in spread(times).values())
            lines.append(f"| {title} | {len(times)} | {len(times) / wall:.0f} | {shown} |")
    return "\n".join(lines)


def render(folder: Path) -> None:
    """Make all clips: what is measured is the server, and not how fast a task is simulated and drawn."""
    with Clips(folder / "episodes.sqlite", Run.open(folder).config, folder / "clips") as clips:
        for clip in [clips.want(episode.index, start, crowd.LENGTH) for episode, start in crowd.segments(folder)]:
            assert clips.wait(clip, 120).ready


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--think", type=float, default=2.0, help="mean seconds a person looks at a pair")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name) / "run", processes.free_port()
        crowd.record(folder)
        with LabelStore(folder / "labels.sqlite") as store:
            store.ask(100, 0, crowd.questions(folder, 300, 10**6), "uniform")
        render(folder)
        trainer, server = processes.trainer(folder), processes.server(folder, port)
        people = crowd.Crowd(port, args.people, think=args.think, watch=True, repeat=0.05, undo=0.02)
        begun = time.monotonic()
        people.start()
        time.sleep(args.seconds)
        people.stop()
        wall = time.monotonic() - begun
        code = server.stop()[0]
        trainer.kill()
        wrong, twice = crowd.lost_or_doubled(folder, people.stored), crowd.shared(folder)
    print(
        f"{args.people} annotators, {args.think:g} s a pair on average, {wall:.0f} s, {os.cpu_count()} cores: "
        f"{len(people.stored)} answers acknowledged, {people.undone} taken back, {len(wrong)} lost or doubled, "
        f"{twice} pairs given to two people, {len(people.errors)} errors, {sum(people.refusals.values())} refusals\n"
    )
    print(table(people.seconds, wall))
    for line in [*wrong[:10], *people.errors[:10]]:
        print(line, file=sys.stderr)
    if args.out:
        numbers = {"people": args.people, "think": args.think, "wall": wall, "answers": len(people.stored)}
        numbers |= {
            "lost_or_doubled": len(wrong),
            "given_to_two": twice,
            "errors": len(people.errors),
            "cores": os.cpu_count(),
        }
        spreads = {what: spread(t) | {"count": len(t)} for what, t in people.seconds.items() if len(t) > 1}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({**numbers, "seconds": spreads}, indent=2) + "\n", encoding="utf-8")
    return int(bool(wrong or twice or people.errors or code))


if __name__ == "__main__":
    raise SystemExit(main())
