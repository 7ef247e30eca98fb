"""Draw evaluation curves from raw scores, one panel a file or a task.

    python benchmarks/plot_curves.py OUT.png TITLE=results/NAME.csv ...
    python benchmarks/plot_curves.py OUT.png TITLE=TASK ... --versus results/metaworld --methods ubp2 mbp
    python benchmarks/plot_curves.py OUT.png TITLE=TASK ... --versus results --methods UBP2=promising/ubp2 metaworld/mbp

Success at any step over decisions: every seed as a thin line, the mean over the seeds of an evaluation as a thick one.
The first form draws policy and planner of each file, the others the planner of TASK-METHOD.csv for each method, which
may name its folder and a label; of several folders, with commas, the first that has the task is read.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from curves import raw
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # colour-blind safe
COLUMNS = 4


class Line(NamedTuple):
    """One colour of a panel."""

    label: str
    path: Path
    controller: str


def draw(axis: Axes, title: str, lines: Sequence[Line]) -> None:
    """A panel."""
    counts = set()
    for colour, line in zip(COLOURS, lines, strict=False):
        with line.path.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        seeds = sorted({row["seed"] for row in rows})
        counts.add(len(seeds))
        at: dict[int, list[float]] = defaultdict(list)
        for seed in seeds:
            own = [(int(r["decision"]), float(r[f"{line.controller}/success_any"])) for r in rows if r["seed"] == seed]
            axis.plot(*zip(*own, strict=True), color=colour, alpha=0.25, linewidth=0.8)
            for decision, success in own:
                at[decision].append(success)
        mean = {decision: sum(values) / len(values) for decision, values in sorted(at.items())}
        axis.plot(list(mean), list(mean.values()), color=colour, linewidth=2.2, label=line.label)
    axis.set_title(f"{title} ({'/'.join(map(str, sorted(counts)))} seeds)", fontsize=10)
    axis.set(xlabel="decisions", ylim=(-0.03, 1.03))
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 5, 10]))  # where evaluations usually are
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x else "0")


def _line(folder: Path, task: str, method: str) -> Line:
    """The planner of a method, "ubp2", "metaworld/ubp2" or "UBP2=metaworld/ubp2", on a task."""
    label, _, where = method.rpartition("=")
    return Line(label or Path(where).name.upper(), raw(folder, task, where), "planner")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("panels", nargs="+", metavar="TITLE=WHAT")
    parser.add_argument("--versus", type=Path, help="folder of TASK-METHOD.csv")
    parser.add_argument("--methods", nargs="+", default=["ubp2", "mbp"])
    args = parser.parse_intermixed_args()
    if args.versus and len(args.methods) > len(COLOURS):
        parser.error(f"a panel has {len(COLOURS)} colours, got {len(args.methods)} methods")
    panels: dict[str, list[Line]] = {}
    for panel in args.panels:
        title, _, what = panel.partition("=")
        if args.versus:
            panels[title] = [_line(args.versus, what, method) for method in args.methods]
        else:
            panels[title] = [Line(controller, Path(what), controller) for controller in ("policy", "planner")]
    columns = min(len(panels), COLUMNS)
    rows = -(-len(panels) // columns)
    size = (3.6 * columns + 0.6, 2.9 * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axis, (title, lines) in zip(grid.flat, panels.items(), strict=False):
        draw(axis, title, lines)
    for axis in list(grid.flat)[len(panels) :]:
        axis.axis("off")
    for row in grid:
        row[0].set_ylabel("success at any step")
    grid[0][0].legend(frameon=False)
    figure.savefig(args.out, dpi=130)


if __name__ == "__main__":
    main()
