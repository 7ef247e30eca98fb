"""docs/queries.md names every strategy and source, and the example of its guide trains."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import ubp2
from tests.training.helpers import table, tiny
from ubp2.config.files import load_yaml
from ubp2.config.schema import Config, PreferenceConfig
from ubp2.preference.queries import STRATEGIES

FILE = Path(__file__).parents[2] / "docs" / "queries.md"
GUIDE = FILE.parent / "guides" / "extend.md"
PAGE = FILE.read_text(encoding="utf-8") if FILE.exists() else ""


def test_the_tables_have_every_strategy_and_every_source_once() -> None:
    sources = get_args(get_type_hints(PreferenceConfig)["candidates_from"])
    assert re.findall(r"^\| `([a-z-]+)`", PAGE, re.MULTILINE) == [*STRATEGIES, *sources]


@pytest.mark.slow
def test_the_example_trains_and_its_run_loads(registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def preset(name: str, env: str) -> Config:
        return dataclasses.replace(tiny(steps=120, evaluation={"every": 0}), env=env)

    monkeypatch.setattr(ubp2, "preset", preset)
    example = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    namespace: dict = {}
    exec(compile(example, GUIDE.name, "exec"), namespace)
    result = namespace["result"]
    assert result.finished and result.labels == 12
    asked = table(result.folder / "labels.sqlite", "SELECT strategy, score FROM queries WHERE session = 2 ORDER BY id")
    assert {name for name, _ in asked} == {"good-and-unsure"}
    assert [score for _, score in asked] == sorted((score for _, score in asked), reverse=True)
    assert load_yaml(result.folder / "config.yaml").preferences.strategy == "good-and-unsure"
    ubp2.load(result.folder)
