"""The adapter maps, repeats, counts and refuses."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from tests.envs import probes
from ubp2.config.schema import EnvironmentConfig
from ubp2.envs.adapter import Adapter, adapt
from ubp2.errors import UserError

OPTIONS = EnvironmentConfig()


@pytest.mark.parametrize(
    ("action", "command"),
    [
        ([-1.0, -1.0], [0.0, -4.0]),
        ([0.0, 0.0], [5.0, -3.0]),
        ([1.0, 1.0], [10.0, -2.0]),
        ([0.5, -0.5], [7.5, -3.5]),
        ([3.0, -9.0], [10.0, -4.0]),
    ],
)
def test_actions_are_mapped_to_the_bounds(action, command):
    env = Adapter(probes.BoundedAction(), "probe")
    env.reset(0)
    np.testing.assert_allclose(env.step(np.array(action, np.float32)).obs[:2], command)


def test_unit_bounds_keep_every_bit():
    seen = []

    class Record(probes.ConstantReward):
        def step(self, action):
            seen.append(action.copy())
            return super().step(action)

    env = Adapter(Record(), "probe", has_success=False)
    env.reset(0)
    action = np.array([0.1234567], np.float32)
    env.step(action)
    np.testing.assert_array_equal(seen[0], action)
    assert seen[0].dtype == np.float32


def test_observation_is_flat_float32():
    env = Adapter(probes.BoundedAction(), "probe")
    assert env.spec.obs_dim == 4 and env.spec.action_dim == 2
    obs = env.reset(0)
    assert obs.shape == (4,) and obs.dtype == np.float32


def test_repeat_adds_rewards_and_stops_at_the_end():
    env = Adapter(probes.Terminating(), "probe", action_repeat=2)
    env.reset(0)
    first, second = env.step(np.zeros(1)), env.step(np.zeros(1))
    assert (first.true_reward, first.terminated, first.success) == (2.0, False, False)
    assert (second.true_reward, second.terminated, second.truncated, second.success) == (1.0, True, False, True)


def test_success_within_the_repeat_counts():
    class Flash(probes.ConstantReward):
        def step(self, action):
            self.steps += 1
            return self.state, 0.0, False, False, {"success": self.steps % 2 == 1}

    env = Adapter(Flash(), "probe", action_repeat=2)
    env.reset(0)
    assert env.step(np.zeros(1)).success


def test_the_clock_truncates_and_does_not_terminate():
    env = Adapter(probes.RewardOfAction(), "probe", episode_decisions=3)
    env.reset(0)
    ends = [(step.terminated, step.truncated) for step in (env.step(np.zeros(1)) for _ in range(3))]
    assert ends == [(False, False), (False, False), (False, True)]


def test_an_episode_that_is_over_stands_still():
    env = Adapter(probes.Terminating(), "probe", action_repeat=3)
    env.reset(0)
    last, after = env.step(np.zeros(1)), env.step(np.ones(1))
    assert last.terminated and after.terminated and after.true_reward == 0.0
    np.testing.assert_array_equal(last.obs, after.obs)
    env.reset(0)
    assert env.step(np.zeros(1)).true_reward == 3.0


def test_observations_are_not_views_of_the_environment():
    class Reuse(probes.RewardOfAction):
        def step(self, action):
            self.state += 1
            return self.state, 0.0, False, False, {}

    env = Adapter(Reuse(), "probe")
    first = env.reset(0)
    kept = first.copy()
    env.step(np.zeros(1))
    np.testing.assert_array_equal(first, kept)


def test_success_is_detected():
    assert not Adapter(probes.ConstantReward(), "probe").spec.has_success
    assert Adapter(probes.RewardOfAction(), "probe").spec.has_success
    assert Adapter(probes.Terminating(), "probe").spec.has_success


def test_equal_seeds_give_equal_starts():
    env = adapt(probes.RewardOfAction, OPTIONS)
    first = env.reset(3)
    assert env.reset(4) != first
    assert env.reset(3) == first


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (probes.DiscreteAction, ["expected a continuous Box action", "Discrete(3)"]),
        (probes.DictObservation, ["expected a Box observation", "gymnasium.wrappers.FlattenObservation"]),
        (probes.UnboundedAction, ["finite action bounds", "a finite low and high"]),
        (probes.HardlyBoundedAction, ["finite action bounds", "a finite low and high"]),
        (probes.NoInfo, ["the info that step returns must be a dict", "got nothing"]),
        (probes.OldApi, ["(observation, reward, terminated, truncated, info)", "a tuple of 4", "old gym API"]),
        (probes.WrongShape, ["announces shape (1,)", "shape (2,)", "decision 1"]),
        (probes.NanObservation, ["nan at index 0 of 1", "decision 2"]),
        (probes.NanReward, ["one finite number", "nan", "decision 2"]),
    ],
)
def test_broken_environments_are_named(probe, words):
    with pytest.raises(UserError) as caught:
        env = Adapter(probe(), "probe", has_success=False)
        env.reset(0)
        for _ in range(3):
            env.step(np.zeros(1))
    for word in ["probe:", *words]:
        assert word in str(caught.value)


def test_an_old_environment_within_a_wrapper_is_named_too() -> None:
    """Gymnasium's TimeLimit unpacks what step returns, and hands options to reset, before the adapter sees either."""
    with pytest.raises(
        UserError, match=r"truncated, info\) as in Gymnasium, .*got 4\); an environment of the old gym API"
    ):
        adapt(lambda: gymnasium.wrappers.TimeLimit(probes.OldApi(), 5), OPTIONS)
    with pytest.raises(UserError, match=r"reset must take seed and options, got reset\(seed\); write it as"):
        adapt(lambda: gymnasium.wrappers.TimeLimit(probes.OldReset(), 5), OPTIONS)


