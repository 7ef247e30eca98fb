"""The ablations of the paper: four switches of ubp2, `mbp` which has none of them, and what is refused."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

import ubp2
from tests.terminal.fake_api import Api
from ubp2.agents.registry import AGENTS
from ubp2.config.files import from_dict, load_yaml, save_yaml
from ubp2.config.presets import preset
from ubp2.config.resolving import MODEL_FREE, resolve
from ubp2.config.schema import Config, OptimismConfig, PreferenceConfig
from ubp2.errors import UserError
from ubp2.terminal.cli import main

EPISODE = 50
ALL = ["".join(switches) for switches in itertools.product("01", repeat=4)]


def switches(config: Config) -> str:
    """What a resolved config does, written as an ablation."""
    optimism, strategy = config.optimism, config.preferences.strategy
    assert strategy in ("optimistic", "uniform")
    on = (optimism.reward, optimism.dynamics, optimism.value, strategy == "optimistic")
    return "".join("01"[int(each)] for each in on)


@pytest.mark.parametrize("ablation", ALL)
def test_an_ablation_is_four_switches(ablation: str) -> None:
    config = resolve(Config(ablation=ablation), EPISODE)
    assert switches(config) == ablation
    assert resolve(config, EPISODE) == config, "a resumed run resolves again"


def test_one_of_them_by_name() -> None:
    """1011: no bonus for the dynamics, and all the rest."""
    config = resolve(Config(ablation="1011"), EPISODE)
    assert (config.optimism.reward, config.optimism.dynamics, config.optimism.value) == (True, False, True)
    assert config.preferences.strategy == "optimistic"


def test_a_switch_stands_over_what_the_config_says_and_nothing_else_does() -> None:
    optimism = OptimismConfig(reward=False, lambda_reward=3.0, autotune=False)
    config = resolve(
        Config(ablation="1100", optimism=optimism, preferences=PreferenceConfig(strategy="kcenter", every=100)), EPISODE
    )
    assert switches(config) == "1100"
    assert (config.optimism.lambda_reward, config.optimism.autotune, config.preferences.every) == (3.0, False, 100)


def test_without_an_ablation_nothing_is_switched() -> None:
    asked = Config(optimism=OptimismConfig(value=False), preferences=PreferenceConfig(strategy="thompson"))
    config = resolve(asked, EPISODE)
    assert (config.optimism, config.preferences.strategy) == (asked.optimism, "thompson")


def test_mbp_is_0000() -> None:
    bare, zeros = resolve(Config(agent="mbp"), EPISODE), resolve(Config(ablation="0000"), EPISODE)
    assert switches(bare) == "0000"
    assert from_dict({"agent": "ubp2", "ablation": "0000"}, bare) == zeros
    assert AGENTS["mbp"] is AGENTS["ubp2"]
    assert resolve(Config(agent="mbp", ablation="0000"), EPISODE).optimism == zeros.optimism
    assert resolve(bare, EPISODE) == bare


@pytest.mark.parametrize("wrong", ["", "1", "101", "10111", "1021", "abcd", "1 11", "true"])
def test_a_wrong_ablation_is_told_what_it_must_be(wrong: str) -> None:
    with pytest.raises(UserError, match=f"ablation must be four of 0 and 1 .*got '{wrong}'; 1111 is all of ubp2"):
        resolve(Config(ablation=wrong), EPISODE)


@pytest.mark.parametrize("agent", sorted(MODEL_FREE))
def test_an_ablation_of_another_agent_is_refused(agent: str) -> None:
    with pytest.raises(UserError, match=f"ablation is of ubp2, got --agent {agent}; leave it out, or use --agent ubp2"):
        resolve(Config(agent=agent, ablation="1011", ceiling=agent == "sac"), EPISODE)  # type: ignore[arg-type]


@pytest.mark.parametrize("ablation", ["1000", "1111", "wrong"])
def test_mbp_with_another_ablation_is_refused(ablation: str) -> None:
    with pytest.raises(UserError, match=f"agent mbp is ablation 0000, got {ablation}; for others use --agent ubp2"):
        resolve(Config(agent="mbp", ablation=ablation), EPISODE)


REFUSED = {
    "a strategy": ("{ablation: '1111', preferences: {strategy: promising}}", "preferences.strategy to optimistic, and"),
    "a bonus": ("{ablation: '0111', optimism: {reward: true}}", "optimism.reward to false, and true was asked for"),
    "of mbp": ("{agent: mbp, preferences: {strategy: entropy}}", "agent mbp sets preferences.strategy to uniform"),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=list(REFUSED))
def test_a_file_that_asks_for_what_its_ablation_sets_otherwise_is_refused(
    text: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=f"own.yaml: .*{sentence}"):
        load_yaml(path, preset("best", "toy/reach"))


def test_a_file_may_ask_for_what_its_ablation_sets_and_the_preset_is_switched(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("{ablation: '0111', optimism: {reward: false}}", encoding="utf-8")
    config = load_yaml(path, preset("best", "toy/reach"))
    assert config.preferences.strategy == "promising" and resolve(config, EPISODE).preferences.strategy == "optimistic"


def test_it_survives_yaml(tmp_path: Path) -> None:
    """0011 is a string and stays one, though YAML would read it as a number; a saved file asks for nothing by name."""
    save_yaml(Config(ablation="0011"), tmp_path / "config.yaml")
    assert load_yaml(tmp_path / "config.yaml").ablation == "0011"


def test_it_is_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    monkeypatch.setitem(sys.modules, "ubp2.api", api)
    monkeypatch.setattr(ubp2, "api", api, raising=False)
    assert main(["train", "--agent", "ubp2", "--ablation", "0110", "--quiet"]) == 0
    assert main(["train", "--agent", "mbp", "--quiet"]) == 0
    assert [(call[1].agent, call[1].ablation) for call in api.calls] == [("ubp2", "0110"), ("mbp", None)]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """Nothing is trained."""
    stand_in = Api()
    monkeypatch.setitem(sys.modules, "ubp2.api", stand_in)
    monkeypatch.setattr(ubp2, "api", stand_in, raising=False)
    return stand_in


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--ablation 1111 --preferences.strategy promising", "ablation 1111 sets preferences.strategy to optimistic"),
        ("--preferences.strategy=promising --ablation=1110", "sets preferences.strategy to uniform, and promising was"),
        ("--agent mbp --optimism.reward", "agent mbp sets optimism.reward to false, and true was asked for"),
        ("--ablation 1111 --optimism.no-value", "ablation 1111 sets optimism.value to true, and false was asked for"),
    ],
)
def test_flags_that_an_ablation_would_undo_are_refused(
    words: str, sentence: str, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words.split(), "--quiet"]) == 2
    assert sentence in capsys.readouterr().err and not api.calls


def test_a_flag_against_the_ablation_of_a_file_is_refused_and_an_ablation_against_a_file_is_not(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flag was asked for last and would not count; a file's strategy gives way to a later word."""
    path = tmp_path / "own.yaml"
    path.write_text("ablation: '1111'", encoding="utf-8")
    assert main(["train", "--config", str(path), "--preferences.strategy", "entropy", "--quiet"]) == 2
    assert "ablation 1111 sets preferences.strategy to optimistic" in capsys.readouterr().err
    path.write_text("preferences: {strategy: entropy}", encoding="utf-8")
    assert main(["train", "--config", str(path), "--ablation", "1111", "--quiet"]) == 0
    assert main(["train", "--ablation", "0111", "--optimism.no-reward", "--preset", "best", "--quiet"]) == 0
    assert [call[1].ablation for call in api.calls] == ["1111", "0111"]
