"""The report: one page that shows everything, and beside it each figure, each table and the raw scores as files."""

from __future__ import annotations

import csv
import datetime
import io
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

import numpy as np
import yaml

from ubp2._version import __version__
from ubp2.errors import UserError
from ubp2.evaluation import drawings, grids, measures, page, provenance
from ubp2.evaluation.grids import Grid
from ubp2.evaluation.page import Section
from ubp2.evaluation.results import Results
from ubp2.evaluation.scores import Scores, score, titles
from ubp2.evaluation.tables import Published, main_grid
from ubp2.storage.database import disk_errors

__all__ = ["Options", "Written", "check_out", "produce", "raw_scores", "write"]

_WHOSE = "<p>Of each method the seed in the middle by its last score; of an even number the worse of the two.</p>"
PAGE = "index.html"
TABLES = ("scores", "amounts", "intervals", "area", "labels", "protocol", "machines")


class Written(NamedTuple):
    """What a report says, and where."""

    page: Path
    scores: Scores
    tables: dict[str, Grid]  # by the name of their files
    problems: list[str]


class Options(TypedDict, total=False):
    """What `write` takes beside its title; `produce` says what each means."""

    published: Mapping[str, Mapping[str, Published]] | None
    columns: Sequence[str]
    order: Sequence[str] | None
    notes: Sequence[str]
    commands: Sequence[str]
    reference: str | None
    bars: bool


def write(results: Results, out: Path | str, *, title: str, **options: Unpack[Options]) -> Path:
    """Write the report into the folder `out` and return its page.

    Args:
        results: What `read_runs` returns.
        out: The folder; a report that is there already is replaced.
        title: The title of the page.
        options: Any of `order` (methods in order), `reference` (the method that the others are tested against), `notes`
            (sentences for the top of the page), `commands` (those that made the report) and what `produce` takes else.
    """
    return produce(results, Path(out), title=title, **options).page


def produce(
    results: Results,
    out: Path,
    *,
    title: str,
    published: Mapping[str, Mapping[str, Published]] | None = None,
    columns: Sequence[str] = ("average", "rank"),
    order: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    commands: Sequence[str] = (),
    reference: str | None = None,
    bars: bool = False,
) -> Written:
    """Write the report into the folder `out`.

    `published` stands beside ours; `order` puts methods in order and may name some that have no run yet; `notes` are
    sentences for the top of the page and `commands` those that made the report. Tests are of `reference` against every
    other method. `bars` adds the paper's bars. A report that is there already is replaced file by file, the page last.
    """
    check_out(out)
    scores = score(results, order=order, reference=reference)
    tables = _tables(results, scores, published, columns)
    with disk_errors(out, None), _beside(out) as folder:
        shown = {one.name: drawings.save(one, folder) for one in drawings.draw(results, scores, bars)}
        for name, table in tables.items():
            _put(folder / "tables" / f"{name}.csv", grids.as_csv(table))
            _put(folder / "tables" / f"{name}.tex", grids.as_latex(table))
        _put(folder / "scores.csv", raw_scores(results))
        clips, too_large = provenance.clips(results)
        problems = [*results.problems, *_not_compared(scores), *too_large]
        sections = _sections(results, scores, tables, shown, clips, problems, commands)
        warned = [*notes, *provenance.shortfalls(scores, results, published)]
        stamp = datetime.datetime.now(datetime.UTC).strftime("%d %B %Y, %H:%M UTC")
        lead = f"{_amount(results, scores)} Written {stamp}, ubp2 {__version__}."
        footer = f"Raw scores: scores.csv. Tables: tables/. Figures: figures/. ubp2 {__version__}."
        _put(folder / PAGE, page.as_page(title, lead, [page.callout(warned)], sections, footer))
        _move(folder, out)
    return Written(out / PAGE, scores, tables, problems)


