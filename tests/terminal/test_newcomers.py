"""Mistakes of a first hour at the command line: each is answered by one sentence that says what to write instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.storage.runs import Run
from ubp2.terminal.cli import main

# The line, and what the sentence must hold. In the folder are: runs/one, a run; empty, a folder; notes.txt, a file.
MISTAKES = {
    "train toy/reach": "'toy/reach' is one word too many. Did you mean --env toy/reach?",
    "train --env metaworld-door-close": "Did you mean metaworld/door-close",
    "train --env door-close": "Did you mean metaworld/door-close?",
    "train --env": "--env needs a value; ubp2 train --help says which",
    "train --steps 1e4": "--steps must be a whole number, got '1e4'; write 10000",
    "train --steps 10,000": "write 10000",
    "train --steps -5": "steps must be at least 1, got -5",
    "train --seed 1.5": "--seed must be a whole number, got '1.5'",
    "train --seed -1": "seed must not be negative, got -1",
    "train --horizon 3": "Did you mean --planner.horizon or --training.horizon?",
    "train --model.witdh 3": "unknown option --model.witdh. Did you mean --model.width?",
    "train --preset gpu": "unknown preset 'gpu'. Did you mean cpu? Known: best,",
    "train --agent ppo": "--agent has no choice 'ppo'. Known: ubp2, mbp, sac, pebble, rune, mrn, surf. One of your own",
    "train --preferences.strategy kcentre": "Did you mean kcenter?",
    "train --agent nowhere:make": "the agent nowhere:make cannot be imported (No module named 'nowhere')",
    "train --teacher humna": "Did you mean human?",
    "train --config empty": "empty is a folder; name a YAML file",
    "train --config broken.yaml": "broken.yaml is not valid YAML, line 2, column 1: expected ',' or ']'",
    "train --config binary.yaml": "binary.yaml is no text file",
    "train --config list.yaml": "must be a table of settings",
    "train --config words.yaml": "steps must be a whole number, got 'many'",
    "train --resume": "--resume needs a value",
    "train --resume runs": "runs is not a run folder, but it holds runs/one; name one of them",
    "train --resume notes.txt": "notes.txt is not a run folder but a file",
    "train --out notes.txt": "notes.txt exists and is a file; choose a folder with --out",
    "train --out runs/one": "ubp2 train --resume runs/one",
    "train --labels notes.txt": "a label file ends with .jsonl",
    "eval": "ubp2 eval needs RUN: Run folder",
    "eval runs/on": "there is nothing of that name; check the path. Did you mean runs/one?",
    "eval runs/one again": "ubp2 eval takes RUN, and 'again' is one word too many",
    "eval empty": "empty is not a run folder: it has no config.yaml",
    "eval runs/one --episode 3": "unknown option --episode. Did you mean --episodes?",
    "plot runs/one --out curve.bmp": "a figure is written as .png, .pdf, .svg",
    "report empty": "empty holds no run",
    "info notes.txt": "is not a run folder but a file",
    "envs --suite atari": "unknown suite 'atari'. Known: dmc,",
    "label nowhere": "nowhere is not a run folder: there is nothing of that name",
    "labels": "ubp2 labels needs what to do, before any option: export, import, verify, stats",
    "reproduce table9": "unknown experiment 'table9'. Did you mean table",
    "sweep status": "ubp2 sweep status needs the folder of a sweep",
    "lab reward": "ubp2 lab reward needs --data: Run folders whose episodes are used",
    "labels export": "ubp2 labels export needs RUN: Run folder",
    "sweep": "ubp2 sweep needs FILE|VERB: file of the sweep",
    "completion tcsh": "shell has no choice 'tcsh'.",
    "--verison": "unknown option '--verison'. Did you mean --version?",
    "trian --env toy/reach": "unknown command 'trian'. Did you mean train?",
}


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Run.create(tmp_path / "runs" / "one", resolve(preset("cpu", "toy/reach"), 50)).close()
    Path("empty").mkdir()
    Path("notes.txt").write_text("mine")
    Path("broken.yaml").write_text("planner: [1, 2\n")
    Path("binary.yaml").write_bytes(b"\x00\x01\xff")
    Path("list.yaml").write_text("- 1\n")
    Path("words.yaml").write_text("steps: many\n")


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("line", MISTAKES)
def test_one_sentence_says_what_to_do(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("ubp2: ") and err.count("\n") == 1
    assert MISTAKES[line] in err
    assert main([*line.split(), "--json"]) == 2
    assert json.loads(capfd.readouterr().out)["error"] == err.removeprefix("ubp2: ").rstrip("\n")


@pytest.mark.parametrize("line", ["version", "-v", "-V", "--version"])
def test_the_version_is_told_however_it_is_asked_for(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([line]) == 0
    assert capsys.readouterr().out.startswith("ubp2 ")


def test_help_of_a_command_comes_before_or_after_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "eval"]) == 0
    before = capsys.readouterr().out
    assert main(["eval", "--help"]) == 0
    assert capsys.readouterr().out == before and before.startswith("usage: ubp2 eval")


@pytest.mark.parametrize("line", ["lab reward", "encoder train", "bench plan", "theory regret", "labels export"])
def test_help_of_a_part_is_called_by_its_name(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*line.split(), "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: ubp2 {line} [-h]")


def test_json_may_come_first(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "version"]) == 0
    assert json.loads(capfd.readouterr().out)["version"]
    assert main(["--json"]) == 0
    assert "train" in json.loads(capfd.readouterr().out)["commands"]


def test_values_are_not_taken_for_words_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    """Options with several values, with one, repeated and with an equals sign; each line is refused for its --out."""
    for options in (
        "--model.reward-log-std -3 1",
        "--evaluation.controllers policy planner",
        "--labels a.jsonl --labels b.jsonl",
        "--env=toy/reach --planner.horizon 3",
        "--model.reward_log_std -3 1",
    ):
        assert main(["train", *options.split(), "--out", __file__]) == 2
        assert "too many" not in capsys.readouterr().err
