"""The numbers of docs/theory.md: measure them, and write the page's tables and figures from what was measured.

    python benchmarks/theory.py measure     # all studies, as `ubp2 theory report` runs them
    python benchmarks/theory.py gp          # our Gaussian process beside tinygp (pip install tinygp)
    python benchmarks/theory.py render      # tables and figures of docs/theory.md

Raw files lie in benchmarks/results/theory. In the page a table stands between <!-- table:FILE/TABLE: COLUMNS --> and
<!-- end -->; without columns it has all.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pages import filled, markdown

from ubp2.bench.report import shown
from ubp2.system import provenance
from ubp2.theory.figures import draw, save
from ubp2.theory.gp import GP
from ubp2.theory.kernels import Kernel
from ubp2.theory.options import Report
from ubp2.theory.report import make

ROOT = Path(__file__).parents[1]
RESULTS, PAGE, IMAGES = (
    ROOT / "benchmarks" / "results" / "theory",
    ROOT / "docs" / "theory.md",
    ROOT / "docs" / "images",
)
EPISODES, STEPS, WATCHED = 60, 10, 287


def measure() -> None:
    """Keep the raw files of a report, and how long it took."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = make(Report(), Path(folder))
        for own in found:
            source = Path(folder) / f"{own['name']}.json"
            (RESULTS / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    print(f"{time.perf_counter() - began:.0f} s")


def compare_gps() -> None:
    """Sixty episodes of ten observations, with the posterior at 287 points after each: seconds, and how far apart."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import tinygp

    rng = np.random.default_rng(0)
    x, watched = rng.uniform(-1, 1, (EPISODES * STEPS, 2)), rng.uniform(-1, 1, (WATCHED, 2))
    y = np.sin(3 * x[:, 0]) + 0.05 * rng.standard_normal(len(x))

    def ours() -> list[Any]:
        gp, found = GP(Kernel("rbf", 0.4), 0.0025, watched), []
        for end in range(STEPS, len(x) + 1, STEPS):
            gp.add(x[end - STEPS : end], y[end - STEPS : end, None])
            found.append(gp.posterior())
        return found

    @jax.jit
    def conditioned(x: Any, y: Any) -> Any:
        kernel = tinygp.transforms.Linear(1 / 0.4, tinygp.kernels.ExpSquared())
        gp = tinygp.GaussianProcess(kernel, x, diag=0.0025)
        posterior = gp.condition(y, watched).gp
        return posterior.loc, posterior.variance

    def theirs() -> list[Any]:
        return [jax.block_until_ready(conditioned(x[:end], y[:end])) for end in range(STEPS, len(x) + 1, STEPS)]

    rows = []
    for name, work in (("ours, growing", ours), ("tinygp, first pass", theirs), ("tinygp, compiled", theirs)):
        rows.append({"process": name, "seconds": _timed(work, 1 if name == "tinygp, first pass" else 3)})
    pairs = list(zip(ours(), theirs(), strict=True))
    apart = max(float(np.max(np.abs(own[0][:, 0] - other[0]))) for own, other in pairs)
    notes = [f"largest difference of the means: {apart:.1e}"]
    data = {
        "study": "gp",
        "command": "python benchmarks/theory.py gp",
        **provenance(),
        "tinygp": tinygp.__version__,
    }
    (RESULTS / "gp.json").write_text(
        json.dumps(data | {"tables": {"time": rows}, "notes": notes}) + "\n", encoding="utf-8"
    )
    print(rows, notes)


def _timed(work: Callable[[], Any], repetitions: int) -> float:
    """The least of some times: what other programs add is no property of either."""
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def render(page: str) -> str:
    """The page with every table written anew."""

    def table(name: str) -> str:
        name, _, columns = name.partition(": ")
        file, _, which = name.partition("/")
        rows = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))["tables"][which]
        names = [column.strip() for column in columns.split("|")] if columns else list(rows[0])
        head = [name.replace("_", " ").strip() for name in names]
        return markdown([head, *([shown(row[name]) for name in names] for row in rows)])

    return filled(page, table)


def figures() -> None:
    """The figures that the page shows."""
    for name in re.findall(r"images/theory-(.+?)\.png", PAGE.read_text(encoding="utf-8")):
        data = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        save(draw(data["study"], data["curves"]), IMAGES / f"theory-{name}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "gp", "render"))
    what = parser.parse_args().what
    RESULTS.mkdir(parents=True, exist_ok=True)
    if what == "render":
        PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        figures()
    else:
        {"measure": measure, "gp": compare_gps}[what]()


if __name__ == "__main__":
    main()
