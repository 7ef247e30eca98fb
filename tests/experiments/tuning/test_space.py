"""What is searched: read from YAML with sentences for mistakes, drawn the same again, never what cannot run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ubp2.config.files import overridden
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.experiments.tuning import space

BASE = preset("cpu", "toy/reach")


def runs(point: space.Point) -> Config:
    return resolve(overridden(BASE, point), 50)


def test_points_lie_in_the_space_and_are_what_fields_take() -> None:
    read = space.read(
        {
            "training.learning_rate": {"log": ["1e-4", 1e-2]},  # YAML reads 1e-4 as text
            "planner.samples": {"log": [64, 512]},
            "optimism.lambda_value": {"range": [0, 2]},
            "preferences.stop_accuracy": [0.9, None],
        },
        BASE,
    )
    points = [space.draw(read, 0, number, runs) for number in range(1, 60)]
    rates = [point["training.learning_rate"] for point in points]
    assert all(1e-4 <= rate <= 1e-2 for rate in rates) and 10 < sum(rate < 1e-3 for rate in rates) < 50
    assert all(isinstance(point["planner.samples"], int) and 64 <= point["planner.samples"] <= 512 for point in points)
    assert all(0 <= point["optimism.lambda_value"] <= 2 for point in points)
    assert {point["preferences.stop_accuracy"] for point in points} == {0.9, None}


def test_a_trial_is_drawn_from_the_seed_and_its_number_alone() -> None:
    searched = space.default(BASE)
    assert space.draw(searched, 0, 0, runs) == {}, "the first trial is the preset as it is"
    assert space.draw(searched, 0, 3, runs) == space.draw(searched, 0, 3, runs)
    assert space.draw(searched, 0, 3, runs) != space.draw(searched, 0, 4, runs)
    assert space.draw(searched, 0, 3, runs) != space.draw(searched, 1, 3, runs)


def test_what_cannot_run_is_not_drawn() -> None:
    read = space.read({"preferences.segment_length": [10, 60]}, BASE)
    assert {space.draw(read, 0, number, runs)["preferences.segment_length"] for number in range(1, 20)} == {10}
    hopeless = space.read({"preferences.segment_length": [60, 70]}, BASE)
    with pytest.raises(UserError, match="none can run; of the last: preferences.segment_length is"):
        space.draw(hopeless, 0, 1, runs)


@pytest.mark.parametrize("agent", ["ubp2", "mbp", "pebble", "rune", "mrn", "surf", "sac"])
@pytest.mark.parametrize("ceiling", [False, True])
def test_every_agent_has_a_space_of_settings_that_it_reads(agent: str, ceiling: bool) -> None:
    if agent == "sac" and not ceiling:
        return
    config = overridden(preset("cpu", "toy/reach"), {"agent": agent, "ceiling": ceiling})
    searched = space.default(config)
    assert space.read(dict(searched), config) == searched
    for number in range(1, 10):
        assert space.draw(searched, 0, number, lambda point: resolve(overridden(config, point), 50))
    assert not ceiling or not any(name.startswith("preferences.") for name in searched)
    assert (agent == "ubp2") == any(name.startswith("optimism.") for name in searched)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("training.learning_rat: [1, 2]", "unknown setting 'training.learning_rat'. Did you mean learning_rate"),
        ("planner.horizon: 3", "planner.horizon: expected a list of values, {log: [low, high]} or {range"),
        ("planner.horizon: {linear: [1, 2]}", "expected a list of values"),
        ("planner.horizon: [three]", "planner.horizon must be a whole number, got 'three'"),
        ("planner.horizon: {range: [3]}", "range takes two numbers, [low, high], got [3]"),
        ("planner.horizon: {range: [5, 3]}", "from the smaller to the larger number, got [5, 3]"),
        ("optimism.lambda_value: {log: [0, 3]}", "log needs numbers above 0, got [0, 3]; use range"),
        ("optimism.reward: {range: [false, true]}", "optimism.reward is no number"),
        ("evaluation.episodes: [1, 2]", "evaluation.episodes is the same for all trials"),
        ("preferences.budget: [100, 500]", "preferences.budget is the same for all trials"),
        ("[1, 2]", "a search space must name settings"),
        ("", "a search space must name settings"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_mistakes_are_told_with_the_file(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        space.load(path, BASE)
    assert str(error.value).startswith(str(path)) and sentence in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file .*none.yaml; --space takes a YAML file"):
        space.load(tmp_path / "none.yaml", BASE)


@pytest.mark.parametrize("scale", ["range", "log"])
def test_whole_numbers_are_drawn_evenly_to_their_ends(scale: str) -> None:
    """Without the widening the ends of 1 to 4 would come half as often as they should."""
    read = space.read({"planner.horizon": {scale: [1, 4]}}, BASE)
    drawn = [space.draw(read, 0, number, lambda _: None)["planner.horizon"] for number in range(1, 2001)]
    shares = np.bincount(drawn, minlength=5)[1:] / len(drawn)
    edges = np.arange(5) + 0.5
    expected = np.full(4, 0.25) if scale == "range" else np.diff(np.log(edges)) / np.log(edges[-1] / edges[0])
    assert np.abs(shares - expected).max() < 0.04
