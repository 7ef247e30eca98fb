"""Studies that fit an hour of GPU: open questions, packed into one program, trained, and collected.

    python benchmarks/study.py list
    python benchmarks/study.py next --minutes 27 --out DIR [--calls 1] [--results FOLDER] [--dry-run]
    python benchmarks/study.py run NAME [NAME ...] --minutes 27 --out DIR [--dry-run]
    python benchmarks/study.py collect DIR
    python benchmarks/study.py table NAME [NAME ...] [--at 10000 40000]
    python benchmarks/study.py pack --python 3.12 --platform linux_x86_64 --out FOLDER [--have jax numpy ...]
    python benchmarks/study.py unpack FOLDER [--into SITE]

`list` shows the queue, benchmarks/studies/queue.yaml. `next` trains the first open study that fits into the minutes
together with those that fit into its program; the same command goes on where it was stopped, and --calls N packs what
takes N calls of so many minutes. `run` trains the named ones, whether they fit or not. Both write DIR/results/NAME.csv
and NAME.json (or into --results), and keep run folders in DIR/runs. `collect` merges results into
benchmarks/results/studies/ and marks the queue; `table` prints them as Markdown. `pack` fetches the wheels for a
machine without a network, and `unpack` unzips them there.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

HERE = Path(__file__).parent
for _folder in (HERE, HERE.parent / "src"):  # a checkout on a machine where nothing is installed
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))

from studies.wheels import HAVE, LIMIT, PackError, fetch, unpack, use  # noqa: E402

from ubp2.errors import UserError  # noqa: E402


def main(words: list[str] | None = None) -> int:
    """Run one command; mistakes of the user are one sentence and exit code 2."""
    args = _parser().parse_args(words)
    os.environ.setdefault("MUJOCO_GL", "disable")  # nothing is rendered; workers inherit it
    try:
        return args.command(args) or 0
    except (UserError, PackError) as error:
        print(f"study: {error}", file=sys.stderr)
        return 2


def show(args: argparse.Namespace) -> None:
    """The queue as a table."""
    from studies import collecting, packing, queue

    correction = packing.measured(collecting.abouts(args.results))
    print(f"{'study':24}{'status':12}{'runs':>6}{'decisions':>11}{'programs':>10}{'minutes':>9}  question")
    for study in queue.load(args.queue):
        unknown = queue.unknown_settings(study)
        programs, minutes, runs = "", "", sum(1 for _ in study.runs())
        if study.cells and not unknown:
            plan = packing.plan_of([study])
            programs, minutes = str(len(plan.programs())), f"{plan.seconds(correction) / 60:.0f}"
        size = f"{runs:>6}{study.decisions:>11,}{programs:>10}{minutes:>9}"
        print(f"{study.name:24}{study.status:12}{size}  {study.question}")
        if unknown:
            print(f"{'':24}waits for settings: {', '.join(unknown)}")
        for told in dict.fromkeys(f"{cell.method} needs {cell.needs}" for cell in study.waiting):
            print(f"{'':24}{told}")


def go(args: argparse.Namespace) -> None:
    """Train the named studies, or the first that fit."""
    from studies import collecting, packing, queue, training

    from ubp2 import system

    studies = queue.load(args.queue)
    correction = packing.measured(collecting.abouts(collecting.RESULTS))
    begun = training.going_on(args.out)
    if begun is not None:
        names = list(begun["studies"])
        asked = getattr(args, "names", [])
        if asked and set(asked) != set(names):
            raise UserError(f"{args.out} has begun {', '.join(names)}; go on with these, or give another --out")
        plan = packing.plan_of(queue.find(studies, names))
    elif args.command_name == "run":
        plan = packing.plan_of(queue.find(studies, args.names))
    else:
        again = (args.calls - 1) * packing.START / 60  # every call starts and compiles anew
        plan = packing.pack(studies, args.minutes * args.calls - again, correction)
    if len(plan.studies) > packing.MOST_STUDIES:
        raise UserError(f"at most {packing.MOST_STUDIES} studies at a time, two files each; got {len(plan.studies)}")
    seconds = plan.seconds(correction)
    _tell(plan, seconds, begun is not None)
    if args.dry_run:
        return
    results = args.results or args.out / "results"
    command = shlex.join(["python", "benchmarks/study.py", *(args.words or [])])
    left = args.minutes - system.seconds_since_start() / 60 - training.SPARE
    if left <= 0:
        raise UserError(
            f"--minutes {args.minutes:g} leaves no time to train: starting and writing take {-left:.1f} more"
        )
    for path in training.train(plan, args.out, results, left, _Ubp2(), command, seconds):
        print(f"wrote {path}")
    print(training.standing(args.out))
    print(f"python benchmarks/study.py collect {results} puts them into benchmarks/results/studies/")


def collect(args: argparse.Namespace) -> None:
    """Merge results and mark the queue."""
    from studies import collecting

    print("\n".join(collecting.collect(args.folder, args.results, args.queue)))


def table(args: argparse.Namespace) -> None:
    """Collected results as Markdown."""
    from studies import tables

    print("\n\n".join(tables.table(args.results / f"{name}.csv", args.at) for name in args.names))


def pack(args: argparse.Namespace) -> None:
    """Fetch wheels."""
    constraints = HERE.parent / "constraints.txt"
    size = fetch(args.out, constraints, python=args.python, platform=args.platform, have=args.have, limit=args.limit)
    for wheel in sorted(args.out.glob("*.whl"), key=lambda wheel: -wheel.stat().st_size):
        print(f"{wheel.stat().st_size / 2**20:8.2f} MiB  {wheel.name}")
    print(f"{size:8.2f} MiB  in all, of {args.limit:g}")
    print(f"there, from the checkout: python3 benchmarks/study.py unpack {args.out}")


def unzip(args: argparse.Namespace) -> None:
    """Unzip wheels."""
    site = args.into or args.folder / "site"
    count = unpack(args.folder, site)
    print(f"# {count} wheels in {site}; now run:\n{use(site)}")


class _Ubp2:
    """The package itself as the trainer; jax is imported when it is needed."""

    def train(self, configs, *, out, minutes):
        import ubp2

        return ubp2.train(configs, out=out, minutes=minutes)

    def resume(self, out, *, minutes):
        import ubp2

        return ubp2.resume(out, minutes=minutes)


def _tell(plan, seconds: float, begun: bool) -> None:
    """Tell which studies are trained now, and which are left for another time."""
    programs = plan.programs()
    sizes = ", ".join(f"{len(program)} of {program[0].steps:,} decisions" for program in programs)
    what = "going on with" if begun else "training"
    print(f"{what} {', '.join(study.name for study in plan.studies)}")
    print(f"programs: {len(programs)}; members: {sizes}; about {seconds / 60:.0f} minutes on one H200")
    for name, reason in plan.left_out:
        print(f"left out: {name}: {reason}")


def _parser() -> argparse.ArgumentParser:
    from_here = HERE / "studies" / "queue.yaml"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command_name")

    def add(name: str, function, told: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=told)
        command.set_defaults(command=function)
        if name not in ("pack", "unpack"):
            command.add_argument("--queue", type=Path, default=from_here, help="another queue")
        return command

    listing = add("list", show, "show the queue")
    collecting = add("collect", collect, "put results into benchmarks/results/studies/ and mark the queue")
    collecting.add_argument("folder", type=Path, metavar="DIR", help="the --out or --results of a call")
    telling = add("table", table, "print results as Markdown")
    telling.add_argument("names", nargs="+", metavar="NAME")
    telling.add_argument("--at", type=int, nargs="+", help="decisions to show; the last unless given")
    for command in (listing, collecting, telling):
        command.add_argument("--results", type=Path, default=HERE / "results" / "studies")
    following = add("next", go, "train the first open studies that fit into one program")
    naming = add("run", go, "train the studies of these names")
    naming.add_argument("names", nargs="+", metavar="NAME")
    for command in (following, naming):
        command.add_argument("--minutes", type=_positive, default=27.0, help="of this call, start and end included")
        command.add_argument("--calls", type=_positive, default=1.0, help="calls of so many minutes it may take")
        command.add_argument("--out", type=Path, required=True, metavar="DIR", help="run folders, to go on later")
        command.add_argument("--results", type=Path, help="where CSV and JSON go; DIR/results unless given")
        command.add_argument("--dry-run", action="store_true", help="only say what would be trained")
        command.set_defaults(words=sys.argv[1:])
    packing = add("pack", pack, "fetch the wheels that training needs")
    packing.add_argument("--python", default="3.12")
    packing.add_argument("--platform", default="linux_x86_64")
    packing.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    packing.add_argument("--have", nargs="*", default=list(HAVE), help=f"what is there: {' '.join(HAVE)} unless given")
    packing.add_argument("--limit", type=_positive, default=LIMIT, help="MiB that the wheels may have in all")
    unpacking = add("unpack", unzip, "unzip the wheels into one folder; print the line that makes Python find it")
    unpacking.add_argument("folder", type=Path, metavar="FOLDER")
    unpacking.add_argument("--into", type=Path, metavar="SITE", help="FOLDER/site unless given")
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return number


if __name__ == "__main__":
    sys.exit(main())
