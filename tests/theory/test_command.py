"""ubp2 theory as a command: every study at its smallest, the page, and what is refused."""

from __future__ import annotations

import json
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.waiting import until
from ubp2.errors import UserError
from ubp2.terminal.cli import main
from ubp2.terminal.flags import words
from ubp2.theory.growth import few
from ubp2.theory.options import STUDIES, Gain, Optimism, Regret
from ubp2.theory.report import Part, _studied

SMALLEST = {
    "gain": "--points 4 --dimensions 1 --candidates 5",
    "calibration": "--repeats 1 --points 2",
    "optimism": "--draws 2",
    "simulation": "--draws 2",
    "regret": "--episodes 4 --repeats 2",
    "suboptimality": "--episodes 4 --repeats 1",
    "preferences": "--episodes 4 --repeats 1",
    "ensembles": "--repeats 1 --points 4 --members 2 --updates 2",
}


@pytest.mark.parametrize("study", SMALLEST)
def test_a_study_answers_with_json_and_writes_its_files(
    study: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["theory", study, *SMALLEST[study].split(), "--out", str(tmp_path), "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["study"] == study and data["tables"] and data["command"].startswith(f"ubp2 theory {study}")
    written = json.loads((tmp_path / f"{study}.json").read_text(encoding="utf-8"))
    assert written["tables"].keys() == data["tables"].keys()
    assert (tmp_path / f"{study}.png").read_bytes().startswith(b"\x89PNG")


def test_every_study_has_been_run() -> None:
    assert set(SMALLEST) == set(STUDIES) - {"report"}


def test_text_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "regret", "--kernel", "linear", "--episodes", "4", "--repeats", "1"]) == 0
    text = capsys.readouterr().out
    assert "lq, linear kernel, horizon 10" in text and "greedy" in text
    assert "Only 1 agent a row: there are no intervals" in text and "Take --repeats 10 or more" in text
    assert few(2)[0].startswith("Only 2 agents a row: intervals of so few say little") and not few(5)


@pytest.mark.slow
def test_the_page_has_every_study(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small = ["--repeats", "1", "--episodes", "4", "--workers", "1", "--json"]
    assert main(["theory", "report", *small, "--out", str(tmp_path)]) == 0
    told = capfd.readouterr()
    data = json.loads(told.out)
    assert told.err.splitlines()[-1].startswith("14/14 ")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert data["page"] == str(tmp_path / "index.html")
    for part in data["studies"]:
        assert f'id="{part["name"]}"' in page and (tmp_path / f"{part['name']}.json").is_file()
    assert {part["study"] for part in data["studies"]} == set(STUDIES) - {"report"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("", "ubp2 theory needs the name of a study, before any option: gain, calibration"),
        ("regrets", "unknown study 'regrets'. Did you mean regret"),
        ("gain --points 1", "--points must be at least 2, got 1"),
        ("gain --dimensions", "--dimensions needs at least one number"),
        ("regret --scale -1", "--scale must not be negative, got -1.0"),
        ("regret --scale nan", "--scale must be a finite number, got nan"),
        ("suboptimality --epsilon inf", "--epsilon must be a finite number, got inf"),
        ("regret --ablation", "--ablation needs --infinite"),
        ("regret --infinite --ablation --scale 1 0.1", "--ablation takes one --scale, got 2"),
        ("regret --kernel linear --system hills", "hills is not linear"),
        ("calibration --delta 1", "--delta must lie between 0 and 1, got 1.0"),
        ("report --workers 0", "--workers must be at least 1, got 0"),
    ],
)
def test_what_is_refused(arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", *arguments.split()]) == 2
    assert sentence in capsys.readouterr().err


def test_a_study_that_fails_ends_the_report_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does: the other study, which takes a minute, is ended in the middle."""
    ended: list[BaseProcess] = []
    terminate = BaseProcess.terminate
    monkeypatch.setattr(BaseProcess, "terminate", lambda process: (ended.append(process), terminate(process)))
    wrong, long = Regret(kernel="linear", system="hills"), Optimism(draws=10_000)
    order = [Part(name, "", "", options) for name, options in (("wrong", wrong), ("long", long))]
    with pytest.raises(UserError, match="hills is not linear"):
        list(_studied(order, workers=2))
    until(lambda: -signal.SIGTERM in [process.exitcode for process in ended])


def test_a_file_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    for out in (taken, taken / "inside"):
        assert main(["theory", "gain", "--out", str(out)]) == 2
        assert "is a file or lies in one; name another" in capsys.readouterr().err


def test_words_give_the_options_again() -> None:
    assert words("theory", Gain()) == ["theory", "gain"]
    assert words("theory", Regret(kernel="linear", scale=(1.0, 0.1), infinite=True, out=Path("x"))) == [
        *("theory", "regret", "--kernel", "linear", "--scale", "1.0", "0.1", "--infinite")
    ]
