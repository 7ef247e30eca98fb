"""Members of one program that differ in task and settings: each learns what it learns alone, and fails alone."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.training.helpers import agent_arrays, assert_same_run, labels, rows, saved, tiny
from tests.training.tasks import BREAKING, FLEE
from tests.training.test_resume import stop_at
from ubp2 import api
from ubp2.agents.registry import make_agent
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config
from ubp2.envs.base import EnvSpec
from ubp2.errors import UserError
from ubp2.storage import population
from ubp2.storage.archive import EpisodeArchive
from ubp2.training import evaluate, loop, member_axis
from ubp2.training.member_axis import Layout
from ubp2.training.programs import compiled, make_programs

SPEC = EnvSpec("test", 4, 2, 20, 1, 10, True, (-1.0, -1.0), (1.0, 1.0))


def short(**changes: Any) -> Config:
    """Short: small differences in rounding grow with every decision that follows from them."""
    base = tiny(steps=160, evaluation={"every": 80}, preferences={"budget": 10}, training={"warmup": 40})
    sections = {name: value for name, value in changes.items() if isinstance(value, dict)}
    for name, fields in sections.items():
        changed = dataclasses.replace(getattr(base, name), **fields)
        base = dataclasses.replace(base, **{name: changed})
    return dataclasses.replace(base, **{name: value for name, value in changes.items() if name not in sections})


APART = {"in_process": False, "episode_decisions": 20}
UNLIKE = {
    "reach/ubp2": short(),
    "flee/few-labels": short(
        env=FLEE, seed=3, preferences={"budget": 6, "per_session": 3, "strategy": "promising", "batch_size": 5}
    ),
    "reach/1010": short(ablation="1010", seed=1, training={"learning_rate": 1e-3}),
    "flee/noisy": short(env=FLEE, seed=2, teacher=dataclasses.replace(Config().teacher, name="noisy", beta=0.5)),
}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished population of unlike members."""
    folder = tmp_path_factory.mktemp("mixed") / "all"
    result = api.train(UNLIKE, out=folder, progress=False)
    assert result.finished and isinstance(result, api.PopulationResult)
    assert [run.folder for run in result.runs] == [folder / name for name in UNLIKE]
    return folder


@pytest.mark.parametrize("name", UNLIKE)
def test_a_member_learns_what_it_learns_alone(mixed: Path, name: str, tmp_path: Path) -> None:
    api.train(UNLIKE[name], out=tmp_path / "alone", progress=False)
    together, alone = saved(mixed / name), saved(tmp_path / "alone")
    counted = ("decision", "episode", "sessions", "asked", "labels", "seed")
    assert {key: together.meta[key] for key in counted} == {key: alone.meta[key] for key in counted}
    assert together.meta["environment"]["id"] == UNLIKE[name].env
    mine, theirs = agent_arrays(mixed / name), agent_arrays(tmp_path / "alone")
    assert mine.keys() == theirs.keys()
    for array, own in mine.items():
        np.testing.assert_allclose(own, theirs[array], rtol=5e-3, atol=5e-3, err_msg=array)
    asked = [[row[-2:] for row in labels(folder)] for folder in (mixed / name, tmp_path / "alone")]
    assert len(asked[0]) == len(asked[1])
    kinds = [[(row["kind"], row["decision"]) for row in rows(folder)] for folder in (mixed / name, tmp_path / "alone")]
    assert kinds[0] == kinds[1]


def test_a_stopped_population_of_unlike_members_goes_on_bit_for_bit(mixed: Path, tmp_path: Path) -> None:
    stopped = stop_at(93, signal.SIGTERM, lambda: api.train(UNLIKE, out=tmp_path / "all", progress=False))
    assert not stopped.finished
    resumed = api.resume(tmp_path / "all", progress=False)
    assert resumed.finished
    for name in UNLIKE:
        assert_same_run(mixed / name, tmp_path / "all" / name)


