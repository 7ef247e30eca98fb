"""Frames become observations: the last ones, encoded together, the same whoever steps beside and whoever is lost."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from ubp2.config.schema import EnvironmentConfig, VisualConfig
from ubp2.envs.base import Lost
from ubp2.envs.workers import Workers, make_vector
from ubp2.errors import UserError
from ubp2.vision.encoders import Encoder
from ubp2.vision.seeing import Seeing, Stack

PIXELS, FRAMES = 28, 3
VISUAL = VisualConfig(pixels=PIXELS)
INLINE = EnvironmentConfig(in_process=True)


def mean_colour(calls: list[int] | None = None) -> Encoder:
    """Two features that can be worked out by hand."""

    def encode(frames: np.ndarray) -> np.ndarray:
        assert frames.shape[1:] == (PIXELS, PIXELS, 3) and frames.dtype == np.uint8
        if calls is not None:
            calls.append(len(frames))
        return frames.mean(axis=(1, 2), dtype=np.float64)[:, :2].astype(np.float32)

    return Encoder("mean", 2, encode, "none")


def seen(frame: np.ndarray) -> np.ndarray:
    return mean_colour().encode(frame.reshape(1, PIXELS, PIXELS, 3))[0].astype(np.float16).astype(np.float32)


def test_an_observation_is_the_features_of_the_last_frames_oldest_first() -> None:
    calls: list[int] = []
    plain = make_vector("toy-visual/reach", INLINE, 2, VISUAL)
    envs = Seeing(make_vector("toy-visual/reach", INLINE, 2, VISUAL), mean_colour(calls), FRAMES)
    assert envs.spec == plain.spec._replace(obs_dim=FRAMES * 2, pixels=0)
    plain.send_resets({0: 1, 1: 2})
    frames = plain.receive_resets()
    first = [seen(frames[i]) for i in (0, 1)]
    envs.send_resets({0: 1, 1: 2})
    for i, obs in envs.receive_resets().items():
        np.testing.assert_array_equal(obs, np.concatenate([first[i]] * FRAMES))
    history = [[one] * FRAMES for one in first]
    for number in range(4):
        which = [1] if number == 2 else None  # one of them waits
        action = np.full((2, 2), 0.5)
        plain.send(action, which)
        envs.send(action, which)
        step, ours = plain.receive(), envs.receive()
        assert ours.obs.dtype == np.float32
        for i in which or (0, 1):
            history[i].append(seen(step.obs[i]))
            np.testing.assert_array_equal(ours.obs[i], np.concatenate(history[i][-FRAMES:]))
        np.testing.assert_array_equal(ours.true_reward[which or slice(None)], step.true_reward[which or slice(None)])
    assert calls == [2] * 5  # one call a step, and always of the same shape
    np.testing.assert_array_equal(envs.reset(0, 1), np.concatenate([first[0]] * FRAMES))  # nothing of before is left


def test_features_are_what_float16_can_hold() -> None:
    stack = Stack(Encoder("large", 2, lambda frames: np.array([[1e9, 1 / 3]], np.float32), ""), PIXELS, 1)
    obs = stack.start({0: np.zeros((PIXELS, PIXELS, 3), np.uint8)})[0]
    np.testing.assert_array_equal(obs, obs.astype(np.float16).astype(np.float32))
    assert obs[0] == np.finfo(np.float16).max and obs[1] == pytest.approx(1 / 3, rel=1e-3)


@pytest.mark.parametrize(("features", "words"), [([[np.nan, 0.0]], "NaN or infinity"), ([[1.0]], "got shape")])
def test_an_encoder_that_goes_wrong_is_named(features: list[list[float]], words: str) -> None:
    stack = Stack(Encoder("mine", 2, lambda frames: np.array(features, np.float32), ""), PIXELS, 1)
    with pytest.raises(UserError, match=f"the encoder mine must return.*{words}"):
        stack.start({0: np.zeros((PIXELS, PIXELS, 3), np.uint8)})
    with pytest.raises(UserError, match=r"visual.frames must be at least 1, got 0"):
        Stack(mean_colour(), PIXELS, 0)


def test_a_worker_that_dies_is_replaced_and_the_others_are_seen() -> None:
    workers = make_vector("toy-visual/reach", EnvironmentConfig(), 2, VISUAL)
    assert isinstance(workers, Workers)
    envs = Seeing(workers, mean_colour(), FRAMES)
    try:
        envs.send_resets({0: 1, 1: 2})
        envs.receive_resets()
        os.kill(workers._workers[0].pid, signal.SIGKILL)
        envs.send(np.zeros((2, 2)))
        with pytest.raises(Lost) as caught:
            envs.receive()
        assert caught.value.indices == [0] and caught.value.step is not None
        alone = Seeing(make_vector("toy-visual/reach", INLINE, 1, VISUAL), mean_colour(), FRAMES)
        alone.reset(0, 2)
        alone.send(np.zeros((1, 2)))
        np.testing.assert_array_equal(caught.value.step.obs[1], alone.receive().obs[0])
        envs.revive(caught.value)
        assert envs.reset(0, 5).shape == (FRAMES * 2,)
    finally:
        envs.close()


def test_kept_frames_are_those_of_the_episode_in_progress() -> None:
    envs = Seeing(make_vector("toy-visual/reach", INLINE, 2, VISUAL), mean_colour(), FRAMES, keep=True)
    plain = make_vector("toy-visual/reach", INLINE, 1, VISUAL)
    envs.reset(0, 1)
    envs.reset(1, 2)
    frames = [plain.reset(0, 2)]
    for _ in range(3):
        envs.send(np.ones((2, 2)))
        envs.receive()
        plain.send(np.ones((1, 2)))
        frames.append(plain.receive().obs[0])
    np.testing.assert_array_equal(envs.reel(1), np.stack(frames).reshape(4, PIXELS, PIXELS, 3))
    envs.reset(1, 3)
    kept = envs.reel(1)
    assert kept is not None and len(kept) == 1
    assert Seeing(plain, mean_colour(), FRAMES).reel(0) is None
