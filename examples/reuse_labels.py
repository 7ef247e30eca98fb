"""Labels outlive the run they were given in: export them, and begin another run with them.

Here a scripted teacher answers in the first run. With people it is the same: `teacher.name` is "human", and the file
has their answers (without their names, if it is anonymous).

    python examples/reuse_labels.py              # some minutes on two cores
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import ubp2
from ubp2.labelling.transfer import export


def main(config: ubp2.Config | None = None, out: str = "runs/reuse") -> tuple[ubp2.RunResult, ubp2.RunResult]:
    """Two runs: one that asks, and one with another seed (it could be another agent) that asks nothing."""
    config = config or ubp2.preset("demo", env="toy/reach")
    first = ubp2.train(config, out=f"{out}/first")
    file = Path(out) / "labels.jsonl.gz"
    done = export(first.folder, file, anonymous=True, overwrite=True, intact=False)
    print(f"{done.header.counts['labels']} labels in {file}, {file.stat().st_size / 1e3:.0f} kB")

    nothing = dataclasses.replace(config.preferences, budget=0)  # what it may ask
    other = dataclasses.replace(config, seed=config.seed + 1, preferences=nothing)
    second = ubp2.train(other, labels=[file], out=f"{out}/second")
    for name, result in (("asked", first), ("was given", second)):
        print(f"the run that {name} its labels: {result.labels} labels, {result.evaluation}")
    return first, second


if __name__ == "__main__":
    main()
