"""ubp2 theory report: every study on one page, with its numbers and figure beside it as files."""

from __future__ import annotations

import html
import io
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from ubp2.bench.report import shown
from ubp2.evaluation import page
from ubp2.terminal.progress import say
from ubp2.theory.answer import answered, write
from ubp2.theory.figures import draw, save
from ubp2.theory.options import (
    Calibration,
    Ensembles,
    Gain,
    Optimism,
    Preferences,
    Regret,
    Report,
    Simulation,
    Suboptimality,
)

__all__ = ["FOLDER", "PAGE", "Part", "make", "parts"]

FOLDER, PAGE = Path("theory"), "index.html"


class Part(NamedTuple):
    """A study of the page: the name of its files, its heading, and what the paper says."""

    name: str
    title: str
    says: str
    options: Any


def parts(options: Report) -> list[Part]:
    """The studies in the order of the page."""
    common: dict[str, Any] = {"seed": options.seed}
    agents: dict[str, Any] = {**common, "repeats": options.repeats, "episodes": options.episodes}
    draws = 200 * options.repeats
    return [
        Part(
            "gain",
            "Information gain",
            "Table of information gains: what observations can tell grows slowly, and how slowly depends on the "
            "kernel.",
            Gain(**common),
        ),
        Part(
            "calibration",
            "Calibration",
            "Definition of well-calibrated models and Theorem 2 of Chowdhury and Gopalan: the intervals hold "
            "everywhere and always with probability 1 - delta, also for noise that is sub-Gaussian only.",
            Calibration(**common, repeats=10 * options.repeats),
        ),
        Part(
            "optimism",
            "Optimism and the lemmas around it",
            "The optimistic objective is above the true return of every policy; returns under the mean model are off "
            "by at most lambda times the summed deviations; an episode's regret is bounded by deviations.",
            Optimism(**common, draws=draws),
        ),
        Part(
            "simulation",
            "Noise that is not Gaussian",
            "Simulation lemma for sub-Gaussian noise, with the Lipschitz constant of the value in place of smoothing.",
            Simulation(**common, draws=draws // 5),
        ),
        *(
            Part(f"regret-{name}", f"Regret: {title}", says, Regret(**agents, **own))
            for name, title, says, own in _REGRETS
        ),
        Part(
            "suboptimality",
            "A planner that is not perfect",
            "Theorem on planner suboptimality, here with a fixed horizon: a constant loss a step adds at most a linear "
            "term, one that falls with the episodes less.",
            Suboptimality(**agents),
        ),
        Part(
            "preferences",
            "Beyond the paper: reward from comparisons",
            "The paper assumes a calibrated posterior of the reward and names learning it from preferences as its "
            "limitation.",
            Preferences(**agents),
        ),
        Part(
            "ensembles",
            "Beyond the paper: ensembles beside the posterior",
            "The paper views ensembles as samples of a posterior, and does not claim that they are calibrated.",
            Ensembles(**common, repeats=options.repeats),
        ),
    ]


_RATE = (
    "Theorem on regret, finite horizon: of order sqrt(N) up to the information gain, so that the exponent is below 1."
)
_REGRETS: Sequence[tuple[str, str, str, Mapping[str, Any]]] = (
    ("lq", "linear kernel, linear-quadratic", _RATE, {"kernel": "linear"}),
    ("hills", "RBF kernel, two hills, where greedy is stuck", _RATE, {}),
    ("matern", "Matérn kernel, two hills", _RATE, {"kernel": "matern"}),
    ("pendulum", "RBF kernel, pendulum", _RATE, {"system": "pendulum"}),
    (
        "infinite-lq",
        "linear kernel, infinite horizon",
        "Theorem on regret, infinite horizon.",
        {"kernel": "linear", "infinite": True},
    ),
    (
        "infinite-hills",
        "RBF kernel, infinite horizon, each bonus switched off",
        "Theorem on regret, infinite horizon, with the three bonuses of the objective.",
        {"infinite": True, "ablation": True},
    ),
    (
        "rademacher",
        "linear kernel, noise of two values",
        "Noise that is not Gaussian, with the coefficients for Gaussian noise: an illustration of the theorem on "
        "sub-Gaussian noise.",
        {"kernel": "linear", "noise": "rademacher", "scale": (1.0,)},
    ),
)
_SLOW = ("regret-pendulum", "regret-infinite-hills", "regret-lq", "ensembles")


def make(options: Report, folder: Path) -> list[dict[str, Any]]:
    """Run all studies, slow ones first and some at a time; write their files and the page; return their data."""
    wanted = parts(options)
    order = sorted(wanted, key=lambda part: part.name not in _SLOW)
    found: dict[str, dict[str, Any]] = {}
    for part, data in _studied(order, options.workers):
        found[part.name] = data
        write(data, folder, part.name)  # at once, so that it stays if the report is stopped
        say(f"{len(found)}/{len(wanted)} {part.name}")
    (folder / PAGE).write_text(_page(wanted, found, options), encoding="utf-8")
    return [{"name": part.name} | found[part.name] for part in wanted]


def _studied(order: Sequence[Part], workers: int) -> Iterator[tuple[Part, dict[str, Any]]]:
    """Each study with its data, as they end."""
    if workers == 1:
        yield from ((part, answered(part.options)) for part in order)
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # many small products, and a core for each study
    context = multiprocessing.get_context("spawn")  # jax does not survive a fork
    others = set(multiprocessing.active_children())
    alone = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal, and is ours to answer
    with ProcessPoolExecutor(workers, context, signal.signal, alone) as pool:
        try:
            running = {pool.submit(answered, part.options): part for part in order}
            yield from ((running[done], done.result()) for done in as_completed(running))
        except BaseException:  # Ctrl-C, or a study that failed: nobody waits minutes for the others
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise


def _page(wanted: Sequence[Part], found: Mapping[str, Mapping[str, Any]], options: Report) -> str:
    sections = [page.Section(part.name, part.title, _section(part, found[part.name])) for part in wanted]
    commands = [found[part.name]["command"] for part in wanted]
    sections.append(page.Section("commands", "Commands", [page.code(commands, "what makes each part alone")]))
    return page.as_page(
        "The theory of UBP2, computed",
        "Each statement of the paper that can be checked by computing, on systems small enough that returns and "
        "optima are exact. docs/theory.md says which function and test stands behind each, and where the text has a "
        "slip.",
        [],
        sections,
        f"Seed {options.seed}, {options.repeats} agents a kind, {options.episodes} episodes.",
    )


def _section(part: Part, data: Mapping[str, Any]) -> list[str]:
    figure = draw(data["study"], data["curves"])
    stream = io.BytesIO()
    save(figure, stream, "svg")
    files = [f"{part.name}.png", f"{part.name}.json"]
    drawn = page.image(stream.getvalue(), "image/svg+xml", part.title, "", files, figure.get_size_inches()[0])
    tables = [f"<h3>{html.escape(name)}</h3>{_table(rows)}" for name, rows in data["tables"].items()]
    return [page.paragraph(part.says), drawn, *tables, *(page.paragraph(note, "note") for note in data["notes"])]


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as the page's tables are; the first column names them."""
    names = list(rows[0])
    head = "".join(f'<th scope="col">{html.escape(name.replace("_", " "))}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{html.escape(shown(row[names[0]]))}</th>'
        + "".join(f"<td>{html.escape(shown(row[name]))}</td>" for name in names[1:])
        + "</tr>"
        for row in rows
    )
    return f'<div class="frame"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
