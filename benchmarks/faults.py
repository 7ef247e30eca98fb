"""A campaign of faults against training runs: what was tried, what survived, what was lost.

    python benchmarks/faults.py                          # everything, as in docs/reliability.md
    python benchmarks/faults.py --kills 20 --only kills  # a part

Every subject is a small run that is made twice: once in peace, once disturbed and resumed until it ends. It has
survived if the two are equal, bit for bit on a CPU: checkpoint, archive, labels and metrics. A run whose environment
was lost takes another course; it has survived if it ends, and has counted what it lost. Faults:

- kills: SIGKILL of `ubp2 train` at random moments, of one seed, of several in one program, of PEBBLE, and of a run that
  people teach through its label store while it lives and while it is dead;
- checkpoints: the newest is truncated, has a bit flipped, or lacks a file;
- disk: no file may grow beyond a limit (RLIMIT_FSIZE), as on a disk that is full; then there is room again;
- workers: an environment process is killed, or stopped for good (SIGSTOP), in the middle of an episode.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from fault_subjects import STEPS, SUBJECTS, Training, checkpoints, equal, run_out, taught  # noqa: E402
from pages import markdown  # noqa: E402

from tests.training.helpers import saved  # noqa: E402
from ubp2.config.files import overridden  # noqa: E402
from ubp2.storage import population  # noqa: E402

ENOUGH = 400  # kills of one run; more mean that it does not get on


@dataclass
class Tally:
    """One line of the table."""

    what: str
    tried: int = 0
    survived: int = 0
    lost: list[str] = field(default_factory=list)

    def add(self, name: str, faults: int, error: str | None) -> None:
        self.tried += faults
        self.survived += 0 if error else faults
        if error:
            self.lost.append(f"{name}: {error}")


class Campaign:
    """All faults, in one folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.references: dict[str, Path] = {}
        self.seconds: dict[str, float] = {}  # that they took

    def reference(self, name: str) -> Path:
        if name not in self.references:
            folder, began = self.folder / f"peace-{name.replace(' ', '-')}", time.monotonic()
            run_out(*SUBJECTS[name], folder)
            self.references[name], self.seconds[name] = folder, time.monotonic() - began
        return self.references[name]

    def kills(self, tally: Tally, wanted: int, at_once: int) -> None:
        """Runs that are killed at any moment of their life, again and again until they end, until enough were."""
        number = 0

        def one(number: int, name: str, seed: int) -> None:
            chance, folder = random.Random(seed), self.folder / f"killed-{number}"
            config, seeds = SUBJECTS[name]
            hits, error = 0, f"not finished after {ENOUGH} attempts"
            with taught(config, folder):
                while hits < ENOUGH:
                    training = Training(config, seeds, folder)
                    try:
                        life = chance.uniform(0.05, 0.6) if chance.random() < 0.75 else chance.uniform(0.6, 2.0)
                        training.process.wait(life * self.seconds[name])
                    except subprocess.TimeoutExpired:
                        training.kill()
                        hits += 1
                        continue
                    code, said = training.ends()
                    error = f"code {code}: {said}" if code else None
                    break
            error = error or equal(folder, self.references[name])
            tally.add(f"{name}, {hits} kills", hits, error)
            print(f"kills: {name}: {hits}, {error or 'equal'}; {tally.tried} in all", file=sys.stderr, flush=True)
            shutil.rmtree(folder, ignore_errors=True)

        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(self.reference, SUBJECTS))
            while tally.tried < wanted:
                names = [list(SUBJECTS)[(number + i) % len(SUBJECTS)] for i in range(at_once)]
                jobs = [pool.submit(one, number + i, name, self.chance.random()) for i, name in enumerate(names)]
                number += at_once
                for job in jobs:
                    job.result()

    def checkpoints(self, tally: Tally, wanted: int) -> None:
        """Runs in the middle whose newest checkpoint is damaged before they go on."""
        base = self._half_way()
        for number in range(wanted):
            damage = (truncate, flip, remove)[number % 3]
            folder = self.folder / f"damaged-{number}"
            shutil.copytree(base, folder)
            newest = max((folder / "checkpoints").glob("[0-9]*"))
            file = newest / self.chance.choice(["state.npz", "manifest.json"])
            damage(file, self.chance)
            code, said = Training(*SUBJECTS["one seed"], folder).ends()
            error = None if code == 0 else f"code {code}: {said}"
            if not error and "set aside" not in said:
                error = f"nobody said so: {said}"
            tally.add(f"{damage.__name__} {file.name}", 1, error or equal(folder, self.reference("one seed")))
            shutil.rmtree(folder, ignore_errors=True)

    def disk(self, tally: Tally, wanted: int) -> None:
        """Runs that meet a full disk in the middle, and go on when there is room; one that never met it is no fault."""
        base = self._half_way()
        sizes = [path.stat().st_size for path in base.rglob("*") if path.is_file()]
        for _ in range(10 * wanted):
            if tally.tried >= wanted:
                break
            folder = self.folder / "full"
            shutil.copytree(base, folder)
            limit = self.chance.randint(1000, max(sizes) + 20_000)
            code, said = Training(*SUBJECTS["one seed"], folder, limit=limit).ends()
            met, error = int(code != 0), None if code in (0, 2) else f"code {code}: {said}"
            if code == 2 and "; " not in said:
                error = f"no sentence: {said}"
            if not error and code:
                code, said = Training(*SUBJECTS["one seed"], folder).ends()
                error = None if code == 0 else f"code {code}: {said}"
            tally.add(f"limit of {limit} bytes", met, error or equal(folder, self.reference("one seed")))
            shutil.rmtree(folder)

    def _half_way(self) -> Path:
        """A run that was killed in its middle, with two checkpoints or more."""
        base = self.folder / "half"
        if not base.exists():
            training = Training(*SUBJECTS["one seed"], base)
            while len(list(checkpoints(base))) < 2 or max(checkpoints(base)).parent.name < f"{STEPS // 2:09d}":
                assert training.process.poll() is None, training.ends()
                time.sleep(0.02)
            training.kill()
        return base

    def workers(self, tally: Tally, wanted: int, number: int) -> None:
        """Runs whose environment processes die or hang, while each is still needed."""
        done = 0
        while done < wanted:
            folder, hits = self.folder / f"workers-{number}-{done}", 0
            config, seeds = SUBJECTS["one seed" if done % 2 else "three seeds"]
            # Evaluation has processes of its own, whose losses are made up for and not counted.
            training = Training(overridden(config, {"evaluation.every": 0}), seeds, folder)
            while training.process.poll() is None and hits < 3:
                time.sleep(self.chance.uniform(0.5, 2.0))
                newest = max((int(path.parent.name) for path in checkpoints(folder)), default=STEPS)
                if newest < STEPS // 2 and (found := training.workers()):
                    with suppress(ProcessLookupError):
                        os.kill(self.chance.choice(found), number)
                    hits += 1
            code, said = training.ends()
            error = None if code == 0 else f"code {code}: {said}"
            if not error and hits:
                counted = sum(int(saved(member).meta["restarts"]) for member in population.members(folder))
                error = None if counted else f"{hits} workers were lost, and none counted"
            tally.add(f"signal {number}", hits, error)
            print(f"workers: signal {number}: {hits}, {error or 'finished'}", file=sys.stderr, flush=True)
            done += hits
            shutil.rmtree(folder, ignore_errors=True)


