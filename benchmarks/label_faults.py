"""Kill the label server, and a process that asks questions as a trainer does, at random moments under load.

    python benchmarks/label_faults.py --kills 200

SIGKILL, so that nothing in the process runs any further. Annotators keep what was not acknowledged and send it again
with the same key, as the page does; some answers are sent twice, some taken back. At the end every acknowledged answer
must be in the file exactly once, as it was given, and no question may have two standing answers of one person.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from tests.labelling import crowd  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="of the server; the trainer is killed every other time")
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--longest", type=float, default=0.8, help="most seconds between a start and the next kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    args = parser.parse_args()
    chance, trainers = random.Random(args.seed), 0
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name) / "run", crowd.free_port()
        crowd.record(folder)
        trainer, server = crowd.trainer(folder), crowd.server(folder, port)
        people = crowd.Crowd(port, args.people, think=0.01, patient=True, repeat=0.2, undo=0.05)
        begun = time.monotonic()
        people.start()
        for number in range(1, args.kills + 1):
            time.sleep(chance.uniform(0, args.longest))
            if chance.random() < 0.5:
                trainer.kill()
                trainer, trainers = crowd.trainer(folder), trainers + 1
            server.kill()
            server = crowd.server(folder, port)
            if number % 20 == 0:
                print(f"{number} kills, {len(people.stored)} answers acknowledged", file=sys.stderr, flush=True)
        time.sleep(1.0)
        people.stop()
        server.kill()
        trainer.kill()
        wrong = crowd.lost_or_doubled(folder, people.stored)
    numbers = {
        "server_kills": args.kills,
        "trainer_kills": trainers,
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
