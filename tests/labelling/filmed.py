"""Recorded episodes to make clips of, and environments that make that hard."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from tests.envs import probes
from ubp2.config.schema import Config, EnvironmentConfig
from ubp2.envs.adapter import adapt
from ubp2.envs.base import Env
from ubp2.evaluation.video import find_ffmpeg
from ubp2.labelling.clips import Clips
from ubp2.storage.archive import EpisodeArchive
from ubp2.types import Episode

LONG = 60.0  # seconds that a clip may take on a busy machine


EPISODE = 20


class Filmed(probes.BoundedAction):
    """A square that moves with the actions, seen by two cameras, one of them with a name that is no file's."""

    cameras = ("near", "../far away")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.place = 0, self.np_random.uniform(10, 20, 2)
        return np.array([self.place, [0.0, 0.0]]), {}

    def step(self, action):
        self.steps += 1
        self.place = np.clip(self.place + (action - [5.0, -3.0]) / [5.0, 1.0], 2, 40)
        return np.array([self.place, [self.steps, 0.0]]), 0.0, False, False, {}

    def render(self, camera=None, size=None):  # type: ignore[override]
        frame = np.full((47, 63, 3), 230 if camera == "near" else 30, np.uint8)
        row, column = self.place.astype(int)
        frame[row - 2 : row + 6, column - 2 : column + 6] = (200, 40, 40)
        return frame


class Blind(Filmed):
    cameras = ()

    def render(self):  # type: ignore[override]
        raise OSError("no display")


class Fickle(Filmed):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=int.from_bytes(os.urandom(4)))


def slow(folder: Path, build=Filmed, frame: float = 0.05):
    """`build`, rendering slowly; the file `folder`/rendering is there from its first frame on."""

    class Slow(build):
        def render(self, camera=None, size=None):  # type: ignore[override]
            (folder / "rendering").touch()
            time.sleep(frame)
            return super().render(camera, size)

    return Slow


def record(path: Path, env: Env, episodes: int = 3, length: int = EPISODE) -> list[Episode]:
    """An archive of episodes in which everything moves."""
    random = np.random.default_rng(1)
    made = []
    with EpisodeArchive(path) as archive:
        for index in range(len(archive), len(archive) + episodes):
            action = random.uniform(-1, 1, (length, env.spec.action_dim)).astype(np.float32)
            obs, steps = env.reset(70 + index), [env.step(one) for one in action]
            made.append(
                Episode(
                    index=index,
                    seed=70 + index,
                    obs=np.stack([obs, *(step.obs for step in steps)]),
                    action=action,
                    true_reward=np.array([step.true_reward for step in steps]),
                    success=np.array([step.success for step in steps]),
                    terminated=False,
                )
            )
            archive.append(made[-1])
    return made


def open_clips(archive: Path, build=Filmed, **options) -> Clips:
    return Clips(archive, Config(), archive.parent / "clips", env=build, **options)


def probe(path: Path) -> str:
    """What ffmpeg says of a file that it has decoded to the end without a complaint."""
    command = [find_ffmpeg(), "-hide_banner", "-xerror", "-i", str(path), "-f", "null", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr


def decode(path: Path, height: int, width: int) -> np.ndarray:
    command = [find_ffmpeg(), "-loglevel", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def check_files(clips: Clips, clip: str, frames: int, height: int, width: int) -> dict[str, np.ndarray]:
    """Both files of each camera are valid; return what the MP4s show."""
    state = clips.state(clip)
    assert state.ready and state.frames == frames and state.failed is None
    shown = {}
    for camera in state.cameras:
        assert re.fullmatch(r"[A-Za-z0-9_-]+", camera)
        mp4, webm = clips.path(clip, camera, "mp4"), clips.path(clip, camera, "webm")
        assert mp4 is not None and webm is not None
        assert re.search(rf"Video: h264.*yuv420p.*{width}x{height}.*{state.fps:g} fps", probe(mp4))
        assert re.search(rf"Video: vp9.*yuv420p.*{width}x{height}.*{state.fps:g} fps", probe(webm))
        assert mp4.read_bytes().index(b"moov") < mp4.read_bytes().index(b"mdat")
        shown[camera] = decode(mp4, height, width)
        assert len(shown[camera]) == len(decode(webm, height, width)) == frames
    return shown


@pytest.fixture
def archive(tmp_path) -> Path:
    record(tmp_path / "episodes.sqlite", adapt(Filmed, EnvironmentConfig()), episodes=9)
    return tmp_path / "episodes.sqlite"