def truncate(file: Path, chance: random.Random) -> None:
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.truncate(chance.randrange(size))


def flip(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def remove(file: Path, chance: random.Random) -> None:
    file.unlink()


def table(tallies: list[Tally]) -> str:
    numbers = [[t.what, *map(str, (t.tried, t.survived, t.tried - t.survived))] for t in tallies]
    return markdown([["fault", "tried", "survived", "lost"], *numbers])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--checkpoints", type=int, default=21)
    parser.add_argument("--disk", type=int, default=6)
    parser.add_argument("--workers", type=int, default=9, help="of each of two kinds")
    parser.add_argument("--only", nargs="+", choices=("kills", "checkpoints", "disk", "workers"))
    parser.add_argument("--at-once", type=int, default=2, help="runs that are killed side by side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    args = parser.parse_args()
    tallies: list[Tally] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        campaign = Campaign(Path(name), args.seed)
        parts: list[tuple[str, str, Callable[[Tally], None]]] = [
            ("kills", "SIGKILL of training", lambda t: campaign.kills(t, args.kills, args.at_once)),
            ("checkpoints", "damaged checkpoint", lambda t: campaign.checkpoints(t, args.checkpoints)),
            ("disk", "disk full", lambda t: campaign.disk(t, args.disk)),
            ("workers", "environment process killed", lambda t: campaign.workers(t, args.workers, signal.SIGKILL)),
            ("workers", "environment process hung", lambda t: campaign.workers(t, args.workers, signal.SIGSTOP)),
        ]
        for part, what, act in parts:
            if not args.only or part in args.only:
                tallies.append(Tally(what))
                act(tallies[-1])
    print(table(tallies))
    for tally in tallies:
        for line in tally.lost:
            print(f"{tally.what}: {line}", file=sys.stderr)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        told = [{"fault": t.what, "tried": t.tried, "survived": t.survived, "lost": t.lost} for t in tallies]
        content = {"seconds": round(time.monotonic() - began), "seed": args.seed, "faults": told}
        args.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return int(any(tally.lost for tally in tallies))


if __name__ == "__main__":
    raise SystemExit(main())
