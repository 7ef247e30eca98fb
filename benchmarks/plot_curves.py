"""Draw evaluation curves from raw scores: python benchmarks/plot_curves.py OUT.png TITLE=results/NAME.csv ...

One panel a file: every seed as a thin line, the mean as a thick one, success at any step over decisions.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"policy": "#0072B2", "planner": "#D55E00"}  # colour-blind safe


def main(out: Path, panels: list[tuple[str, Path]]) -> None:
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.2), sharey=True, layout="constrained")
    for axis, (title, path) in zip([axes] if len(panels) == 1 else axes, panels, strict=True):
        rows = list(csv.DictReader(path.open()))
        seeds = sorted({row["seed"] for row in rows})
        for controller, colour in COLOURS.items():
            at: dict[int, list[float]] = defaultdict(list)
            for seed in seeds:
                own = [row for row in rows if row["seed"] == seed]
                x = [int(row["decision"]) for row in own]
                y = [float(row[f"{controller}/success_any"]) for row in own]
                axis.plot(x, y, color=colour, alpha=0.3, linewidth=0.8)
                for decision, success in zip(x, y, strict=True):
                    at[decision].append(success)
            mean = {decision: sum(values) / len(values) for decision, values in sorted(at.items())}
            axis.plot(list(mean), list(mean.values()), color=colour, linewidth=2.2, label=controller)
        axis.set_title(f"{title} ({len(seeds)} seeds)", fontsize=10)
        axis.set(xlabel="decisions", ylim=(-0.03, 1.03))
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    first = axes if len(panels) == 1 else axes[0]
    first.set_ylabel("success at any step")
    first.legend(frameon=False)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    named = [argument.split("=", 1) for argument in sys.argv[2:]]
    main(Path(sys.argv[1]), [(title, Path(path)) for title, path in named])
