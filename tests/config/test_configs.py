"""Presets build and resolve, the paper's tables are the paper's, configurations survive YAML, mistakes are named."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ubp2.config import schema, sections
from ubp2.config.checking import AT_LEAST_ONE
from ubp2.config.files import (
    check_resumable,
    checked,
    differences,
    from_dict,
    leaves,
    load_yaml,
    overridden,
    save_yaml,
    to_dict,
)
from ubp2.config.presets import PAPER_TASKS, PRESETS, preset
from ubp2.config.resolving import resolve
from ubp2.config.schedule import labels_that_fit
from ubp2.config.schema import Config, PreferenceConfig, TeacherConfig
from ubp2.errors import UserError

# The appendix, row by row, typed from the paper.
TASKS = [
    *("door-close", "window-close", "handle-press", "coffee-button", "faucet-open"),
    *("door-open", "door-unlock", "sweep-into", "drawer-open", "hammer"),
]
SEEDS = [10, 10, 10, 10, 15, 15, 10, 10, 10, 15]
SEGMENT = [10, 10, 10, 10, 10, 10, 10, 10, 10, 10]
PER_ADDITION = [12, 12, 12, 25, 12, 12, 12, 25, 25, 50]
MAX_FEEDBACK = [500, 500, 1000, 1000, 2000, 2000, 2500, 5000, 5000, 10000]
UPDATE_FREQUENCY = [2500] * 10
REWARD_BATCH = [50, 50, 50, 50, 50, 50, 50, 100, 100, 200]
HORIZON = [7, 7, 7, 11, 7, 11, 11, 7, 7, 7]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_and_resolves_for_every_task_of_the_paper(name: str, task: str) -> None:
    config = resolve(preset(name, f"metaworld/{task}"), episode_decisions=100)
    assert config.env == f"metaworld/{task}"
    assert not [leaf for leaf in ("horizon", "warmup", "discount") if getattr(config.training, leaf) is None]


@pytest.mark.parametrize(
    ("env", "steps", "episode"),
    [("toy/reach", 3000, 50), ("gym/Pendulum-v1", 2000, 200), ("dmc/walker-walk", None, 500)],
)
def test_cpu_preset_fits_short_runs(env: str, steps: int | None, episode: int) -> None:
    config = preset("cpu", env)
    config = resolve(config if steps is None else dataclasses.replace(config, steps=steps), episode)
    assert config.preferences.budget is not None and config.preferences.budget >= config.preferences.per_session


@pytest.mark.parametrize("i", range(10), ids=TASKS)
def test_paper_preset_is_the_appendix(i: int) -> None:
    env = f"metaworld/{TASKS[i]}"
    config = preset("paper", env)
    prefs, planner = config.preferences, config.planner
    assert list(PAPER_TASKS) == [f"metaworld/{task}" for task in TASKS]
    assert PAPER_TASKS[env].seeds == SEEDS[i]
    assert (prefs.segment_length, prefs.per_session, prefs.budget) == (SEGMENT[i], PER_ADDITION[i], MAX_FEEDBACK[i])
    assert (prefs.every, prefs.batch_size) == (UPDATE_FREQUENCY[i], REWARD_BATCH[i])
    assert (planner.iterations, planner.samples, planner.elites, planner.policy_samples) == (6, 512, 64, 24)
    assert (planner.horizon, planner.optimizer) == (HORIZON[i], "cem")


def test_paper_preset_has_the_constants_of_td_mpc2_where_the_paper_is_silent() -> None:
    config = resolve(preset("paper", "metaworld/door-close"), episode_decisions=100)
    model, training, planner = config.model, config.training, config.planner
    assert config.steps == 1_000_000
    assert (model.space, model.width, model.depth) == ("observation", 512, 2)
    assert (model.dynamics_members, model.reward_members, model.value_members) == (5, 5, 5)
    assert (model.reward_likelihood, model.reward_log_std, model.value_head) == ("mean", (-4.0, 1.0), "scalar")
    assert model.policy_log_std == (-10.0, 2.0)
    assert (training.consistency_weight, training.reward_weight, training.value_weight) == (20.0, 0.1, 0.1)
    assert (training.batch_size, training.learning_rate, training.encoder_scale) == (256, 3e-4, 0.3)
    assert (training.grad_clip, training.entropy, training.update_every) == (20.0, 1e-4, 1)
    assert training.rho == 1.0, "the paper writes Eq. 3 without a temporal weight"
    assert (training.value_target_rate, config.optimism.target_policy_rate) == (0.01, 0.005)
    assert (training.warmup, training.warmup_updates, training.horizon, training.discount) == (1000, 1000, 7, 0.95)
    assert (planner.temperature, planner.min_std, planner.max_std) == (0.5, 0.05, 2.0)
    assert (config.optimism.lambda_reward, config.optimism.learning_rate) == (1.0, 3e-4)
    assert (config.evaluation.every, config.evaluation.episodes) == (10_000, 10)
    assert (config.preferences.stop_accuracy, config.preferences.center) == (None, 0.0)


def test_paper_preset_refuses_other_environments() -> None:
    with pytest.raises(UserError, match=r"not 'metaworld/door-clos'. Did you mean door-close .*--preset cpu"):
        preset("paper", "metaworld/door-clos")


def test_a_run_may_end_before_its_budget() -> None:
    """The first part of a longer experiment: the agent plans and asks to the end."""
    config = Config(steps=10_000, preferences=PreferenceConfig(per_session=12, every=2500, budget=500))
    assert resolve(config, episode_decisions=100).preferences.budget == 500


@pytest.mark.parametrize(
    ("agent", "every", "first", "wanted"),
    [("ubp2", 500, None, None), ("pebble", 500, None, 2000), ("rune", 2500, None, 2500), ("surf", 500, 700, 700)],
)
def test_when_the_first_session_is(agent: str, every: int, first: int | None, wanted: int | None) -> None:
    """Agents that seek novelty before their first labels have time for it after the warm-up of 1000."""
    config = from_dict({"agent": agent, "steps": 20_000, "preferences": {"every": every, "first": first}})
    resolved = resolve(config, episode_decisions=100)
    assert resolved.preferences.first == wanted
    assert resolve(resolved, episode_decisions=100) == resolved


@pytest.mark.parametrize(
    ("steps", "episode", "every", "first", "labels"),
    [
        (1000, 100, 250, None, 40),  # sessions at 300, 500, 800, 1000
        (1000, 400, 250, None, 20),  # two whole episodes, one session at the end of each
        (99, 100, 10, None, 0),  # no episode ends
        (1000, 100, 250, 600, 20),  # 600, 900
        (1000, 100, 20, 750, 30),  # 800, 900, 1000
        (1000, 100, 250, 0, 50),  # 100, 300, 500, 800, 1000
        (1000, 100, 250, 1001, 0),
    ],
)
def test_labels_that_fit(steps: int, episode: int, every: int, first: int | None, labels: int) -> None:
    assert labels_that_fit(PreferenceConfig(per_session=10, every=every, first=first), steps, episode) == labels


def test_resolve_changes_nothing_that_is_set() -> None:
    config = preset("cpu")
    resolved = resolve(config, 50)
    assert config == preset("cpu")
    assert resolve(resolved, 50) == resolved
    changed = {line.split(":")[0] for line in differences(config, resolved)}
    assert changed == {
        "preferences.budget",
        *(f"training.{name}" for name in ("horizon", "warmup", "warmup_updates", "discount", "replay_capacity")),
    }


@pytest.mark.parametrize("name", PRESETS)
def test_yaml_round_trip(name: str, tmp_path: Path) -> None:
    config = resolve(preset(name, "metaworld/hammer"), 100)
    save_yaml(config, tmp_path / "config.yaml")
    assert load_yaml(tmp_path / "config.yaml") == config
    assert from_dict(to_dict(config), Config(seed=7)) == config


def test_a_configuration_from_python_is_held_to_what_a_file_is(tmp_path: Path) -> None:
    config = preset("cpu", "toy/reach")
    changes: dict[str, Any] = {"seed": np.int64(3), "ablation": None, "ceiling": np.bool_(True), "agent": "my-own"}
    training = dataclasses.replace(config.training, learning_rate=np.float64(0.5), rho=1)
    model = dataclasses.replace(config.model, reward_log_std=[np.float32(-4.0), 1])
    found = checked(dataclasses.replace(config, training=training, model=model, **changes))
    assert (found.seed, found.ceiling, found.training.learning_rate) == (3, True, 0.5)
    assert found.model.reward_log_std == (-4.0, 1.0) and found.agent == "my-own"
    assert not [name for name, value in leaves(found) if type(value).__module__ == "numpy"]
    save_yaml(found, tmp_path / "config.yaml")
    assert checked(found) == found == load_yaml(tmp_path / "config.yaml", own_names=True)
    evaluation = dataclasses.replace(config.evaluation, controllers=("planer",))
    wrong = {
        r"evaluation.controllers\[0\] must be one of policy, planner, got 'planer'. Did you": {
            "evaluation": evaluation
        },
        r"steps must be a whole number, got 5000.0 \(float\); write 5000": {"steps": 5e3},
    }
    for sentence, change in wrong.items():
        with pytest.raises(UserError, match=sentence):
            checked(dataclasses.replace(config, **change))


def test_yaml_lies_over_the_base_and_reads_numbers_as_people_write_them(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "planner: {horizon: 5}\ntraining: {learning_rate: 3e-4, entropy: 1}\nevaluation:\n  controllers: [policy]\n"
    )
    base = preset("cpu")
    config = load_yaml(file, base)
    assert (config.planner.horizon, config.planner.samples) == (5, base.planner.samples)
    assert config.training.learning_rate == 3e-4 and isinstance(config.training.entropy, float)
    assert config.evaluation.controllers == ("policy",)
    file.write_text("teacher: {name: noisy, mistake: 0.1}")
    assert load_yaml(file, base).teacher == TeacherConfig("noisy", mistake=0.1)
    file.write_text("teacher: noisy")
    assert load_yaml(file, base) == dataclasses.replace(base, teacher=TeacherConfig("noisy"))
    file.write_text("")
    assert load_yaml(file, base) == base


def test_runs_of_the_first_version_can_be_read() -> None:
    """They had preferences.teacher."""
    config = from_dict({"preferences": {"teacher": "oracle", "budget": 7}})
    assert (config.teacher, config.preferences.budget) == (TeacherConfig("oracle"), 7)
    with pytest.raises(UserError, match=r"teacher\.name must be one of oracle, .*got 'orcle'\. Did you mean oracle"):
        from_dict({"preferences": {"teacher": "orcle"}})


WRONG: list[tuple[Any, str]] = [
    (
        {"planner": {"horizont": 3}},
        "unknown setting 'planner.horizont'. Did you mean horizon? Known in planner: optimizer, horizon, samples, "
        "elites, policy_samples, iterations, temperature, min_std, max_std",
    ),
    ({"planner": {"optimizer": "cme"}}, "planner.optimizer must be one of mppi, cem, got 'cme'. Did you mean cem?"),
    ({"planner": 3}, "planner must be a table of settings, got 3 (int)"),
    ({"steps": "many"}, "steps must be a whole number, got 'many' (str)"),
    ({"steps": "1e4"}, "steps must be a whole number, got '1e4' (str); write 10000"),
    ({"steps": 1200.0}, "steps must be a whole number, got 1200.0 (float); write 1200"),
    ({"steps": 1.5}, "steps must be a whole number, got 1.5 (float)"),
    ({"steps": True}, "steps must be a whole number, got True (bool)"),
    ({"steps": None}, "steps must be a whole number, got None (NoneType)"),
    ({"ceiling": 1}, "ceiling must be true or false, got 1 (int)"),
    ({"training": {"rho": [1.0]}}, "training.rho must be a number, got [1.0] (list)"),
    ({"model": {"reward_log_std": [1.0]}}, "model.reward_log_std must be a list of 2 values, got [1.0] (list)"),
    (
        {"evaluation": {"controllers": ["polcy"]}},
        "evaluation.controllers[0] must be one of policy, planner, got 'polcy'. Did you mean policy?",
    ),
    ({"teacher": 3}, "teacher must be a table of settings, got 3 (int)"),
    (
        {"teacher": "nosy"},
        "teacher.name must be one of oracle, noisy, myopic, mistake, skip, equal, human, got 'nosy'. "
        "Did you mean noisy?",
    ),
    (
        {"teacher": {"eps": 0.1}},
        "unknown setting 'teacher.eps'. Known in teacher: name, beta, gamma, mistake, skip, equal, compat, wait, "
        "patience, fallback, serve, url, host, port, browser, instruction",
    ),
    (
        {"teacher": {"compat": "bpref"}},
        "teacher.compat must be one of none, bpref-code, got 'bpref'. Did you mean bpref-code?",
    ),
    ([1, 2], "the configuration must be a table of settings, got [1, 2] (list)"),
]


@pytest.mark.parametrize(("data", "message"), WRONG)
def test_wrong_data_is_named(data: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        from_dict(data)
    assert str(error.value) == message


def test_wrong_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    with pytest.raises(UserError, match=r"there is no configuration file .*bad\.yaml"):
        load_yaml(file)
    file.write_text("planner: [")
    with pytest.raises(UserError, match=r"bad\.yaml is not valid YAML"):
        load_yaml(file)
    file.write_text("stpes: 3")
    with pytest.raises(UserError, match=r"bad\.yaml: unknown setting 'stpes'\. Did you mean steps"):
        load_yaml(file)


def test_resume_names_the_fields_that_differ_and_lets_a_run_grow() -> None:
    saved = resolve(preset("cpu"), 50)
    check_resumable(saved, dataclasses.replace(saved, steps=saved.steps + 1000))
    planner = dataclasses.replace(saved.planner, horizon=4)
    with pytest.raises(UserError, match=r"seed: 0 -> 1; planner\.horizon: 3 -> 4"):
        check_resumable(saved, dataclasses.replace(saved, seed=1, planner=planner))
    with pytest.raises(UserError, match=r"can be made longer but not shorter: --steps 10 < 20000"):
        check_resumable(saved, dataclasses.replace(saved, steps=10))
    with pytest.raises(UserError, match=r"teacher\.wait: answers -> fallback"):
        check_resumable(saved, overridden(saved, {"teacher.wait": "fallback"}))
    check_resumable(people := overridden(saved, {"teacher": "human"}), overridden(people, {"teacher.wait": "fallback"}))


def test_every_field_is_documented() -> None:
    """The docstring below a field is its line in --help."""
    trees = [ast.parse(inspect.getsource(module)) for module in (schema, sections)]
    for section in (node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)):
        for field, following in zip(section.body, [*section.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and "default_factory" not in ast.unparse(field):
                assert isinstance(following, ast.Expr), f"{section.name}.{ast.unparse(field.target)} has no docstring"


@pytest.mark.parametrize(
    ("section", "field", "value", "sentence"),
    [
        ("evaluation", "episodes", 0, "evaluation.episodes must be at least 1, got 0"),
        ("evaluation", "controllers", (), "evaluation.controllers is empty"),
        ("model", "reward_members", 0, "model.reward_members must be at least 1, got 0"),
        ("training", "learning_rate", -1.0, "training.learning_rate must be above 0, got -1.0"),
        ("training", "learning_rate", math.inf, "training.learning_rate must be finite and above 0, got inf"),
        ("preferences", "budget", -5, "preferences.budget must not be negative, got -5"),
        ("preferences", "center", math.inf, "preferences.center must be a finite number, got inf"),
        ("training", "discount", 1.5, "training.discount must lie in (0, 1], got 1.5"),
        ("teacher", "beta", -1.0, "teacher.beta must be above 0, got -1.0; for a teacher without noise (B-Pref's -1)"),
        ("teacher", "gamma", 0.0, "teacher.gamma must lie in (0, 1], got 0.0; set --teacher.gamma 1"),
        ("teacher", "mistake", 1.5, "teacher.mistake is a share and must lie in [0, 1], got 1.5; B-Pref has"),
        ("teacher", "skip", -0.1, "teacher.skip is a share and must lie in [0, 1], got -0.1"),
        ("teacher", "equal", float("nan"), "teacher.equal is a share and must lie in [0, 1], got nan"),
        ("optimism", "lambda_reward", -0.1, "optimism.lambda_reward must not be negative, got -0.1"),
        ("optimism", "lambda_reward", 1000.0, "lambda_reward is tuned between 0.0001 and 100, got 1000 to start from"),
        ("optimism", "lambda_value", 0.0, "leave the bonus out with --optimism.no-value"),
    ],
)
def test_a_number_out_of_range_is_refused(section: str, field: str, value: object, sentence: str) -> None:
    config = preset("cpu")
    changed = dataclasses.replace(getattr(config, section), **{field: value})
    with pytest.raises(UserError) as refused:
        resolve(dataclasses.replace(config, **{section: changed}), 50)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("fixed", [{"autotune": False}, {"value": False}])
def test_a_coefficient_that_is_not_tuned_may_be_anything(fixed: dict[str, bool]) -> None:
    config = preset("cpu")
    optimism = dataclasses.replace(config.optimism, lambda_value=0.0, **fixed)
    assert resolve(dataclasses.replace(config, optimism=optimism), 50).optimism == optimism


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UserError, match="seed must not be negative, got -1"):
        resolve(dataclasses.replace(preset("cpu"), seed=-1), 50)


FREE = {"evaluation.bonus"}  # may be negative
NUMBERS = [name for name, value in leaves(resolve(preset("cpu"), 50)) if type(value) in (int, float)]
OPEN = ["preferences.crop", "preferences.candidate_episodes", "environment.action_repeat"]  # None unless they are given


@pytest.mark.parametrize("name", [*NUMBERS, *OPEN])
def test_no_number_may_mean_nothing(name: str) -> None:
    """Whatever field somebody adds: a number that cannot be meant is refused with its name, before anything runs."""
    wrong = [math.nan] if name in FREE else [-1]
    wrong += [math.nan, -math.inf] if isinstance(dict(leaves(Config()))[name], float) else []
    wrong += [0, 2**31] if name in AT_LEAST_ONE else []
    for value in wrong:
        with pytest.raises(UserError, match=re.escape(name.rpartition(".")[2])):
            resolve(overridden(preset("cpu"), {name: value}), 50)


@pytest.mark.parametrize("name", ["model.reward_log_std", "model.policy_log_std", "sac.log_std"])
def test_a_range_goes_from_the_smaller_to_the_larger(name: str) -> None:
    with pytest.raises(UserError, match=r"goes from the smaller to the larger number, got 1 and 1"):
        resolve(overridden(preset("cpu"), {name: [1.0, 1.0]}), 50)
