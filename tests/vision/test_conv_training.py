"""The encoder that is trained on an environment's own frames."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box

from ubp2.config.schema import EnvironmentConfig, VisualConfig
from ubp2.envs.base import VectorEnv
from ubp2.envs.workers import make_vector
from ubp2.errors import UserError
from ubp2.terminal.cli import main
from ubp2.vision import conv, conv_training
from ubp2.vision.watching import HOLD, Film, watch

PIXELS = 42


class Block(gymnasium.Env):
    """A bright block that actions push over a dark frame, and that slides on."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (Gymnasium's own attribute)
    observation_space, action_space = Box(-1, 1, (2,), np.float32), Box(-1, 1, (2,), np.float32)
    render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.place, self.speed = np.random.default_rng(seed).uniform(-1, 1, 2), np.zeros(2)
        return self.place.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.speed = 0.7 * self.speed + 0.2 * action
        self.place = np.clip(self.place + self.speed, -1, 1)
        return self.place.astype(np.float32), 0.0, False, False, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        frame = np.full((PIXELS, PIXELS, 3), 30, np.uint8)
        row, column = np.round((self.place + 1) / 2 * (PIXELS - 14)).astype(int)
        frame[row : row + 14, column : column + 14] = (250, 200, 100)
        return frame


@pytest.fixture(scope="module")
def envs() -> Iterator[VectorEnv]:
    options = EnvironmentConfig(in_process=True, episode_decisions=50)
    made = make_vector(Block, options, 2, VisualConfig(pixels=PIXELS))
    yield made
    made.close()


@pytest.fixture(scope="module")
def film(envs: VectorEnv) -> Film:
    return watch(envs, 400, seed=1)


def test_a_film_is_a_function_of_its_seed(envs: VectorEnv, film: Film) -> None:
    again, other = watch(envs, 400, seed=1), watch(envs, 400, seed=2)
    for one, two in zip(film, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(film.frames, other.frames)


def test_a_film_is_episode_after_episode(film: Film) -> None:
    assert film.frames.shape == (400, PIXELS, PIXELS, 3) and film.frames.dtype == np.uint8
    assert film.actions.shape == (400, 2) and np.abs(film.actions).max() <= 1
    np.testing.assert_array_equal(np.flatnonzero(film.ends), np.arange(49, 400, 50))
    threes = film.threes()
    assert len(threes) == 8 * 48 and not film.ends[threes - 1].any() and not film.ends[threes].any()
    changes = np.flatnonzero((np.diff(film.actions, axis=0) != 0).any(1))
    assert 1 < np.diff(changes).max() <= HOLD


def test_a_frame_stands_before_its_action(envs: VectorEnv, film: Film) -> None:
    """The first episode of the film, made again by hand."""
    seed = int(np.random.default_rng(1).integers(2**31))
    frame = envs.reset(0, seed)
    for t in range(5):
        np.testing.assert_array_equal(frame.reshape(PIXELS, PIXELS, 3), film.frames[t])
        envs.send(np.stack([film.actions[t]] * 2), [0])
        frame = envs.receive().obs[0]


@pytest.mark.slow
def test_it_learns_to_draw_and_is_a_function_of_its_seed(film: Film) -> None:
    few = conv_training.fit(film, updates=3, seed=5)
    many = conv_training.fit(film, updates=60, seed=5)
    assert many.drawn > few.drawn + 0.1
    codes = np.asarray(many.encoder(jnp.asarray(film.frames[:384])))
    np.testing.assert_allclose(codes.mean(0), 0.0, atol=0.01)
    assert codes.std(0).max() == pytest.approx(1.0, abs=0.01)
    assert conv.digest(conv_training.fit(film, updates=3, seed=5).encoder) == conv.digest(few.encoder)
    assert conv.digest(conv_training.fit(film, updates=3, seed=6).encoder) != conv.digest(few.encoder)


def test_the_command_writes_what_a_run_takes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "encoder.npz"
    words = f"encoder train --env toy-visual/reach --frames 120 --updates 4 --pixels {PIXELS} --workers 1 --out {out}"
    assert main([*words.split(), "--json"]) == 0
    printed = capfd.readouterr()
    data = json.loads(printed.out)
    saved = conv.load(out)
    assert saved.digest == data["digest"] and saved.encoder.pixels == PIXELS
    assert saved.about["env"] == data["env"] == "toy-visual/reach" and data["frames"] == 150
    assert "120 frames of random actions in toy-visual/reach" in printed.err and "update 2 of 4" in printed.err
    assert main([*words.split(), "--quiet"]) == 0
    printed = capfd.readouterr()
    assert not printed.err and f"--visual.encoder conv --visual.weights {out} --visual.pixels {PIXELS}" in printed.out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "ubp2 encoder needs what to do, before any option: train"),
        ("tarin", "unknown work on encoders 'tarin'. Did you mean train? Known: train"),
        ("train --env toy/reach --out e.npz", "and toy/reach has none; did you mean toy-visual/reach?"),
        ("train --env toy-visual/reach --out e.npz --frames 0", "--frames must be at least 120, got 0"),
        ("train --env toy-visual/reach --out e.npz --pixels 20", "--pixels must be at least 32, got 20"),
        ("train --env walker-walk --out e.npz", "walker-walk has none; name one such as dmc-visual/walker-walk"),
        ("train --env toy-visual/reach --out .", "--out is a file, and . is a folder"),
        ("train --env toy-visual/reach --out e.npz --seed -1", "--seed must not be negative, got -1"),
    ],
)
def test_wrong_options_give_a_sentence(line: str, sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["encoder", *line.split()]) == 2
    assert sentence in capfd.readouterr().err


def test_too_little_to_learn_from(envs: VectorEnv, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least 120 frames to learn from, got 100"):
        watch(envs, 100)
    with pytest.raises(UserError, match="at least one update, got 0"):
        conv_training.train(envs, tmp_path / "e.npz", updates=0)


class Brief(Block):
    """Ends after `length` decisions."""

    length = 3

    def reset(self, **given: Any) -> tuple[np.ndarray, dict]:
        self.steps = 0
        return super().reset(**given)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, _, truncated, info = super().step(action)
        self.steps += 1
        return obs, reward, self.steps == self.length, truncated, info


class Briefest(Brief):
    length = 1


def test_episodes_that_end_early_give_as_many_frames() -> None:
    made = [
        make_vector(kind, EnvironmentConfig(in_process=True), 2, VisualConfig(pixels=8)) for kind in (Brief, Briefest)
    ]
    film = watch(made[0], 150)
    assert 150 <= len(film.frames) < 156 and len(film.threes()) == len(film.frames) / 3
    with pytest.raises(UserError, match=r"over too soon .* of 120 frames only 0 have one before and one after"):
        watch(made[1], 120)
