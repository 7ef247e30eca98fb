"""The package as a library: a custom environment, a trained controller, threads, and a light import."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box

import ubp2
from tests.training.helpers import assert_same_run, environment, tiny
from ubp2 import api, trainer
from ubp2.config.files import extended
from ubp2.config.schema import EnvironmentConfig
from ubp2.envs.adapter import adapt
from ubp2.envs.workers import make_vector
from ubp2.errors import UserError
from ubp2.evaluation.rollout import filmed, rank_correlation
from ubp2.storage.runs import Metrics, Run
from ubp2.terminal.descriptions import evaluation_lines
from ubp2.trained import restored
from ubp2.training.evaluate import controller as make_controller
from ubp2.training.evaluate import reward_correlations
from ubp2.training.state import check_environment


class Thermostat(gymnasium.Env):
    """A room to keep at 20 degrees with a heater of 0 to 50 watts and a window that is open by -3 to -1."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (Gymnasium's own attribute)
    render_mode = "rgb_array"

    def __init__(self) -> None:
        self.observation_space = Box(-100.0, 100.0, (2, 1))
        self.action_space = Box(np.array([0.0, -3.0], np.float32), np.array([50.0, -1.0], np.float32))
        self.seen: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.temperature, self.seen = self.np_random.uniform(10.0, 30.0), []
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.seen.append(action.copy())
        self.temperature += 0.05 * float(action[0]) + float(action[1])
        error = abs(self.temperature - 20.0)
        return self._observe(), -error, False, False, {"success": error < 1.0}

    def _observe(self) -> np.ndarray:
        return np.array([[self.temperature], [20.0 - self.temperature]], np.float32)


def make_room() -> gymnasium.Env:
    """What a user writes."""
    return Thermostat()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the user's own environment, in worker processes."""
    folder = tmp_path_factory.mktemp("api") / "run"
    config = tiny(env="my-room", environment={"in_process": False})
    result = ubp2.train(config, env=make_room, out=folder, progress=False)
    assert isinstance(result, ubp2.RunResult)
    assert (result.folder, result.decisions, result.labels, result.finished) == (folder, 300, 14, True)
    assert result.evaluation["planner/return"] < 0
    return folder


@pytest.mark.parametrize("who", ["policy", "planner"])
def test_a_controller_acts_as_the_evaluation_does(run: Path, who: api.ControllerName) -> None:
    """The same observations, the same actions, in the bounds of the environment itself."""
    controller, room = ubp2.load(run, who), Thermostat()
    obs, _ = room.reset(seed=100_000)
    total, given = 0.0, []
    for _ in range(20):
        given.append(controller.act(obs))
        obs, reward, *_ = room.step(given[-1])  # which asserts that the action is in its bounds
        total += reward
    scores = ubp2.evaluate(run, episodes=1, controller=who, env=make_room)
    assert scores["return"] == pytest.approx(total, rel=1e-5)
    assert scores["return"] == pytest.approx(saved_evaluation(run)[f"{who}/return"], rel=1e-12)
    # And action by action, against the adapter that evaluation steps through.
    env, rooms = _watched()
    act = make_controller(*_trained(run), who, 1)
    filmed(act, env, [100_000], [None])
    np.testing.assert_allclose(rooms[0].seen, given, rtol=1e-5)
    assert np.std(given) > 0


def _watched() -> tuple[Any, list[Thermostat]]:
    rooms: list[Thermostat] = []

    def make() -> Thermostat:
        rooms.append(Thermostat())
        return rooms[-1]

    options = EnvironmentConfig(in_process=True, episode_decisions=20)
    return make_vector(make, options, 1), rooms


def _trained(run: Path) -> tuple[Any, Any, Any]:
    trained = restored([run], "policy")
    return trained.agent, trained.programs, trained.state


def saved_evaluation(run: Path) -> dict[str, float]:
    return trainer.last_evaluation(run)


def test_a_controller_forgets_at_a_reset_and_refuses_nonsense(run: Path) -> None:
    controller = ubp2.load(run, "planner")
    obs = np.array([[15.0], [5.0]])
    first, second = controller.act(obs), controller.act(obs)
    assert not np.array_equal(first, second)  # the plan goes on where the last one stood
    controller.reset()
    np.testing.assert_array_equal(controller.act(obs), first)
    for wrong in (np.zeros(3), np.array([np.nan, 0.0])):
        with pytest.raises(UserError, match="expected an observation of 2 finite numbers"):
            controller.act(wrong)
    assert first.shape == (2,) and first.dtype == np.float32


