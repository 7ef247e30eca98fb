"""The laboratory of the reward model: numbers worked by hand, the same step as training, and the command as a whole."""

from __future__ import annotations

import csv
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import ACTION, OBS, numpy_mlp, quick_jit
from tests.conftest import member as member_of
from ubp2 import replay as replay_
from ubp2.agents import ubp2 as agent
from ubp2.agents.learning import update
from ubp2.config.files import overridden
from ubp2.config.presets import preset
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.lab import measures, pairs, reward, settings, subject
from ubp2.lab.fit import Judgement, Probe, Recorded, fit, judge
from ubp2.lab.options import Reward
from ubp2.models import world_model
from ubp2.models.networks import MLP
from ubp2.models.uncertainty import jensen_renyi
from ubp2.models.world_model import WorldModel
from ubp2.preference import buffer
from ubp2.preference.teachers import oracle
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import Run
from ubp2.terminal.cli import main
from ubp2.types import Episode

EQUAL = {"teacher": {"name": "equal", "compat": "bpref-code"}, "preferences.per_session": 12}
LENGTH, SEGMENT = 20, 4
SMALL = (
    "{model.width: 16, model.depth: 1, model.reward_members: 2, preferences.segment_length: 5, "
    "preferences.batch_size: 8, training.batch_size: 8, training.learning_rate: 0.003}"
)


def episode(index: int, length: int = LENGTH) -> Episode:
    """Observations at random, and a reward that is linear in them."""
    rng = np.random.default_rng(index)
    obs = rng.normal(size=(length + 1, OBS)).astype(np.float32)
    reward = obs[:-1].astype(np.float64) @ [1.0, -2.0, 0.5]
    action = rng.uniform(-1, 1, (length, ACTION)).astype(np.float32)
    return Episode(index, index, obs, action, reward, np.zeros(length, bool), False)


def write_run(folder: Path, episodes: list[Episode], env: str = "toy/reach") -> Path:
    Run.create(folder, resolve(preset("cpu", env), LENGTH)).close()
    with EpisodeArchive(folder / "episodes.sqlite") as archive:
        for one in episodes:
            archive.append(one)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("lab") / "run", [episode(i) for i in range(24)])


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    episodes = [episode(i) for i in range(8)]
    return Recorded(pairs.fill(episodes), pairs.observed(episodes))


@pytest.fixture(scope="module")
def labels(recorded: Recorded):
    return pairs.draw(recorded.replay, [episode(i) for i in range(8)], 12, SEGMENT, oracle, jax.random.key(1))


# The numbers.


