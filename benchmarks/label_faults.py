"""Kill the label server and the trainer at random moments under load: no acknowledged answer may be lost or doubled.

    python benchmarks/label_faults.py --kills 200                     # a process that asks as a trainer does
    python benchmarks/label_faults.py --kills 200 --trainer real      # ubp2 train, and ubp2 train --resume
    python benchmarks/label_faults.py --kills 200 --trainer remote    # the same, with its page as on another machine

SIGKILL, so that nothing in the process runs any further. Annotators keep what was not acknowledged and send it again
with the same key, as the page does; some answers are sent twice, some taken back. At the end every acknowledged answer
must be in the file exactly once, as it was given, and no question may have two standing answers of one person. Of a
remote page the same must hold in the folder of the trainer, once both have run in peace for a while.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from tests.labelling import crowd, processes  # noqa: E402
from ubp2.labelling.options import TRAINER_VARIABLE  # noqa: E402
from ubp2.labelling.security import trainer_token  # noqa: E402
from ubp2.labelling.tickets import run_secret  # noqa: E402

FIRST = 20  # answers before the first kill
PEACE = 300.0  # seconds for two folders to become the same


class Stage:
    """A server and a trainer that can be killed and started again."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind, self.port = kind, processes.free_port()
        self.run = folder / "run"
        self.page = folder / "page" if kind == "remote" else self.run
        self.options = ["--remote"] if kind == "remote" else []
        if kind == "stand-in":
            crowd.record(self.run)
        if kind == "remote":
            self.page.mkdir()
            os.environ[TRAINER_VARIABLE] = trainer_token(run_secret(self.page / "label.key"))
            self.server = self.serve()
            self.trainer = self.train()
        else:
            self.trainer = self.train()
            while not (self.run / "labels.sqlite").exists():
                time.sleep(0.1)
            self.server = self.serve()

    def serve(self, *, answers: bool = True) -> processes.Process:
        self.server = processes.server(self.page, self.port, *self.options, answers=answers)
        return self.server

    def train(self) -> processes.Process:
        address = f"http://127.0.0.1:{self.port}" if self.kind == "remote" else None
        self.trainer = (
            processes.trainer(self.run) if self.kind == "stand-in" else processes.real_trainer(self.run, address)
        )
        return self.trainer

    def wrong(self, stored: list[crowd.Stored]) -> list[str]:
        """What is lost or doubled, on the page and at the trainer."""
        wrong = crowd.lost_or_doubled(self.page, stored)
        if self.kind == "remote":
            end = time.monotonic() + PEACE
            while (differ := crowd.different(self.page, self.run)) and time.monotonic() < end:
                time.sleep(1.0)
            wrong += differ
        return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="of server and trainer together")
    parser.add_argument("--trainer", choices=("stand-in", "real", "remote"), default="stand-in")
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--longest", type=float, default=0.8, help="most seconds between a start and the next kill")
    parser.add_argument("--life", type=float, help="mean seconds a trainer lives (1; 20 for a real one)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    args = parser.parse_args()
    chance, kills = random.Random(args.seed), {"server": 0, "trainer": 0}
    life = args.life or (1.0 if args.trainer == "stand-in" else 20.0)
    with tempfile.TemporaryDirectory() as name:
        stage = Stage(Path(name), args.trainer)
        people = crowd.Crowd(stage.port, args.people, think=0.01, patient=True, repeat=0.2, undo=0.05)
        begun = time.monotonic()
        people.start()
        while len(people.stored) < FIRST:
            time.sleep(0.1)
        dies = time.monotonic() + chance.expovariate(1 / life)
        while sum(kills.values()) < args.kills:
            time.sleep(chance.uniform(0, args.longest))
            if time.monotonic() >= dies:
                stage.trainer.kill()
                stage.train()
                kills["trainer"] += 1
                dies = time.monotonic() + chance.expovariate(1 / life)
            stage.server.kill()
            stage.serve(answers=chance.random() < 0.9)  # one in ten dies while it starts
            kills["server"] += 1
            if kills["server"] % 20 == 0:
                print(f"{kills}, {len(people.stored)} answers acknowledged", file=sys.stderr, flush=True)
        time.sleep(1.0)
        people.stop()
        wrong = stage.wrong(people.stored)
        stage.server.kill()
        stage.trainer.kill()
    numbers = {
        "trainer": args.trainer,
        "server_kills": kills["server"],
        "trainer_kills": kills["trainer"],
        "annotators": args.people,
        "acknowledged": len(people.stored),
        "taken_back": people.undone,
        "requests_without_a_server": people.away,
        "lost_or_doubled": len(wrong),
        "errors": len(people.errors),
        "seconds": round(time.monotonic() - begun),
    }
    print(json.dumps(numbers, indent=2))
    for line in [*wrong[:10], *people.errors[:10]]:
        print(line, file=sys.stderr)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    return int(bool(wrong or people.errors))


if __name__ == "__main__":
    raise SystemExit(main())
