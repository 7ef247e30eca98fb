"""Runs with labels in them, and their files, to be moved about and damaged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ubp2.config.schema import Config, PreferenceConfig
from ubp2.envs.base import EnvSpec
from ubp2.preference.imported import Label
from ubp2.preference.store import LabelStore
from ubp2.storage.runs import Run
from ubp2.terminal import cli
from ubp2.types import Query

CONFIG = Config(env="toy/reach", preferences=PreferenceConfig(segment_length=3))


SPEC = EnvSpec("toy/reach", 4, 2, 50, 1, 20, True, (-1.0, -1.0), (1.0, 1.0))


ENDINGS = ("jsonl", "jsonl.gz", "parquet")


def query(number: int, score: float = 0.25) -> Query:
    """Segments with numbers that decimal digits would not bring back."""
    rng = np.random.default_rng(number)
    left_obs, right_obs = rng.normal(size=(2, 3, 4)).astype(np.float32)
    left_action, right_action = rng.normal(size=(2, 3, 2)).astype(np.float32)
    left_obs[0, :3] = (-0.0, 1e-42, np.float32(1) / 3)
    return Query(left_obs, left_action, right_obs, right_action, number, 1, number + 1, 2, score)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """A function that makes the folder of a run with questions and answers of two people."""

    def make(name: str = "run", first: int = 0, answered: bool = True) -> Path:
        with Run.create(tmp_path / name, CONFIG) as run, LabelStore(run.labels) as store:
            store.note({"environment": SPEC._asdict()})
            a, b, c, d, _ = store.ask(40, 0, [query(first + n, math.nan if n else 0.1) for n in range(5)], "uniform")
            (e,) = store.ask(80, 1, [query(first + 9)], "optimistic")
            if answered:
                store.answer(a, 1.0, annotator="Zoë", seconds=2.5, key=f"{first} 1", swapped=True)
                store.answer(b, 0.5, annotator="Zoë", seconds=4.0, key=f"{first} 2")
                store.answer(a, 0.0, annotator="ben", seconds=0.1, key=f"{first} 3")
                store.answer(c, 0.5, 0.0, annotator="ben", key=f"{first} 4", reason="the clip would not play")
                store.answer(d, 1.0, annotator="ben", key=f"{first} 5")
                store.withdraw("ben", key=f"{first} 6")
                store.answer(e, 0.0, annotator="Zoë", key=f"{first} 7")
                store.answer(e, 1.0, 0.7, annotator="Zoë", seconds=1 / 3, key=f"{first} 8")
                store.check(a, 1.0, 1.0, "Zoë", 1.0, key=f"{first} 9", swapped=False)
                store.check(b, 1.0, 1.0, "Zoë", 1.0, key=f"{first} 10", swapped=False)
        return tmp_path / name

    return make


def labels_of(folder: Path) -> list[Label]:
    with LabelStore(folder / "labels.sqlite") as store:
        return list(store.labels(folder.name))


def as_bits(labels: list[Label]) -> list[tuple[Any, ...]]:
    return [
        (*(array.tobytes() for array in each.query[:4]), *each.query[4:8], repr(each.query.score), *each[1:])
        for each in labels
    ]


def ubp2(*words: Any) -> int:
    return cli.main(["labels", *map(str, words)])


def changed(file: Path, change: Callable[[dict[str, Any]], Any], line: int = 0) -> Path:
    lines = file.read_text().splitlines()
    content = json.loads(lines[line])
    lines[line] = json.dumps(change(content) or content)
    file.write_text("\n".join(lines) + "\n")
    return file
