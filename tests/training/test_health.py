"""Numbers that are not finite stop a run before they reach a checkpoint, and what led to them is saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training.helpers import saved, tiny
from ubp2 import api
from ubp2.agents.registry import AGENTS
from ubp2.envs.toy import Reach
from ubp2.errors import UserError
from ubp2.training import shared

WILD = tiny(checkpoint={"every": 30}, training={"learning_rate": 1e30, "grad_clip": 1e30})


@pytest.fixture(autouse=True)
def programs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of these agents are not what their name says, and share programs with nobody."""
    monkeypatch.setattr(shared, "_KEPT", shared.Kept())


def evidence(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    (path,) = (folder / "diverged").glob("*.json")
    with np.load(path.with_suffix(".npz")) as arrays:
        return json.loads(path.read_text()), dict(arrays)


def test_the_batch_of_an_update_that_diverged_is_saved(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(UserError, match=r"^learning diverged: .* finite at decision 60 of seed 0; its batch is in "):
        api.train(WILD, out=folder, progress=False)
    facts, arrays = evidence(folder)
    assert (facts["decision"], facts["seed"], facts["what"]) == (60, 0, "update")
    assert facts["parameters"], "the arrays that are not finite are named"
    assert arrays["['batch']['obs']"].shape[1:] == (8, 4) and np.isfinite(arrays["['batch']['obs']"]).all()
    assert facts["arrays"]["['batch']['obs']"]["not_finite"] == 0
    assert any("supervision" in name for name in arrays)
    before = saved(folder)
    assert before.decision == 60, "from before the first update"
    assert all(np.isfinite(array).all() for array in before.arrays.values() if array.dtype.kind == "f")


@pytest.mark.parametrize("agent", ["sac", "pebble"])
def test_other_agents_are_watched_too(tmp_path: Path, agent: str) -> None:
    changes: dict[str, Any] = {"ceiling": True} if agent == "sac" else {}
    with pytest.raises(UserError, match="learning diverged: "):
        api.train(
            tiny(agent=agent, steps=200, training={"learning_rate": 1e30}, **changes),
            out=tmp_path / "run",
            progress=False,
        )
    assert evidence(tmp_path / "run")[0]["seed"] == 0


def test_a_reward_that_is_no_number_is_not_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit tells of its epochs and its accuracy, and both are finite whatever the parameters are."""
    make = AGENTS["pebble"]

    def poisoned(*arguments: Any) -> Any:
        agent = make(*arguments)

        def fit(*given: Any) -> Any:
            assert agent.fit is not None
            state, metrics = agent.fit(*given)
            return state._replace(reward=jax.tree.map(lambda leaf: leaf * jnp.nan, state.reward)), metrics

        return agent._replace(fit=fit)

    monkeypatch.setitem(AGENTS, "pebble", poisoned)
    config = tiny(agent="pebble", preferences={"first": 40})
    with pytest.raises(UserError, match="reward.* not finite at decision 40 of seed 0; the labels that it saw are in "):
        api.train(config, out=tmp_path / "run", progress=False)
    facts, arrays = evidence(tmp_path / "run")
    assert facts["what"] == "fit" and set(facts["metrics"]) == {"fit/epochs", "fit/accuracy"}
    assert arrays[".weight"].sum() == 4 and np.isfinite(arrays[".left_obs"]).all()


def test_nothing_is_evaluated_of_an_agent_that_diverged(tmp_path: Path) -> None:
    """The evaluation comes right after the first update, before the next action would have told."""
    training = {"learning_rate": 1e30, "grad_clip": 1e30, "warmup_updates": 0}
    with pytest.raises(UserError, match="learning diverged: .* at decision 61 of seed 0; its batch is in "):
        api.train(tiny(evaluation={"every": 62}, training=training), out=tmp_path / "run", progress=False)


@pytest.mark.slow
def test_of_several_seeds_the_one_that_diverged_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent whose second seed goes wrong at decision 100: its first weights tell it which it is."""
    make = AGENTS["ubp2"]

    def poisoned(*arguments: Any) -> Any:
        agent = make(*arguments)

        def update(state: Any, batch: Any, supervision: Any, key: Any) -> Any:
            state, metrics = agent.update(state, batch, supervision, key)
            worst = jnp.where(batch.index.max() > 104, jnp.inf, 0.0)
            return state, metrics | {"loss/value": metrics["loss/value"] + worst * batch.obs.max()}

        return agent._replace(update=update)

    monkeypatch.setitem(AGENTS, "ubp2", poisoned)
    with pytest.raises(UserError, match=r"loss/value .*not finite at decision 1\d\d of seed (\d).*/s\1/diverged/"):
        api.train(tiny(), seeds=2, out=tmp_path / "all", progress=False)
    folders = [path for path in (tmp_path / "all").glob("s*") if (path / "diverged").exists()]
    assert len(folders) == 1
    facts, arrays = evidence(folders[0])
    assert facts["metrics"]["loss/value"] in ("inf", "-inf", "nan") and facts["parameters"] == []
    assert arrays["['batch']['index']"].max() > 104, "this is the batch that did it"
    assert saved(folders[0]).decision == 70


def test_an_action_that_is_no_number_does_not_reach_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = AGENTS["sac"]

    def poisoned(*arguments: Any) -> Any:
        agent = make(*arguments)

        def plan(*given: Any) -> Any:
            action = agent.plan(*given)
            return action._replace(action=action.action * jnp.nan)

        return agent._replace(plan=plan)

    monkeypatch.setitem(AGENTS, "sac", poisoned)
    with pytest.raises(UserError, match="the action is not finite at decision 60 of seed 0; the observation is in "):
        api.train(tiny(agent="sac", ceiling=True), out=tmp_path / "run", progress=False)
    assert evidence(tmp_path / "run")[0]["what"] == "action"


class Broken(Reach):
    """Reach that is lost in the fifth step of its fourth episode or so."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.bad, self.steps = seed is not None and seed % 3 == 0, 0
        return super().reset(seed=seed)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, *rest = super().step(action)
        self.steps += 1
        return (obs * np.nan if self.bad and self.steps == 5 else obs), *rest  # type: ignore[return-value]


def test_an_observation_that_is_no_number_is_named(tmp_path: Path) -> None:
    """In a worker; the one below is in this process."""
    config = tiny(environment={"in_process": False}, checkpoint={"every": 10})
    told = r"the observation is nan at index 0 of 4 at decision 5; .* this was environment 0 at decision \d+ of the run"
    with pytest.raises(UserError, match=told):
        api.train(config, env=Broken, out=tmp_path / "run", progress=False)
    facts, arrays = evidence(tmp_path / "run")
    assert facts["what"] == "environment" and facts["index"] == 0 and arrays["action"].shape == (5, 2)
    env = Broken()
    env.reset(seed=int(arrays["seed"]))
    for action in arrays["action"]:
        obs = env.step(action)[0]
    assert np.isnan(obs).all(), "the seed and the actions make it again"
    assert saved(tmp_path / "run").decision <= facts["decision"]


class Stillborn(Reach):
    """Reach of which an episode begins with NaN."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        obs, info = super().reset(seed=seed)
        return (obs * np.nan if seed is not None and seed % 3 == 0 and seed > 0 else obs), info


def test_a_first_observation_that_is_no_number_is_named(tmp_path: Path) -> None:
    config = tiny(checkpoint={"every": 10})
    with pytest.raises(
        UserError, match=r"nan at index 0 of 4 at decision 0; .* this was environment 0 at decision \d+"
    ):
        api.train(config, env=Stillborn, out=tmp_path / "run", progress=False)
    facts, arrays = evidence(tmp_path / "run")
    assert facts["what"] == "environment" and int(arrays["seed"]) % 3 == 0