def test_a_score_that_is_no_number_is_nan_again(tmp_path: Path) -> None:
    """A correlation of constants is null in the file of metrics: a finished run that is resumed reads it there."""
    with Metrics(tmp_path, tensorboard=False) as metrics:
        metrics.write("eval", 300, {"policy/return": -1.0, "reward/rank_correlation": math.nan, "labels/asked": 14.0})
    scores = saved_evaluation(tmp_path)
    assert scores == pytest.approx({"policy/return": -1.0, "reward/rank_correlation": math.nan}, nan_ok=True)
    assert evaluation_lines(scores)[1].endswith("nan")
    mean = api.mean_scores([scores, {"policy/return": -3.0, "reward/rank_correlation": 0.5}])
    assert mean == {"policy/return": -2.0, "reward/rank_correlation": 0.5}
    assert api.mean_scores([scores, scores]) == pytest.approx(scores, nan_ok=True)


def test_evaluation_is_a_function_of_its_seeds(run: Path) -> None:
    scores = [ubp2.evaluate(run, episodes=2, seed=seed, env=make_room) for seed in (5, 5, 6)]
    assert scores[0] == scores[1] != scores[2]
    assert scores[0].keys() == {"success_any", "success_last", "return", "length", "rank_correlation"}
    assert scores[0]["length"] == 20


@pytest.mark.parametrize(("wrong", "name"), [({"episodes": 0}, "episodes"), ({"seed": -1}, "seed")])
def test_an_evaluation_of_nothing_is_refused(wrong: dict[str, Any], name: str, run: Path) -> None:
    with pytest.raises(UserError, match=f"^{name} must be at least"):
        ubp2.evaluate(run, env=make_room, **wrong)


def test_a_run_of_ones_own_environment_needs_it_again(run: Path) -> None:
    """It must not silently continue on, or be judged by, the environment that the config happens to name."""
    with pytest.raises(UserError, match="environment given from Python"):
        ubp2.evaluate(run, episodes=1)


def test_another_environment_is_refused(run: Path, tmp_path: Path) -> None:
    config = tiny(steps=160, evaluation={"every": 0})
    ubp2.train(config, env=make_room, out=tmp_path / "run", progress=False)  # the config names toy/reach
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    for act in (lambda: ubp2.evaluate(tmp_path / "run"), lambda: ubp2.resume(tmp_path / "run", progress=False)):
        with pytest.raises(UserError, match="environment given from Python"):
            act()
    from ubp2.envs.toy import Reach

    with pytest.raises(UserError, match="obs_dim 2, and custom has 4"):
        ubp2.evaluate(run, env=Reach)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_an_evaluation_may_have_longer_episodes(run: Path) -> None:
    """The program that predicts rewards is compiled for episodes of training."""
    trained = restored([run], "policy")
    envs = make_vector(make_room, EnvironmentConfig(in_process=True, episode_decisions=50), 1)
    act = make_controller(trained.agent, trained.programs, trained.state, "policy", 1)
    done = filmed(act, envs, [100_000, 100_001], [None])
    assert [len(episode.action) for episode in done[0]] == [50, 50]
    state = jax.tree.map(lambda x: x[0], trained.state)
    sides = [(jnp.asarray(episode.obs[:-1]), jnp.asarray(episode.action)) for episode in done[0]]
    predicted = [trained.agent.predict_reward(state, *side) for side in sides]
    expected = rank_correlation(np.concatenate(predicted), np.concatenate([e.true_reward for e in done[0]]))
    found = reward_correlations(trained.programs, trained.state, done, trained.spec.episode_decisions)
    assert found == [pytest.approx(expected, abs=1e-3)]


