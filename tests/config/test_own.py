"""Agents and query strategies that are functions of one's own: `module:function` wherever a name may stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ubp2.agents.registry import find
from ubp2.config import own
from ubp2.config.files import from_dict, load_yaml, to_dict
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.errors import UserError
from ubp2.preference.queries import make_strategy
from ubp2.storage.runs import Run
from ubp2.terminal import cli


def planning(config: object, obs_dim: int, action_dim: int) -> None: ...


def free(config: object, obs_dim: int, action_dim: int) -> None: ...


def score(key: object, returns: object) -> None: ...


def strategy(key: object, candidates: object, count: int) -> None: ...


free.model_free = True  # type: ignore[attr-defined]


def named(function: str) -> str:
    return f"{__name__}:{function}"


def test_a_name_with_a_module_is_that_function() -> None:
    assert find(named("planning")) is planning and make_strategy(named("strategy")) is strategy
    config = from_dict({"agent": named("free"), "preferences": {"strategy": named("strategy")}})
    assert from_dict(to_dict(config)) == config
    assert resolve(config, 50).evaluation.controllers == ("policy",)
    assert resolve(from_dict({"agent": named("planning")}), 50).evaluation.controllers == ("policy", "planner")


@pytest.mark.parametrize(
    ("setting", "name", "sentence"),
    [
        ("agent", "nowhere:make", "the agent nowhere:make cannot be imported (No module named 'nowhere'). Expected is"),
        ("agent", "planing", "has no attribute 'planing'). Did you mean planning? Expected is module:function"),
        ("agent", "", "cannot be imported (module"),
        ("agent", "named", "must be a function make(config, obs_dim, action_dim) -> Agent, and it takes (function"),
        ("preferences.strategy", "__name__", "must be a function strategy(key, candidates, count) -> Chosen, as"),
        ("preferences.strategy", "score", "as ubp2.preference.queries.ranked makes of a score, and it takes (key"),
    ],
)
def test_what_is_no_such_function(setting: str, name: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        own.function(setting, name if ":" in name else named(name))
    assert sentence in str(error.value)


def test_a_module_that_breaks_is_told_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"cannot be imported \(ZeroDivisionError: division by zero\)"):
        own.function("agent", "broken_module:make")


def test_flags_take_them_too(tmp_path: Path) -> None:
    """The last one counts, as of any flag; a run that is resumed has its own and is given no other."""
    words = ["--agent", "sac", f"--agent={named('planning')}", "--preferences.strategy", named("strategy")]
    parsed = cli._parse_train([*words, "--steps", "70"])
    assert parsed is not None
    config = parsed.config
    assert (config.agent, config.preferences.strategy, config.steps) == (named("planning"), named("strategy"), 70)
    Run.create(tmp_path / "run", resolve(preset("cpu"), 50)).close()
    with pytest.raises(UserError, match=r"preferences\.strategy: uniform -> "):
        cli._parse_train([*words[3:], "--resume", str(tmp_path / "run")])
    with pytest.raises(UserError, match="ablation 1111 sets preferences.strategy to optimistic, and"):
        cli._parse_train([*words[3:], "--ablation", "1111"])
    with pytest.raises(UserError, match=r"^--steps must be a whole number, got 'x'$"):  # tyro warns of them, too
        cli._parse_train([*words, "--steps", "x"])


def test_files_take_dotted_names(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(f"planner.horizon: 5\nmodel:\n  width: 8\nmodel.depth: 1\npreferences.strategy: {named('score')}\n")
    config = load_yaml(file)
    assert (config.planner.horizon, config.model.width, config.model.depth) == (5, 8, 1)
    assert config.preferences.strategy == named("score")
    for text, sentence in (
        ("planner.horizon: 5\nplanner: {horizon: 4}", "planner.horizon stands there twice"),
        ("planner.horizn: 5", "unknown setting 'planner.horizn'. Did you mean horizon"),
        ("ablation: '1111'\npreferences.strategy: uniform", "ablation 1111 sets preferences.strategy to optimistic"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=sentence):
            load_yaml(file)
