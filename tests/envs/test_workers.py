"""Workers behave as the environment in this process does, and never hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest

from ubp2.configs import EnvironmentConfig
from ubp2.envs import probes
from ubp2.envs.workers import Inline, Workers, make_vector
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
    os.kill(vector._workers[1]._process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    start = time.monotonic()
    with pytest.raises(UserError, match=r"worker 1 .* ended by signal 9 \(SIGKILL\)"):
        for _ in range(3):
            vector.send(np.zeros((2, 2)))
            vector.receive()
    assert time.monotonic() - start < 5
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


SCRIPT = """
import gymnasium, numpy as np, sys, time
from ubp2.configs import EnvironmentConfig
from ubp2.envs.probes import RewardOfAction
from ubp2.envs.workers import make_vector
class Mine(RewardOfAction): pass
vector = make_vector(Mine, EnvironmentConfig(), 1)  # no guard of __main__
vector.reset(0, 0)
print(vector._workers[0]._process.pid, flush=True)
time.sleep(60)
"""


def test_workers_end_with_a_killed_parent():
    parent = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        try:
            with open(f"/proc/{worker}/stat") as stat:
                if stat.read().split()[2] == "Z":
                    break
        except FileNotFoundError:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the worker outlived its parent")


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


class Slow(probes.RewardOfAction):
    """Takes its time to reset, and observes the seed."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        time.sleep(0.4)
        return np.array([seed], np.float32), {}


def test_resets_run_side_by_side():
    """Four resets of 0.4 s take about as long as one, and each environment gets its own seed."""
    vector = make_vector(Slow, OPTIONS, 4)
    start = time.monotonic()
    vector.send_resets({3: 30, 0: 10, 2: 20})
    with pytest.raises(RuntimeError, match="between send"):
        vector.send(np.zeros((4, 1)))
    assert {index: float(obs[0]) for index, obs in vector.receive_resets().items()} == {3: 30.0, 0: 10.0, 2: 20.0}
    assert time.monotonic() - start < 0.9
    assert vector.receive_resets() == {}
    vector.close()