def test_unlike_members_are_one_program_that_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    take = loop.shared_programs

    def remembered(*arguments: Any) -> Any:
        made.append(take(*arguments))
        return made[-1]

    monkeypatch.setattr(loop, "shared_programs", remembered)
    configs = {name: dataclasses.replace(config, seed=config.seed + 20) for name, config in UNLIKE.items()}
    api.train(configs, out=tmp_path / "all", progress=False)
    assert len(made) == 1 and population.programs(tmp_path / "all") == [[tmp_path / "all" / name for name in UNLIKE]]
    assert compiled(made[0]) <= len(set(made[0])), "no program has two shapes"


def test_numbers_are_no_reason_for_another_program() -> None:
    """Every number of the table may differ, and none is a constant of the programs."""
    base = resolve(tiny(preferences={"anchor": 0.1}), 20)
    for kind, names in member_axis.NUMBERS.items():
        section = next(
            name
            for name in ("optimism", "training", "planner", "evaluation", "preferences", "model", "sac")
            if type(getattr(base, name)) is kind
        )
        for name in names:
            value = getattr(getattr(base, section), name)
            other = (not value) if isinstance(value, bool) else value + 1
            changed = dataclasses.replace(
                base, **{section: dataclasses.replace(getattr(base, section), **{name: other})}
            )
            assert member_axis.program_key(changed) == member_axis.program_key(base), f"{section}.{name}"
            settings = Layout.of([base, changed], SPEC).settings()
            first, second = (jax.tree.map(lambda x, i=i: x[i], settings) for i in (0, 1))
            assert (
                sum(a.tolist() != b.tolist() for a, b in zip(*map(jax.tree.leaves, (first, second)), strict=True)) == 1
            )


def test_what_shapes_programs_keeps_runs_apart() -> None:
    base = resolve(tiny(), 20)
    other = dataclasses.replace(base, planner=dataclasses.replace(base.planner, horizon=3))
    assert member_axis.differences(base, other) == ["planner.horizon"]
    longer = dataclasses.replace(base, steps=999)
    assert member_axis.differences(base, longer) == ["steps"]
    specs = [SPEC, SPEC, SPEC, SPEC._replace(obs_dim=5), SPEC]
    assert member_axis.group([base, other, longer, base, base], specs) == [[0, 4], [1], [2], [3]]
    with pytest.raises(ValueError, match=r"must be equal in planner\.horizon"):
        Layout.of([base, other], SPEC)


@pytest.mark.parametrize("agent", ["pebble", "rune", "mrn", "surf"])
def test_agents_without_a_model_take_traced_numbers(agent: str) -> None:
    config = resolve(tiny(agent=agent, preferences={"first": 80}), 20)
    unlike = dataclasses.replace(config, sac=dataclasses.replace(config.sac, alpha=0.3, rune_beta=0.2, epochs=3))
    programs = make_programs(Layout.of([config, unlike], SPEC), make_agent(config, 4, 2))
    state, memory, _ = programs.init.outputs()
    counter = jax.ShapeDtypeStruct((), np.int32)
    updated = programs.update._jitted.trace(*programs.update.bound, state, memory, counter, counter).out_info
    assert jax.tree.structure(updated[0]) == jax.tree.structure(state)
    due = jax.ShapeDtypeStruct((2,), np.bool_)
    programs.fit._jitted.trace(*programs.fit.bound, state, memory, due, counter)


def test_a_member_whose_numbers_are_not_finite_fails_alone(tmp_path: Path) -> None:
    configs = {"well": short(), "diverging": short(seed=4, training={"learning_rate": 1e30})}
    result = api.train(configs, out=tmp_path / "all", progress=False)
    assert isinstance(result, api.PopulationResult) and not result.finished
    well, diverging = result.runs
    assert well.finished and well.error is None and well.evaluation
    assert not diverging.finished and "not finite" in str(diverging.error)
    assert (diverging.folder / "diverged").is_dir()
    api.train(short(), out=tmp_path / "alone", progress=False)
    for name, array in agent_arrays(tmp_path / "alone").items():
        np.testing.assert_allclose(agent_arrays(well.folder)[name], array, rtol=5e-3, atol=5e-3, err_msg=name)