def check_out(out: Path) -> None:
    """Refuse a place that is a file, a run folder, or a folder with a page of somebody else, before any work."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out is a folder, and {out} is a file; name another")
    kept = next((name for name in ("config.yaml", "population.json") if (out / name).is_file()), None)
    if kept:
        raise UserError(f"--out {out} is the folder of a run (it has {kept}); name another for the report")
    old = out / PAGE
    if old.is_file() and page.MARK not in old.read_text(encoding="utf-8", errors="replace")[:2000]:
        raise UserError(f"{old} is a page that no report wrote; name another folder with --out")


def raw_scores(results: Results) -> str:
    """Every evaluation of every series as a line of CSV, which `ubp2 report` can read again."""
    metric = next((one.metric for one in results.series), "success")
    names = sorted({name for one in results.series for name in one.protocol if name != "metric"})
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["task", "method", "seed", "decision", "labels", metric, "steps", *names])
    for one in results.series:
        settings = [_setting(one.protocol[name]) if name in one.protocol else "" for name in names]
        for decision, labels, value in zip(one.decision, one.labels, one.score, strict=True):
            plain = map(_plain, (one.task, one.method, one.seed, int(decision), labels, value, one.steps))
            writer.writerow([*plain, *settings])
    return stream.getvalue()


def _plain(value: object) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.10g}"
    return str(value)


def _setting(value: object) -> str:
    """A setting as a configuration file has it: what is known to be unset is null, and only the unknown is empty."""
    return yaml.safe_dump(value, default_flow_style=True, width=math.inf).removesuffix("...\n").rstrip("\n")


def _tables(
    results: Results, scores: Scores, published: Mapping[str, Mapping[str, Published]] | None, columns: Sequence[str]
) -> dict[str, Grid]:
    """All tables by the name of their files."""
    found = (
        main_grid(scores, published=published, columns=columns, notes=measures.partial(results)),
        measures.amounts(results, scores.methods),
        measures.intervals(scores),
        measures.areas(scores),
        measures.labels_needed(results, scores),
        provenance.protocols(results),
        provenance.machines(results),
    )
    return {name: table for name, table in zip(TABLES, found, strict=True) if table is not None}


def _not_compared(scores: Scores) -> list[str]:
    """Tasks whose methods were never evaluated at the same decision."""
    return [
        f"{task} is not compared: its seeds have no evaluation at a common decision"
        for task, aligned in scores.aligned.items()
        if aligned.curves and not aligned.decision.size
    ]


def _sections(
    results: Results,
    scores: Scores,
    tables: Mapping[str, Grid],
    shown: Mapping[str, str],
    clips: Sequence[provenance.Clip],
    problems: Sequence[str],
    commands: Sequence[str],
) -> list[Section]:
    """The parts of the page; those without content are left out there."""

    def table(*names: str) -> list[str]:
        return [grids.as_html(tables[name]) for name in names if name in tables]

    def drawn(*names: str) -> list[str]:
        return [shown[name] for name in names if name in shown]

    names = titles(scores.tasks)
    films = "".join(
        page.video(clip.path.read_bytes(), f"{clip.method} on {names[clip.task]}, seed {clip.seed}") for clip in clips
    )
    made = provenance.run_commands(results)
    return [
        Section("amount", "What is there", table("amounts")),
        Section("scores", "Results", [*table("scores"), *drawn("bars")]),
        Section("curves", "Learning curves", [page.row(drawn("curves", "curves-labels"))]),
        Section(
            "statistics",
            "Other statistics",
            [page.row(table("intervals", "area", "labels")), page.row(drawn("profile", "improvement"))],
        ),
        Section("bonuses", "Bonus and coefficient", drawn("bonuses")),
        Section("clips", "Clips", [_WHOSE, f'<div class="clips">{films}</div>'] if films else []),
        Section("problems", "Problems", [page.items(problems)]),
        Section(
            "origin",
            "Where it comes from",
            [
                *table("protocol", "machines"),
                page.code(commands, "This report"),
                page.code(made, f"The runs: {len(made)} command{'' if len(made) == 1 else 's'}"),
            ],
        ),
    ]


def _amount(results: Results, scores: Scores) -> str:
    done = sum(one.finished for one in results.series)
    wanted = len({(t, m, s) for (t, m), seeds in results.wanted.items() for s in seeds}) or len(results.series)
    wanted = max(wanted, len(results.series))
    tasks, methods = len(scores.tasks), len(scores.methods)
    return (
        f"{methods} method{'' if methods == 1 else 's'} on {tasks} task{'' if tasks == 1 else 's'}; "
        f"{done} of {wanted} runs finished."
    )


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A temporary folder on the same disk, so that what is written moves in one step each."""
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent))
    try:
        yield folder
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)


def _move(folder: Path, out: Path) -> None:
    """Put the files into their places, the page last, and remove figures and tables that this report has not."""
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.name == PAGE)
    for path in files:
        place = out / path.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)
    ours = {path.relative_to(folder) for path in files}
    for name, stems, kinds in (("figures", drawings.FIGURES, ("png", "pdf")), ("tables", TABLES, ("csv", "tex"))):
        for path in (Path(name) / f"{stem}.{kind}" for stem in stems for kind in kinds):
            if path not in ours:
                (out / path).unlink(missing_ok=True)