def test_calibration_by_hand() -> None:
    probability, label = np.array([0.05, 0.05, 0.95, 0.55]), np.array([0.0, 1.0, 1.0, 0.0])
    table = measures.reliability(probability, label)
    assert table.count.tolist() == [2, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    np.testing.assert_allclose(table.observed[[0, 5, 9]], [0.5, 0.0, 1.0])
    # (2 |0.05 - 0.5| + |0.55 - 0| + |0.95 - 1|) / 4
    assert measures.calibration_error(table) == pytest.approx(0.375)
    # -(log 0.95 + log 0.05 + log 0.95 + log 0.45) / 4
    assert measures.log_loss(probability, label) == pytest.approx(0.974207, abs=1e-6)
    assert measures.accuracy(np.array([0.9, 0.2, 0.5, 0.4]), np.array([1.0, 0.0, 1.0, 1.0])) == 0.625
    assert measures.reliability(np.array([0.0, 1.0]), np.array([0.0, 1.0])).count.tolist() == [1, *[0] * 8, 1]
    assert math.isfinite(measures.log_loss(np.array([0.0]), np.array([1.0])))


def test_off_the_data_each_coordinate_keeps_its_values_twice_as_far_from_the_mean() -> None:
    obs = np.random.default_rng(0).normal(3.0, 1.0, (50, OBS))
    mean = obs.mean(axis=0)
    off = measures.off_data(obs, mean, np.random.default_rng(1))
    np.testing.assert_allclose(np.sort((off - mean) / 2 + mean, axis=0), np.sort(obs, axis=0), rtol=1e-4)
    back = (off - mean) / 2 + mean
    assert not any(np.abs(obs - row).sum(axis=1).min() < 1e-3 for row in back)  # no state is among them as it was


def test_top_accuracy_looks_at_the_better_half_alone() -> None:
    """Wrong about all bad states and right about all good ones is 1; flat at the top is a coin; a tie says nothing."""
    true = np.arange(10.0)
    assert measures.top_accuracy(np.where(true < 5, -true, true), true) == 1.0
    assert measures.top_accuracy(np.minimum(true, 5.0), true) == 0.5
    assert measures.top_accuracy(-true, true) == 0.0
    assert measures.top_accuracy(true, np.zeros(10)) == 1.0


def test_a_constant_reward_has_finite_measures() -> None:
    zero = np.zeros(())
    judged = Judgement(np.zeros((3, 10)), np.zeros((3, 10)), np.full(4, 0.5), np.asarray(0.5), *[zero] * 5)  # type: ignore
    columns = measures.measures(judged, np.arange(10.0), np.array([1.0, 0.0, 0.0, 1.0]))
    assert all(map(math.isfinite, columns.values()))
    assert (columns["rank_correlation"], columns["pair_accuracy"], columns["spread_ratio"]) == (0.0, 0.5, 1.0)
    assert columns["log_loss"] == pytest.approx(math.log(2))
    broken = judged._replace(reward=np.full((3, 10), np.nan), probability=np.full(4, np.nan))  # type: ignore
    assert all(map(math.isnan, measures.measures(broken, np.arange(10.0), np.zeros(4)).values()))
    assert measures.reliability(broken.probability, np.zeros(4)).count.sum() == 0  # type: ignore[arg-type]


def test_spread_and_divergence_are_those_of_the_members(
    config: Config, networks: tuple[WorldModel, MLP], recorded: Recorded, labels: Any
) -> None:
    model = networks[0]
    obs, off = (np.random.default_rng(i).normal(size=(6, OBS)).astype(np.float32) for i in (1, 2))
    action, off_action = (np.random.default_rng(i).uniform(-1, 1, (6, ACTION)).astype(np.float32) for i in (3, 4))
    probe = Probe(*(jnp.asarray(x) for x in (obs, action, off, off_action)), pairs=labels)
    judged = quick_jit(partial(judge, config))(recorded, labels, probe, model)
    std = np.sqrt(np.asarray(recorded.stats.square) / float(recorded.stats.count))

    def members(obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        inputs = np.concatenate([(obs - np.asarray(recorded.stats.mean)) / std, action], axis=1)
        return np.stack([numpy_mlp(member_of(model.reward, e), inputs)[:, 0] for e in range(3)])

    seen = members(*(np.asarray(x) for x in (recorded.replay.frames.obs, recorded.replay.frames.action)))
    level, scale = seen.mean(axis=1, keepdims=True), seen.std(axis=1, keepdims=True)
    mean = (members(off, off_action) - level) / scale
    assert float(judged.off_spread) == pytest.approx(mean.std(axis=0).mean(), rel=1e-3)
    z = (off - np.asarray(recorded.stats.mean)) / std
    _, log_std = world_model.reward(config.model, model, jnp.asarray(z), jnp.asarray(off_action))
    assert float(judged.off_divergence) == pytest.approx(
        float(jensen_renyi(jnp.asarray(mean), log_std).mean()), rel=1e-3
    )
    taken, other = (((members(obs, a) - level) / scale).mean(axis=0) for a in (action, off_action))
    assert float(judged.action_share) == pytest.approx(np.std(taken - other) / 2**0.5 / np.std(taken), rel=1e-3)
    np.testing.assert_allclose(judged.reward, members(obs, action), rtol=1e-3, atol=1e-4)
    assert float(judged.spread) == pytest.approx(float(np.asarray(judged.counted).std(axis=0).mean()), rel=1e-4)


# The data.


def test_episodes_are_divided_and_not_states() -> None:
    episodes = [episode(i) for i in range(10)]
    training, held_out = subject.split(episodes, 0.3, seed=0)
    seeds = [{one.seed for one in side} for side in (training, held_out)]
    assert (len(training), len(held_out)) == (7, 3) and not seeds[0] & seeds[1]
    assert [one.index for one in training] == list(range(7))
    again = subject.split(episodes, 0.3, seed=0)[1]
    assert [one.seed for one in again] == [one.seed for one in held_out]
    assert {one.seed for one in subject.split(episodes, 0.3, seed=1)[1]} != seeds[1]
    assert [len(side) for side in subject.split(episodes[:2], 0.01, seed=0)] == [1, 1]


def test_labels_are_those_of_the_drawn_segments(recorded: Recorded, labels: Any) -> None:
    weights = np.array([1.0, -2.0, 0.5])
    left, right = (np.asarray(side, np.float64).sum(axis=1) @ weights for side in (labels.left_obs, labels.right_obs))
    np.testing.assert_array_equal(np.asarray(labels.label), left > right)
    obs = np.concatenate([episode(i).obs for i in range(8)]).astype(np.float64)
    np.testing.assert_allclose(recorded.stats.mean, obs.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(recorded.stats.square / recorded.stats.count, obs.var(axis=0), rtol=1e-5)


def test_the_teacher_knows_the_session_of_each_pair(config: Config) -> None:
    """B-Pref's code squares the share of ties after the first session: 0.05 a decision is below 0.1, not below 0.01.

    Ten decisions of a recent return of 10 an episode; 12 pairs a session.
    """
    answers = reward._in_sessions(overridden(config, EQUAL), 10.0, 10)
    left, right = np.full((30, 10), 0.05), np.zeros((30, 10))
    label, weight = answers(0, left, right)
    np.testing.assert_array_equal(label, [0.5] * 12 + [1.0] * 18)
    np.testing.assert_array_equal(weight, 1.0)


def test_the_teacher_of_a_setting_answers() -> None:
    """One who is always wrong, and one who expects more than any segment has."""
    what = Reward("reward", (Path("run"),), labels=(12,), repeats=1)
    episodes = [episode(i)._replace(true_reward=episode(i).true_reward + 9.0) for i in range(8)]
    found = {}
    for name, traits in {"right": {}, "wrong": {"mistake": 1.0}, "strict": {"skip": 1.0}}.items():
        settings_ = {"teacher": traits, "preferences": {"segment_length": SEGMENT}}
        own = settings.configs({name: settings_}, preset("cpu", "toy/reach"), LENGTH)
        work = subject.Subject(episodes, episodes, {}, own)
        held = Recorded(pairs.fill(episodes), pairs.observed(episodes))
        found[name] = reward._Workbench(what, work, held, held.replay)._labels(own[name])
    np.testing.assert_array_equal(found["wrong"].label, 1 - np.asarray(found["right"].label))
    weight = np.asarray(found["strict"].weight)
    expected = np.mean([one.true_reward.sum() for one in episodes]) * SEGMENT / LENGTH
    obs = (np.asarray(side, np.float64).sum(axis=2) for side in (found["strict"].left_obs, found["strict"].right_obs))
    best = np.max([side @ [1.0, -2.0, 0.5] + 9.0 * SEGMENT for side in obs], axis=0)
    np.testing.assert_array_equal(weight, best > expected)
    assert 0 < weight.sum() < weight.size


# The fit.


def test_the_fit_takes_the_steps_of_training(config: Config, recorded: Recorded, labels: Any) -> None:
    key = jax.random.key(5)
    k_init, k_steps = jax.random.split(key)
    state = agent.init(config, OBS, ACTION, k_init)._replace(stats=recorded.stats)
    step = quick_jit(lambda *arguments: update(config, *arguments)[0])
    for number in range(2):
        k_batch, k_pairs = jax.random.split(jax.random.fold_in(k_steps, number))
        batch = replay_.sample(recorded.replay, k_batch, config.training.batch_size, config.training.horizon or 0)
        minibatch = buffer.sample(labels, k_pairs, config.preferences.batch_size)
        state = step(state, batch, minibatch, jax.random.key(9))
    fitted = quick_jit(lambda labels: fit(config, 2, recorded, labels, key))(labels)
    for ours, theirs in zip(jax.tree.leaves(fitted.reward), jax.tree.leaves(state.model.reward), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_fewer_labels_in_a_long_buffer_are_the_same_fit(config: Config, recorded: Recorded, labels: Any) -> None:
    short = labels._replace(count=jnp.asarray(5, jnp.int32), **{n: getattr(labels, n)[:5] for n in labels._fields[:6]})
    program = quick_jit(lambda labels: fit(config, 5, recorded, labels, jax.random.key(0)).reward)
    padded, exact = program(pairs.take(labels, 5)), program(short)
    for ours, theirs in zip(jax.tree.leaves(padded), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert pairs.take(labels, 5).weight.sum() == 5


# The command.


@pytest.mark.slow
def test_more_labels_give_a_better_reward_and_everything_is_written(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "settings.yaml", tmp_path / "out"
    file.write_text(f"small: {SMALL}\n")
    linear = SMALL.replace("}", ", model.reward_head: linear}")
    line = f"lab reward --data {run} --settings {file} --labels 2 100 --repeats 2 --updates 200 --out {out} --json"
    assert main([*line.split(), "--set", f"linear: {linear}"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert list(data["settings"]) == ["small", "linear"] and data["settings"]["linear"]["model.reward_head"] == "linear"
    assert data["episodes"] == {"training": 18, "held_out": 6}
    summary = {(row["setting"], row["labels"]): row for row in data["summary"]}
    for name in ("small", "linear"):
        few, many = (summary[name, count]["rank_correlation"]["mean"] for count in (2, 100))
        assert many > few + 0.05 and many > 0.85
    rows = data["repeats"]
    assert len(rows) == 8 and all(math.isfinite(row[name]) for row in rows for name in measures.MEASURES)
    values = [row["log_loss"] for row in rows if (row["setting"], row["labels"]) == ("small", 100)]
    assert summary["small", 100]["log_loss"]["std"] == pytest.approx(np.std(values, ddof=1))
    assert json.loads((out / "results.json").read_text())["repeats"] == rows
    with (out / "results.csv").open() as stream:
        assert [row["setting"] for row in csv.DictReader(stream)] == [row["setting"] for row in rows]
    assert all((out / name).stat().st_size > 10_000 for name in ("reliability.png", "labels.png"))


def test_settings_of_a_field_that_is_not_in_any_list(run: Path) -> None:
    """Whatever the configuration has can be varied; the built-in settings are all valid."""
    base = preset("cpu", "toy/reach")
    found = settings.configs({"a": {"optimism.lambda_value": 3, "training": {"rho": 0.5}}}, base, LENGTH)
    assert (found["a"].optimism.lambda_value, found["a"].training.rho) == (3.0, 0.5)
    assert settings.gather(None, ()) is settings.BUILT_IN
    built = settings.configs(settings.BUILT_IN, base, LENGTH)
    assert len(set(built.values())) == len(settings.BUILT_IN) >= 10


MISTAKES = {
    "--data nowhere": "nowhere is not a run folder: there is nothing of that name; check the path.",
    "--data {empty}": "{empty} has no finished episode; train it further, or leave it out of --data",
    "--data {run} {other}": (
        "the runs must be of one environment: {run} is of toy/reach, and {other} of gym/Pendulum-v1; "
        "study each environment by itself"
    ),
    "--data {run} --set x:_{{}} --labels 500": (
        "setting 'x': 500 labels were asked for, and the 18 training episodes hold only 198 segments of 10 decisions; "
        "lower --labels, or add runs to --data"
    ),
    "--data {run} --set x:_{{model.reward_head:_lin}}": (
        "setting 'x': model.reward_head must be one of tanh, linear, got 'lin'. Did you mean linear?"
    ),
    "--data {run} --set x:_{{model.width:_many}}": "setting 'x': model.width must be a whole number, got 'many' (str)",
    "--data {run} --set x:_{{preferences.segment_length:_30}}": (
        "setting 'x': preferences.segment_length is 30, but an episode of toy/reach has 20 decisions; "
        "lower --preferences.segment-length"
    ),
    "--data {run} --set x:_{{agent:_pebble}}": (
        "setting 'x': the laboratory fits the reward of a world model, and pebble learns its reward in another way; "
        "take an agent that plans, such as --preset cpu"
    ),
    "--data {run} --set x:_{{teacher.name:_human}}": (
        "setting 'x': in the laboratory a scripted teacher answers, and teacher.name is human; "
        "take one of oracle, noisy, myopic, mistake, skip, equal"
    ),
    "--data {run} --set x:_3": (
        "--set 'x: 3': the setting 'x' must be a table of fields, 'name: {{dotted field: value}}', such as "
        "'linear head: {{model.reward_head: linear}}', got 3"
    ),
    "--data {run} --set x: --set x:": "--set 'x:': there is already a setting 'x'; give each a name of its own",
    "--data {run} --settings no.yaml": "there is no file of settings no.yaml",
    "--data {flat}": (
        "the true reward is 0 in all 40 held-out states, so there is nothing to rank; "
        "take longer runs, or another --seed"
    ),
    "--data {run} --labels 0": "--labels must be at least 1, got 0",
    "--data {run} --labels 24 8 24": "--labels names a number twice: 24 8 24; name each once",
    "--data {run} --held-out 1": "--held-out must lie between 0 and 1, got 1.0",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_one_sentence(line: str, run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folders = {
        "run": run,
        "empty": write_run(tmp_path / "empty", []),
        "other": write_run(tmp_path / "other", [episode(0)], "gym/Pendulum-v1"),
        "flat": write_run(tmp_path / "flat", [episode(i)._replace(true_reward=np.zeros(LENGTH)) for i in range(8)]),
    }
    words = [word.replace("_{", " {").replace(":_", ": ") for word in line.format(**folders).split()]
    assert main(["lab", "reward", *words]) == 2
    assert capfd.readouterr().err == f"ubp2: {MISTAKES[line].format(**folders)}\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lab", "ubp2 lab needs the name of a laboratory, before any option: reward"),
        ("lab rewrad", "unknown laboratory 'rewrad'. Did you mean reward? Known: reward"),
    ],
)
def test_the_laboratory_has_a_name(line: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert capfd.readouterr().err == f"ubp2: {message}\n"
