"""What stops a clip, and what stops more than a clip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.envs import probes
from ubp2.config.schema import EnvironmentConfig
from ubp2.envs.base import Faulty, Lost, VectorEnv
from ubp2.envs.workers import make_vector
from ubp2.errors import UserError
from ubp2.evaluation.rollout import NoClip, filmed

INLINE = EnvironmentConfig(in_process=True, episode_decisions=4)


class Unseen(probes.RewardOfAction):
    """Cannot be rendered."""

    def render(self) -> np.ndarray:
        raise RuntimeError("no display")


def film(envs: VectorEnv, path: Path) -> Any:
    return filmed(lambda obs, *_: np.zeros((len(obs), 1)), envs, [1], [path])


def test_a_clip_that_cannot_be_made_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoClip, match="RuntimeError: no display"):
        film(make_vector(Unseen, INLINE, 1), tmp_path / "clip.mp4")

    def no_ffmpeg() -> str:
        raise UserError("no ffmpeg")

    monkeypatch.setattr("ubp2.evaluation.video.find_ffmpeg", no_ffmpeg)
    with pytest.raises(NoClip, match="no ffmpeg"):
        film(make_vector(probes.RewardOfAction, INLINE, 1), tmp_path / "clip.mp4")


def test_an_environment_that_raises_or_dies_is_no_missing_clip(tmp_path: Path) -> None:
    with pytest.raises(Faulty, match="nan at decision 2") as faulty:
        film(make_vector(probes.NanReward, INLINE, 1), tmp_path / "clip.mp4")
    assert not isinstance(faulty.value, NoClip)
    envs: Any = make_vector(probes.RewardOfAction, INLINE, 1)

    def die(index: int) -> np.ndarray:
        raise Lost({index: "it hung"})

    envs.render = die
    with pytest.raises(Lost, match="it hung"):
        film(envs, tmp_path / "clip.mp4")