def test_a_member_whose_simulator_breaks_fails_alone_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configs = {"reach/s0": short(environment=APART), "breaking/s0": short(env=BREAKING, seed=1, environment=APART)}
    result = api.train(configs, out=tmp_path / "all")
    assert isinstance(result, api.PopulationResult)
    assert [run.finished for run in result.runs] == [True, False]
    assert "the arm fell off" in str(result.runs[1].error)
    told = capsys.readouterr().err
    assert "breaking/s0 stops here, the others go on" in told
    assert "1 of 2 runs stopped early with an error (breaking/s0)" in told


def test_a_member_whose_disk_is_full_fails_alone_and_goes_on_later(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = EpisodeArchive.append

    def full(self: EpisodeArchive, episode: Any) -> None:
        if "flee/noisy" in str(self._database.path) and episode.index == 5:
            raise UserError("cannot write: disk full; free some space")
        append(self, episode)

    with monkeypatch.context() as patch:
        patch.setattr(EpisodeArchive, "append", full)
        result = api.train(UNLIKE, out=tmp_path / "all", progress=False)
    assert isinstance(result, api.PopulationResult)
    assert [run.error is None for run in result.runs] == [True, True, True, False]
    assert "disk full" in str(result.runs[3].error)
    again = api.resume(tmp_path / "all", progress=False)
    assert again.finished and saved(tmp_path / "all" / "flee/noisy").decision == 160
    for name in list(UNLIKE)[:3]:
        assert_same_run(mixed / name, tmp_path / "all" / name)


def test_a_member_that_failed_takes_nobody_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished runs stay as they are at every resume, also where the only common checkpoint is an early one or none."""
    for every in (80, 500):
        folder = tmp_path / str(every)
        configs = {
            "well/s0": short(environment=APART, checkpoint={"every": every}),
            "breaking/s0": short(env=BREAKING, seed=1, environment=APART, checkpoint={"every": every}),
        }
        result = api.train(configs, out=folder, progress=False)
        assert isinstance(result, api.PopulationResult)
        assert result.runs[1].decisions == (80 if every == 80 else 0), "it stands where its checkpoint is"
        before = (folder / "well/s0" / "metrics.jsonl").read_bytes()
        again = api.resume(folder, progress=False) if every == 80 else None  # which breaks later in a fresh process
        if again is None:
            with pytest.raises(UserError, match="the arm fell off"):
                api.resume(folder, progress=False)
        assert (folder / "well/s0" / "metrics.jsonl").read_bytes() == before
        assert saved(folder / "well/s0").decision == 160


def test_a_member_may_fail_under_the_second_controller_of_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes = evaluate._episodes

    def failing(crew: Any, act: Any, name: str, t: int) -> Any:
        done = episodes(crew, act, name, t)
        if name == "planner" and t == 80:
            crew.fail(1, UserError("the second room fell down"))
        return done

    monkeypatch.setattr(evaluate, "_episodes", failing)
    result = api.train({"low": short(), "high": short(seed=5)}, out=tmp_path / "all", progress=False)
    assert isinstance(result, api.PopulationResult) and [run.finished for run in result.runs] == [True, False]
    assert "fell down" in str(result.runs[1].error)


def test_a_signal_at_the_end_of_one_program_keeps_the_next_from_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = loop.save

    def interrupted(*arguments: Any) -> None:
        save(*arguments)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(loop, "save", interrupted)
    small = short(steps=60, evaluation={"every": 0}, checkpoint={"every": 500})
    wide = dataclasses.replace(small, planner=dataclasses.replace(small.planner, horizon=3))
    result = api.train([small, wide], out=tmp_path / "all", progress=False)
    assert isinstance(result, api.PopulationResult)
    assert [(run.finished, run.decisions) for run in result.runs] == [(True, 60), (False, 0)]


def test_strategies_whose_first_pairs_depend_on_their_number_share_no_program_over_it() -> None:
    for strategy in ("thompson", "kcenter-disagreement", "kcenter-entropy"):
        few, many = (resolve(tiny(preferences={"strategy": strategy, "per_session": k}), 20) for k in (3, 12))
        assert member_axis.differences(few, many) == ["preferences.per_session"]
    few, many = (resolve(tiny(preferences={"strategy": "kcenter", "per_session": k}), 20) for k in (3, 12))
    assert member_axis.differences(few, many) == []


def test_the_minutes_of_a_call_begin_with_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with the process, which may be a notebook that is hours old."""
    monkeypatch.setattr("ubp2.trainer.seconds_since_start", lambda: 1e5)
    config = short(steps=60, evaluation={"every": 0})
    assert api.train(config, out=tmp_path / "run", minutes=20, progress=False).finished


def test_where_all_members_fail_the_first_error_is_raised(tmp_path: Path) -> None:
    configs = {str(seed): short(env=BREAKING, seed=seed, environment=APART) for seed in range(2)}
    with pytest.raises(UserError, match="the arm fell off"):
        api.train(configs, out=tmp_path / "all", progress=False)


def test_runs_of_unlike_shapes_are_programs_of_their_own(tmp_path: Path) -> None:
    small = short(steps=60, evaluation={"every": 0})
    wide = dataclasses.replace(small, planner=dataclasses.replace(small.planner, horizon=3))
    result = api.train([small, wide, dataclasses.replace(small, seed=1)], out=tmp_path / "all", progress=False)
    assert result.finished
    names = ["toy-reach/ubp2/s0", "toy-reach/ubp2-2/s0", "toy-reach/ubp2/s1"]
    found = [[str(run.relative_to(tmp_path / "all")) for run in own] for own in population.programs(tmp_path / "all")]
    assert found == [[names[0], names[2]], [names[1]]]
    scores = api.evaluate_members(tmp_path / "all", episodes=1)
    assert sorted(scores) == sorted(names)


def test_a_run_ends_inside_its_minutes_with_an_evaluation_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ubp2.training.limits import TimeLimit

    config = short(steps=160, evaluation={"every": 0})
    reads: list[float] = []

    def near(self: TimeLimit, evaluating: float) -> bool:  # the time is up at decision 100
        reads.append(evaluating)
        return len(reads) > 100

    monkeypatch.setattr(TimeLimit, "near", near)
    stopped = api.train(config, out=tmp_path / "run", minutes=30, progress=False)
    assert not stopped.finished and stopped.decisions == 100
    assert [row["decision"] for row in rows(tmp_path / "run", "eval")] == [100]
    assert saved(tmp_path / "run").decision == 100
    monkeypatch.undo()
    assert api.resume(tmp_path / "run", minutes=30, progress=False).finished
    with pytest.raises(UserError, match="minutes must be more than 0, got 0"):
        api.resume(tmp_path / "run", minutes=0)


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        ({}, "expected at least one configuration"),
        ({"a": "toy/reach"}, "expected configurations, got str for a"),
        ("toy/reach", "expected a configuration such as ubp2.preset"),
        ({"../a": tiny()}, "named by folders of letters"),
        ({"a": tiny(), "a/b": tiny(seed=1)}, "one inside the other's"),
        ([tiny(), "toy/reach"], "expected configurations, got str"),
    ],
)
def test_what_is_no_set_of_configurations_is_told(configs: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        api.train(configs, out=tmp_path / "all", progress=False)
    assert not (tmp_path / "all").exists() or not list((tmp_path / "all").rglob("config.yaml"))


def test_the_end_of_the_time_is_in_front_of_what_is_left_to_do() -> None:
    from ubp2.training.limits import MARGIN, SLACK, TimeLimit

    assert not TimeLimit().near(1e9) and not TimeLimit().over() and TimeLimit().left() == math.inf
    limit = TimeLimit.after(1.0)
    limit.saving = 5.0
    assert not limit.near(10.0) and limit.near(60.0)
    limit.evaluating = 2.0
    assert not limit.near(1e9), "what was measured counts"
    limit.end -= 60.0 - SLACK * 5.0 - MARGIN + 0.1
    assert limit.over()
