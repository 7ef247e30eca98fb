"""A folder in which the commands and snippets of a page run as they stand, made small.

The words stay; what they name is put there (a run folder, a label file, a configuration), and flags that shrink the
work come after them.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import ubp2
from tests.docs.pages import ROOT, blocks, commands
from ubp2.config.files import load_yaml, overridden, save_yaml
from ubp2.config.presets import preset as real_preset
from ubp2.config.schema import Config
from ubp2.evaluation.protocol import SETTINGS
from ubp2.terminal import cli

SMALL = shlex.split(
    "--steps 400 --training.warmup 100 --training.warmup-updates 2 --training.batch-size 8 --model.width 16 "
    "--model.depth 1 --planner.samples 8 --planner.elites 4 --planner.policy-samples 2 --planner.iterations 1 "
    "--planner.horizon 2 --preferences.every 200 --preferences.first 200 --preferences.per-session 2 "
    "--preferences.budget 2 --preferences.candidates 8 --evaluation.every 0 --evaluation.episodes 1 "
    "--evaluation.workers 1 --evaluation.controllers policy"
)
# What stands for something that the reader has.
STANDS_FOR = {
    "AGENT": "rune",
    "COMMAND": "train",
    "NAME": "table1",
    "YOURS": "toy/reach",
    "DIR": "runs/dir",
    "FILE": "sweep.yaml",
}
# Trains for hours, or wants a cluster: what they plan is what a test can see.
PLANNED = ("reproduce", "sweep", "tune")
# Exit codes besides 0 that say nothing against a page: the doctor finds what the machine lacks.
OTHER_CODES = {"doctor": (1,)}


def understandable(words: tuple[str, ...], run: Path, folder: Path, page: str = "") -> list[str]:
    """The words of a command on a page with everything there that they name; nothing is made small."""
    staged = [STANDS_FOR.get(word, word) for word in words]
    for number, word in enumerate(staged):
        before = staged[number - 1] if number else ""
        if word == "RUN" or (word.startswith("runs/") and not word.endswith(".yaml") and before != "--out"):
            _copy(run, folder / word)
            if words[0] in ("compare", "report"):
                _as_trained(folder / word, word, page)
            elif "--resume" in words and "--teacher.wait" in words:  # which may change where people answer
                _configure(folder / word, {"teacher": "human"})
        elif word.startswith("benchmarks/"):
            staged[number] = str(ROOT / word)
        elif "=benchmarks/" in word:
            staged[number] = word.replace("=benchmarks/", f"={ROOT}/benchmarks/")
        elif "=runs/" in word:
            _copy(run, folder / word.partition("=")[2])
        elif before == "--config":
            _write(folder / word, "training: {batch_size: 64}\n")
        elif before == "--labels" or (staged[:2] == ["labels", "import"] and number == 3):
            _export(run, folder / word)
        elif word == "sweep.yaml":
            _write(folder / word, next(block.text for block in blocks("yaml") if block.page == "docs/sweeps.md"))
        elif word == "theirs.csv":
            _write(folder / word, next(block.text for block in blocks("") if block.text.startswith("task,method")))
    return staged


def small(words: list[str], env_in_process: bool = True) -> list[str]:
    """The words with less to do."""
    if words[0] == "train" and "--resume" in words:
        return _set(words, "--steps", "400")
    if words[0] == "train":
        for flag, value in zip(SMALL[::2], SMALL[1::2], strict=True):
            words = [*_without(words, flag), flag, value]
        return [*_set(words, "--seeds", "1"), *(["--environment.in-process"] if env_in_process else []), "--quiet"]
    if words[0] in PLANNED and len(words) > 1 and "--dry-run" not in words:
        return [*words, "--dry-run"]
    return _set(words, "--episodes", "1")


def serves(words: list[str]) -> bool:
    """Whether a command waits for people; tests/labelling has them."""
    return words[0] == "label" or "human" in words or any(word.startswith("http://") for word in words)


def execute(snippet: str, run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """What a Python snippet leaves behind, its presets made as small as `run`."""
    monkeypatch.chdir(folder)
    _export(run, folder / "labels.jsonl.gz")
    tiny = load_yaml(run / "config.yaml")

    def preset(name: str, env: str, **settings: Any) -> Config:
        assert real_preset(name, env, **settings).env == env
        return overridden(dataclasses.replace(tiny, env=env), settings)

    monkeypatch.setattr(ubp2, "preset", preset)
    namespace: dict = {"__name__": "snippet"}
    exec(compile(snippet, "a page", "exec"), namespace)
    return namespace


def _copy(run: Path, to: Path) -> None:
    if not to.exists():
        shutil.copytree(run, to)


def _as_trained(copy: Path, name: str, page: str) -> None:
    """Give a copy the seed and the protocol with which its page trains the run of this name, if it does.

    Runs that may not be compared are refused by these, and would look alike otherwise.
    """
    on_page = [command.words for command in commands() if command.fenced and command.name.startswith(f"{page}:")]
    trained = [words for words in on_page if words[0] == "train" and ("--out", name) in itertools.pairwise(words)]
    flags = dict(itertools.pairwise(trained[0])) if trained else {}
    known = {f"--{name.replace('_', '-')}": name for name in (*SETTINGS, "teacher", "seed")}
    settings = {known[flag]: yaml.safe_load(value) for flag, value in flags.items() if flag in known}
    if settings:
        _configure(copy, settings)


def _configure(copy: Path, settings: dict[str, Any]) -> None:
    save_yaml(overridden(load_yaml(copy / "config.yaml"), settings), copy / "config.yaml")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _export(run: Path, file: Path) -> None:
    if not file.exists():
        assert cli.main(["labels", "export", os.fspath(run), os.fspath(file)]) == 0


def _without(words: list[str], flag: str) -> list[str]:
    if flag not in words:
        return words
    at = words.index(flag)
    return words[:at] + words[at + 2 :]


def _set(words: list[str], flag: str, value: str) -> list[str]:
    """The flag with another value, where it is given."""
    return [value if number and words[number - 1] == flag else word for number, word in enumerate(words)]