class Wider(Thermostat):
    """With a heater of up to 60 watts."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = Box(np.array([0.0, -3.0], np.float32), np.array([60.0, -1.0], np.float32))


def test_a_run_goes_on_in_the_environment_that_it_began_in(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"with action_high \(50.0, -1.0\), and custom has \(60.0, -1.0\); use the env"):
        ubp2.resume(run, env=Wider, progress=False)
    spec = restored([run], "policy").spec
    for other in ({"episode_decisions": 30}, {"action_repeat": 2}, {"action_low": (0.0, -2.0)}):
        with pytest.raises(UserError, match=f"trained on custom with {next(iter(other))} "):
            check_environment(spec, spec._replace(**other), going_on=True)
        check_environment(spec, spec._replace(**other))  # it may be evaluated there
    Run.create(tmp_path / "run", tiny()).close()
    with pytest.raises(UserError, match=r"was trained on toy/reach, which has an id; leave out env="):
        ubp2.resume(tmp_path / "run", env=make_room, progress=False)


def test_a_mistake_in_a_configuration_from_python_is_told_before_anything_is_made(tmp_path: Path) -> None:
    config = dataclasses.replace(tiny(), seed=np.float64(1.5))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"seed must be a whole number, got 1.5"):
        ubp2.train(config, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    more = extended(tiny(), dataclasses.replace(tiny(), steps=np.int64(400)))  # type: ignore[arg-type]
    assert type(more.steps) is int and more.steps == 400


def test_training_in_a_thread_is_the_same(run: Path, tmp_path: Path) -> None:
    """Signals belong to the main thread; a run elsewhere goes without them."""
    ended: list[ubp2.RunResult] = []

    def work() -> None:
        config = tiny(env="my-room")
        ended.append(ubp2.train(config, env=make_room, out=tmp_path / "run", progress=False))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=300)
    assert not thread.is_alive() and ended[0].finished
    assert_same_run(tmp_path / "run", run)


def test_an_environment_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pass the function itself"):
        ubp2.train(tiny(), env=Thermostat(), out=tmp_path / "run", progress=False)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_the_adapter_and_the_controller_scale_alike(run: Path) -> None:
    """At the corners of [-1, 1]: exactly the bounds, on both ways to the environment."""
    room = Thermostat()
    env = adapt(room, EnvironmentConfig())
    spec = restored([run], "policy").spec
    env.reset(0)
    env.step(np.array([1.0, -1.0], np.float32))
    np.testing.assert_array_equal(room.seen[-1], [spec.action_high[0], spec.action_low[1]])


SNIPPET = """
import sys
import ubp2
assert "jax" not in sys.modules and "gymnasium" not in sys.modules, "import ubp2 must stay light"
config = ubp2.preset("demo", "toy/reach")
assert "jax" not in sys.modules
assert isinstance(config, ubp2.Config)
try:
    ubp2.preset("dmeo")
except ubp2.UserError as error:
    assert "Did you mean demo?" in str(error)
assert callable(ubp2.train) and "jax" in sys.modules
assert set(ubp2.__all__) == {name for name in ubp2.__all__ if getattr(ubp2, name) is not None}
"""


def test_importing_is_light() -> None:
    result = subprocess.run([sys.executable, "-c", SNIPPET], capture_output=True, text=True, env=environment())
    assert result.returncode == 0, result.stderr


SCRIPT = """
import gymnasium, numpy as np, ubp2
from tests.training.helpers import tiny

class Room(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (2,))
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.x, {}
    def step(self, action):
        self.x = np.clip(self.x + 0.1 * action, -1, 1).astype(np.float32)
        return self.x, -float(abs(self.x).sum()), False, False, {}

config = tiny(steps=160, evaluation={"every": 0}, environment={"in_process": False})
result = ubp2.train(config, env=Room, out=OUT, progress=False)
policy = ubp2.load(result.folder)
action = policy.act(np.zeros(2))
print(result.labels, action.shape, abs(action).max() <= 1)
"""


@pytest.mark.slow
def test_a_script_of_a_user(tmp_path: Path) -> None:
    """Without `if __name__ == "__main__"`: the workers do not run the script again."""
    (tmp_path / "mine.py").write_text(SCRIPT.replace("OUT", repr(str(tmp_path / "run"))))
    result = subprocess.run(
        [sys.executable, tmp_path / "mine.py"], capture_output=True, text=True, env=environment(), timeout=300
    )
    assert (result.returncode, result.stdout) == (0, "14 (2,) True\n"), result.stderr
