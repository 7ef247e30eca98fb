"""Workers behave as the environment in this process does, and never hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from tests.envs import probes
from tests.waiting import gone, until
from ubp2.config.schema import EnvironmentConfig
from ubp2.envs import worker
from ubp2.envs.base import Lost
from ubp2.envs.workers import RESTARTS, Inline, Workers, make_vector
from ubp2.errors import UserError

OPTIONS = EnvironmentConfig()
INLINE = EnvironmentConfig(in_process=True)


class Loaded(probes.RewardOfAction):
    """Observes whether jax is loaded, Ctrl-C ignored, and OpenMP kept to one thread."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        clean = "jax" not in sys.modules
        deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        return np.array([clean and deaf and os.environ["OMP_NUM_THREADS"] == "1"], np.float32), {}


class Dying(probes.RewardOfAction):
    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            print("last words", file=sys.stderr, flush=True)
            os._exit(7)
        return super().step(action)


@pytest.mark.parametrize("env", ["toy/reach", "metaworld/door-close", probes.RewardOfAction])
def test_workers_equal_inline(env):
    workers, inline = make_vector(env, OPTIONS, 2), make_vector(env, INLINE, 2)
    assert isinstance(workers, Workers) and isinstance(inline, Inline)
    assert workers.spec == inline.spec and workers.size == inline.size == 2
    random = np.random.default_rng(0)
    for index, seed in enumerate((11, 12)):
        np.testing.assert_array_equal(workers.reset(index, seed), inline.reset(index, seed))
    for _ in range(12):
        actions = random.uniform(-1.2, 1.2, (2, workers.spec.action_dim))
        workers.send(actions)
        inline.send(actions)
        for one, other in zip(workers.receive(), inline.receive(), strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
    workers.close()
    inline.close()


def test_steps_are_not_overwritten_by_the_next():
    vector = make_vector("toy/reach", OPTIONS, 1)
    start = vector.reset(0, 0)
    kept = start.copy()
    vector.send(np.ones((1, 2)))
    first = vector.receive()
    obs = first.obs.copy()
    vector.send(np.ones((1, 2)))
    vector.receive()
    np.testing.assert_array_equal(start, kept)
    np.testing.assert_array_equal(first.obs, obs)
    np.testing.assert_array_equal(vector.render(0), vector.render(0))
    assert vector.render(0).shape == (256, 256, 3)
    vector.close()
    vector.close()
    with pytest.raises(RuntimeError, match="after close"):
        vector.reset(0, 0)


def test_a_worker_has_no_jax_and_ignores_ctrl_c():
    vector = make_vector(Loaded, OPTIONS, 1)
    assert vector.reset(0, 0) == 1.0
    vector.close()


def test_closures_travel():
    scale = 7.0

    def build() -> gymnasium.Env:
        return gymnasium.wrappers.TransformReward(probes.ConstantReward(), lambda reward: scale * float(reward))

    vector = make_vector(build, OPTIONS, 1)
    vector.reset(0, 0)
    vector.send(np.zeros((1, 1)))
    assert vector.receive().true_reward == [7.0]
    vector.close()


@pytest.mark.parametrize("options", [OPTIONS, INLINE], ids=["workers", "inline"])
def test_errors_at_the_start(options):
    with pytest.raises(UserError, match="Did you mean reach"):
        make_vector("toy/reahc", options, 2)
    with pytest.raises(UserError, match="expected a continuous Box action"):
        make_vector(probes.DiscreteAction, options, 1)


def test_a_user_error_arrives_as_it_is_and_the_worker_goes_on():
    vector = make_vector(probes.NanReward, OPTIONS, 2)
    for _ in range(2):
        for index in range(2):
            vector.reset(index, 0)
        vector.send(np.zeros((2, 1)))
        vector.receive()
        vector.send(np.zeros((2, 1)))
        with pytest.raises(UserError, match=r"^custom: the reward must be one finite number, got nan at decision 2"):
            vector.receive()
    vector.close()


def test_an_exception_arrives_with_its_traceback():
    vector = make_vector(probes.CrashingStep, OPTIONS, 1)
    vector.reset(0, 0)
    vector.send(np.zeros((1, 1)))
    vector.receive()
    vector.send(np.zeros((1, 1)))
    with pytest.raises(UserError) as caught:
        vector.receive()
    assert "raised ZeroDivisionError: the physics engine exploded" in str(caught.value)
    assert "probes.py" in str(caught.value)
    vector.close()


def test_a_killed_worker_is_reported():
    vector = make_vector("toy/reach", OPTIONS, 2)
    for index in range(2):
        vector.reset(index, 0)
    os.kill(vector._workers[1].pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"worker 1 .* ended by signal 9 \(SIGKILL\)"):
        for _ in range(3):
            vector.send(np.zeros((2, 2)))
            vector.receive()
    with pytest.raises(UserError, match="SIGKILL"):
        vector.reset(1, 0)
    vector.close()


def test_a_worker_that_exits_leaves_its_last_words():
    vector = make_vector(Dying, OPTIONS, 1)
    vector.reset(0, 0)
    with pytest.raises(UserError) as caught:
        for _ in range(5):
            vector.send(np.zeros((1, 1)))
            vector.receive()
    assert "exit code 7" in str(caught.value) and "last words" in str(caught.value)
    vector.close()


class Hanging(probes.RewardOfAction):
    """Gives no answer at its third step if the seed is odd."""

    def reset(self, *, seed=None, options=None):
        self.odd = seed is not None and seed % 2 == 1
        return super().reset(seed=seed)

    def step(self, action):
        self.steps += 1
        if self.odd and self.steps == 3:
            time.sleep(3600)
        return super().step(action)


def steps(vector, count):
    for _ in range(count):
        vector.send(np.zeros((vector.size, vector.spec.action_dim)))
        vector.receive()


@pytest.mark.parametrize("env", ["toy/reach", Hanging], ids=["died", "hung"])
def test_a_lost_worker_is_replaced_and_the_others_have_answered(env):
    vector = make_vector(env, OPTIONS if env == "toy/reach" else EnvironmentConfig(patience=5.0), 2)
    for index in range(2):
        vector.reset(index, index)
    steps(vector, 2)
    before = vector._workers[1].pid  # type: ignore[attr-defined]
    if env == "toy/reach":
        os.kill(before, signal.SIGKILL)
    with pytest.raises(Lost, match=r"SIGKILL" if env == "toy/reach" else r"worker 1 .* gave no answer") as caught:
        steps(vector, 1)
    assert caught.value.indices == [1] and caught.value.step is not None
    vector.revive(caught.value)
    assert vector._workers[1].pid != before  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    vector.send_resets({1: 4})
    assert list(vector.receive_resets()) == [1]
    steps(vector, 4)
    vector.close()


def test_a_reset_that_is_lost_leaves_the_observations_of_the_others():
    vector = make_vector(Loaded, OPTIONS, 2)
    os.kill(vector._workers[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
    vector.send_resets({0: 1, 1: 2})
    with pytest.raises(Lost) as caught:
        vector.receive_resets()
    assert caught.value.indices == [0] and list(caught.value.observations) == [1]
    vector.revive(caught.value)
    assert vector.reset(0, 1) == 1.0
    vector.close()


def test_a_worker_that_is_lost_again_and_again_is_given_up():
    vector = make_vector(Dying, OPTIONS, 1)

    def lose() -> Lost:
        vector.reset(0, 0)
        with pytest.raises(Lost) as caught:
            steps(vector, 3)
        return caught.value

    for _ in range(RESTARTS):
        vector.revive(lose())
    with pytest.raises(UserError, match=rf"(?s)environment 0 was lost {RESTARTS + 1} times, and no .* last words"):
        vector.revive(lose())
    vector.close()


def test_an_episode_that_came_to_its_end_makes_up_for_losses():
    vector = make_vector("toy/reach", EnvironmentConfig(episode_decisions=2), 1)
    for _ in range(RESTARTS + 2):
        vector.reset(0, 0)
        os.kill(vector._workers[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.raises(Lost) as caught:
            steps(vector, 1)
        vector.revive(caught.value)
        vector.reset(0, 0)
        steps(vector, 2)
    vector.close()


def test_a_run_that_is_to_stop_waits_less_long(monkeypatch):
    monkeypatch.setattr(worker, "STOPPING_PATIENCE", 0.1)
    vector = make_vector(Hanging, EnvironmentConfig(patience=0.0), 1)
    vector.reset(0, 1)
    vector.heed(lambda: True)
    with pytest.raises(Lost, match="gave no answer"):
        steps(vector, 3)
    vector.close()


def test_patience_is_a_time():
    with pytest.raises(UserError, match=r"environment.patience must be seconds, .* got -1"):
        make_vector("toy/reach", EnvironmentConfig(patience=-1.0), 1)


SCRIPT = """
import gymnasium, numpy as np, sys, time
from ubp2.config.schema import EnvironmentConfig
from tests.envs.probes import RewardOfAction
from ubp2.envs.workers import make_vector
class Mine(RewardOfAction): pass
vector = make_vector(Mine, EnvironmentConfig(), 1)  # no guard of __main__
vector.reset(0, 0)
print(vector._workers[0].pid, flush=True)
time.sleep(60)
"""


def test_workers_end_with_a_killed_parent():
    from tests.training.helpers import environment  # loads jax, which workers that import this module must not have

    parent = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, env=environment())
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: gone(child))


def test_misuse():
    vector = make_vector("toy/reach", OPTIONS, 1)
    with pytest.raises(RuntimeError, match="without send"):
        vector.receive()
    vector.reset(0, 0)
    with pytest.raises(ValueError, match=r"expected actions of shape \(1, 2\)"):
        vector.send(np.zeros(2))
    vector.send(np.zeros((1, 2)))
    with pytest.raises(RuntimeError, match="between send"):
        vector.reset(0, 0)
    vector.close()
    with pytest.raises(UserError, match="pass the function itself"):
        make_vector(probes.ConstantReward(), OPTIONS, 1)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="at least one environment"):
        make_vector("toy/reach", OPTIONS, 0)


def test_a_function_that_cannot_travel():
    import threading

    lock = threading.Lock()
    with pytest.raises(UserError, match="cannot be sent to a worker process"):
        make_vector(lambda: lock, OPTIONS, 1)  # type: ignore[arg-type, return-value]


class Sociable(probes.RewardOfAction):
    """Resets once three have begun to, and observes the seed."""

    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        (self.folder / str(seed)).touch()
        while seed and len(list(self.folder.glob("?0"))) < 3:
            time.sleep(0.01)
        return np.array([seed], np.float32), {}


def test_resets_run_side_by_side(tmp_path):
    """Three resets that wait for each other come to an end, and each environment gets its own seed."""
    vector = make_vector(partial(Sociable, str(tmp_path)), EnvironmentConfig(patience=60.0), 4)
    vector.send_resets({3: 30, 0: 10, 2: 20})
    with pytest.raises(RuntimeError, match="between send"):
        vector.send(np.zeros((4, 1)))
    assert {index: float(obs[0]) for index, obs in vector.receive_resets().items()} == {3: 30.0, 0: 10.0, 2: 20.0}
    assert vector.receive_resets() == {}
    vector.close()