def test_a_mistake_within_an_environment_is_not_taken_for_an_old_one() -> None:
    with pytest.raises(ValueError, match="expected 5, got 2"):
        adapt(lambda: gymnasium.wrappers.TimeLimit(probes.Unpacks(), 5), OPTIONS)


@pytest.mark.parametrize("action", [[np.nan], [0.0, 0.0], 0.0])
def test_bad_actions_are_refused(action):
    env = adapt(probes.RewardOfAction, OPTIONS)
    env.reset(0)
    with pytest.raises(UserError, match=r"1 finite numbers in \[-1, 1\]"):
        env.step(np.array(action))


def test_step_needs_a_reset():
    with pytest.raises(UserError, match="call reset"):
        adapt(probes.RewardOfAction, OPTIONS).step(np.zeros(1))


def test_a_function_that_returns_something_else():
    with pytest.raises(UserError, match=r"returned builtins\.int; import gymnasium \(not gym\)"):
        adapt(lambda: 3, OPTIONS)  # type: ignore[arg-type]


def test_an_own_time_limit_is_kept():
    def limited():
        return gymnasium.make("Pendulum-v1", max_episode_steps=20)

    assert adapt(limited, OPTIONS).spec.episode_decisions == 20
    assert adapt(limited, EnvironmentConfig(action_repeat=2)).spec.episode_decisions == 10
    with pytest.raises(UserError, match="own limit of 20 steps"):
        adapt(limited, EnvironmentConfig(episode_decisions=50))


def test_a_time_limit_around_an_environment_that_is_not_registered_counts():
    def limited():
        return gymnasium.wrappers.OrderEnforcing(gymnasium.wrappers.TimeLimit(probes.RewardOfAction(), 20))

    assert adapt(limited, OPTIONS).spec.episode_decisions == 20


@pytest.mark.parametrize("options", [EnvironmentConfig(action_repeat=0), EnvironmentConfig(episode_decisions=0)])
def test_a_clock_that_cannot_run(options):
    with pytest.raises(UserError, match="must be at least 1, got 0"):
        adapt(probes.RewardOfAction, options)


def test_render():
    env = adapt(probes.RewardOfAction, OPTIONS)
    env.reset(0)
    assert env.render().shape == (16, 16, 3)


class Filmed(probes.RewardOfAction):
    cameras = ("near", "far")

    def render(self, camera=None, size=None):  # type: ignore[override]
        return np.full((size or 16, size or 16, 3), 200 if camera == "far" else 100, np.uint8)


class Attributes(probes.RewardOfAction):
    cameras = ("near", "far")  # but its render takes none
    lenses = 2


@pytest.mark.parametrize("build", [Filmed, lambda: gymnasium.wrappers.TimeLimit(Filmed(), 9)], ids=["bare", "wrapped"])
def test_cameras(build):
    env = adapt(build, OPTIONS)
    env.reset(0)
    assert env.cameras == ("near", "far")
    assert env.render().shape == (16, 16, 3) and env.render(size=32).shape == (32, 32, 3)
    assert env.render("near", 32).max() == 100 and env.render("far").max() == 200
    with pytest.raises(UserError, match="unknown camera of custom 'fra'. Did you mean far"):
        env.render("fra")


def test_without_cameras_there_is_one_view():
    for build in (probes.RewardOfAction, Attributes):
        env = adapt(build, OPTIONS)
        env.reset(0)
        assert env.cameras == () and env.render(None, 300).shape == (16, 16, 3)


def test_render_without_an_image():
    class Blind(probes.RewardOfAction):
        def render(self):  # type: ignore[override]
            return None

    class Broken(probes.RewardOfAction):
        def render(self):
            raise OSError("no display")

    with pytest.raises(UserError, match="got nothing; build the environment with render_mode='rgb_array'"):
        adapt(Blind, OPTIONS).render()
    with pytest.raises(UserError, match="custom cannot be rendered: OSError: no display"):
        adapt(Broken, OPTIONS).render()


class Cropped(gymnasium.Wrapper):
    """Shows a corner of the frame, as an overlay or a crop of somebody's own would change it."""

    def render(self):
        return np.asarray(self.env.render())[:8, :8]


def test_what_a_wrapper_makes_of_the_frame_is_seen():
    env = adapt(Cropped(probes.RewardOfAction()), OPTIONS)
    env.reset(0)
    assert env.render().shape == env.render(None, 64).shape == (8, 8, 3)
