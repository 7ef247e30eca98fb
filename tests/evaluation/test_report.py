"""The report of made-up runs: one page that stands alone, its files, and what happens where it cannot be written."""

from __future__ import annotations

import csv
import dataclasses
import errno
import io
import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.evaluation import made
from tests.evaluation.test_tables import Tags
from ubp2.errors import UserError
from ubp2.evaluation import provenance, report
from ubp2.evaluation.results import Results, read_runs
from ubp2.evaluation.scores import score
from ubp2.evaluation.tables import Published
from ubp2.evaluation.video import write_video

DOOR, WINDOW = "metaworld/door-close", "metaworld/window-close"
PAPER = {"ubp2": {DOOR: Published(97.8, 1.0)}, "mbp": {DOOR: Published(95.6, 0.0, True)}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods on two tasks, a clip, a broken folder and a run without an evaluation."""
    root = tmp_path_factory.mktemp("runs")
    for agent, level in (("ubp2", 0.5), ("mbp", 0.2)):
        for task in (DOOR, WINDOW):
            for seed in range(2):
                success = (0.0, level, 1.0, level + 0.1 * seed)
                made.run(
                    root / agent / task.partition("/")[2] / f"s{seed}",
                    env=task,
                    seed=seed,
                    success=success,
                    agent=agent,
                )
    frames = np.zeros((4, 32, 32, 3), np.uint8)
    write_video(root / "ubp2" / "door-close" / "s1" / "videos" / "000004000-policy.mp4", frames, 10)
    made.run(root / "ubp2" / "door-close" / "s9", seed=9, success=())
    (root / "broken").mkdir()
    (root / "broken" / "config.yaml").write_text("env: [")
    return root


@pytest.fixture(scope="module")
def out(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out") / "deep" / "report"
    options = {
        "published": PAPER,
        "notes": ["Half of the <budget>, by `promising`."],
        "commands": ["ubp2 reproduce table1"],
        "bars": True,
    }
    page = report.write(read_runs([runs]), folder, title="Table 1 & more", **options)
    assert page == folder / "index.html"
    return folder


def test_the_page_needs_nothing_else(out: Path) -> None:
    text = (out / "index.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    assert not tags.open
    sources = [value for _, attributes in tags.seen for name, value in attributes.items() if name == "src"]
    assert len(sources) >= 6 and all(value and value.startswith("data:") for value in sources)
    links = [attributes["href"] for tag, attributes in tags.seen if tag == "a"]
    assert all(link and (link.startswith("#") or (out / link).is_file()) for link in links)
    assert not any(tag == "script" for tag, _ in tags.seen) and "http://" not in text.replace("http://www.w3.org", "")
    assert all(attributes.get("alt") for tag, attributes in tags.seen if tag == "img")
    ids = [attributes["id"] for _, attributes in tags.seen if "id" in attributes]
    assert len(ids) == len(set(ids)) and {link[1:] for link in links if link and link[0] == "#"} <= set(ids)


def test_the_page_says_what_it_is(out: Path) -> None:
    text = (out / "index.html").read_text(encoding="utf-8")
    assert "<h1>Table 1 &amp; more</h1>" in text and "2 methods on 2 tasks; 8 of 8 runs finished." in text
    assert "Half of the &lt;budget&gt;, by <code>promising</code>." in text and "ubp2 reproduce table1" in text
    assert "averages over 1M decisions; ours go to 4,000 on Door Close." in text
    assert "Fewer labels than in the paper&#x27;s main results: 40 of 500 on Door Close." in text
    assert "Fewer seeds than in the paper&#x27;s main results: 2 of 10 on Door Close." in text
    for section in ("What is there", "Results", "Learning curves", "Other statistics", "Clips", "Problems"):
        assert re.search(f"<h2 id=[^>]*>{section}</h2>", text)
    assert "config.yaml is not valid YAML" in text or "is not a run folder" in text
    assert "s9 has no evaluation yet" in text and "a made-up device" in text
    assert (
        "ubp2 on Door Close, seed 1" in text
        and "of an even number the worse of the two" in text
        and "preferences.budget" in text
    )


def test_every_figure_and_table_is_a_file(out: Path) -> None:
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    figures = ("curves", "curves-labels", "bars", "profile", "improvement", "bonuses")
    assert {f"figures/{name}.{kind}" for name in figures for kind in ("png", "pdf")} <= names
    assert {f"tables/{name}.{kind}" for name in report.TABLES for kind in ("csv", "tex")} <= names
    assert names - {name for name in names if name.startswith(("figures/", "tables/"))} == {"index.html", "scores.csv"}
    rows = list(csv.DictReader(io.StringIO((out / "scores.csv").read_text())))
    assert len(rows) == 8 * 4 and rows[0]["preferences.budget"] == "40"
    assert not list(out.parent.glob(".report-*"))
    for path in (out / "figures").glob("*.pdf"):
        data = path.read_bytes()
        assert b"/CreationDate" not in data and b"/Type3" not in data, "no dates, and letters that can be searched"


def test_a_report_is_replaced_and_strangers_are_left_alone(out: Path, tmp_path: Path) -> None:
    place = tmp_path / "report"
    os.rename(out, place)
    (place / "figures" / "mine.png").write_text("mine")
    report.write(made.results(made.series()), place, title="One run")
    assert "One run" in (place / "index.html").read_text()
    assert {path.name for path in (place / "figures").iterdir()} == {
        *("mine.png", "curves.png", "curves.pdf", "curves-labels.png", "curves-labels.pdf")
    }
    os.rename(place, out)
    stranger = tmp_path / "site"
    stranger.mkdir()
    (stranger / "index.html").write_text("<p>my site</p>")
    with pytest.raises(UserError, match="index.html is a page that no report wrote; name another folder with --out"):
        report.write(made.results(made.series()), stranger, title="x")
    with pytest.raises(UserError, match="--out is a folder, and .*index.html is a file; name another"):
        report.write(made.results(made.series()), stranger / "index.html", title="x")


def test_a_full_disk_is_a_sentence_and_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = report.write(made.results(made.series()), tmp_path / "report", title="Before")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UserError, match=r"cannot write .*report: no space left on device; free some space"):
        report.write(made.results(made.series()), tmp_path / "report", title="After")
    assert "Before" in page.read_text() and [path.name for path in tmp_path.iterdir()] == ["report"]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot write .*report: permission denied; make it writable"):
        report.write(made.results(made.series()), tmp_path / "report", title="x")


def test_one_seed_one_method_and_returns(tmp_path: Path) -> None:
    own = made.series(score=(-900.0, -200.0), metric="return", protocol={"metric": "return"}, task="gym/Pendulum-v1")
    text = report.write(made.results(own), tmp_path / "r", title="Pendulum").read_text()
    assert "Return: interquartile mean" in text and "-550.0" not in text and "\u2212550.0" in text
    assert not (tmp_path / "r" / "figures" / "profile.png").exists()
    assert (tmp_path / "r" / "scores.csv").read_text().startswith("task,method,seed,decision,labels,return")


def test_a_report_says_which_runs_are_not_finished_and_up_to_where_it_compares(tmp_path: Path) -> None:
    begun = made.series("mbp", score=(0.0, 0.2), steps=4000)
    table = report.produce(made.results(made.series(), begun), tmp_path / "r", title="x").tables["scores"]
    assert "averaged over time up to decision 2,000 (" in table.caption
    assert table.notes[0] == (
        f"The run of mbp on {DOOR} is not finished (decision 2,000 of 4,000): compared up to what all methods have."
    )
    alone = report.produce(made.results(begun), tmp_path / "r", title="x").tables["scores"]
    assert alone.notes[0].endswith("(decision 2,000 of 4,000): numbers are over what there is.")
    many = made.results(made.series(), *(made.series(f"m{i}", score=(0.0, 0.2), steps=4000) for i in range(6)))
    notes = report.produce(many, tmp_path / "r", title="x").tables["scores"].notes
    assert notes[3] == "There are 3 more such; the table of seeds that are finished has them all."


@pytest.mark.parametrize("name", ["config.yaml", "population.json"])
def test_a_report_is_not_written_into_a_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=f"--out .* is the folder of a run \\(it has {name}\\); name another"):
        report.write(made.results(made.series()), tmp_path, title="x")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_methods_without_a_common_evaluation_are_a_problem(tmp_path: Path) -> None:
    apart = made.results(made.series(), made.series("mbp", decision=(1500, 2500, 3500)))
    written = report.produce(apart, tmp_path / "r", title="x")
    assert written.problems == [f"{DOOR} is not compared: its seeds have no evaluation at a common decision"]


def test_nothing_yet_but_what_the_paper_says(tmp_path: Path) -> None:
    wanted = Results((), ("x is not a run folder",), {(DOOR, "ubp2"): frozenset({0, 1})})
    text = report.write(wanted, tmp_path / "r", title="x", published=PAPER, order=["ubp2"]).read_text()
    assert "0 of 2 runs finished" in text and "97.8 (1.0)" in text and "x is not a run folder" in text


def test_of_two_seeds_the_worse_is_shown(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("worse", "better")]
    for folder in folders:
        folder.mkdir()
        (folder / "clip.mp4").write_bytes(b"film")
    own = [made.series(seed=seed, score=(0.0, last)) for seed, last in enumerate((0.2, 0.9))]
    results = made.results(*(dataclasses.replace(one, folder=at) for one, at in zip(own, folders, strict=True)))
    assert provenance.clips(results)[0][0].seed == 0


def test_a_large_clip_is_left_out_with_a_sentence(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = read_runs([runs / "ubp2"])
    ((clip,), none) = provenance.clips(results)
    assert (clip.task, clip.method, clip.seed, none) == (DOOR, "ubp2", 1, [])
    monkeypatch.setattr(provenance, "CLIP_BYTES", 10)
    assert provenance.clips(results) == ([], [f"the clip {clip.path} is too large for the page (0.0 MB)"])


def test_commands_are_told_once_and_as_typed(runs: Path) -> None:
    results = read_runs([runs])
    (line,) = provenance.run_commands(results)
    assert shlex.split(line)[1:] == sys.argv[1:]
    assert provenance.shortfalls(score(results), results, None) == []
    grid = provenance.machines(results)
    assert grid is not None and grid.rows[0].name == "a made-up device" and grid.rows[0].cells[0].text == "8"


def test_fewer_labels_than_the_papers_are_those_that_were_used(tmp_path: Path) -> None:
    """A budget of 500 that a short run cannot reach is no 500 labels."""
    short = made.results(made.series(protocol={"metric": "success", "preferences.budget": 500}))
    told = provenance.shortfalls(score(short), short, PAPER)
    assert "Fewer labels than in the paper's main results: 30 of 500 on Door Close." in told
