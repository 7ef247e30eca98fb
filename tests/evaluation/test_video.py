"""Clips have the right size, count and format, and appear whole or not at all."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest
from PIL import Image

from tests.evaluation.disk import disk_of_ffmpeg, needs_dev_full
from ubp2.errors import UserError
from ubp2.evaluation import video


def clip(height: int = 32, width: int = 48, frames: int = 10) -> np.ndarray:
    ramp = np.linspace(0, 255, frames).astype(np.uint8)
    return np.broadcast_to(ramp[:, None, None, None], (frames, height, width, 3)).copy()


def test_mp4_is_h264_yuv420p_with_the_index_in_front(tmp_path):
    path = video.write_video(tmp_path / "new" / "clip.mp4", clip(), fps=20)
    told = subprocess.run([video.find_ffmpeg(), "-i", str(path)], capture_output=True, text=True, check=False).stderr
    assert re.search(r"Video: h264.*yuv420p.*48x32.*20 fps", told)
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")
    assert [file.name for file in path.parent.iterdir()] == ["clip.mp4"]


def test_webm_is_vp9(tmp_path):
    path = video.write_video(tmp_path / "clip.webm", clip(), fps=20)
    told = subprocess.run([video.find_ffmpeg(), "-i", str(path)], capture_output=True, text=True, check=False).stderr
    assert re.search(r"Input #0, matroska,webm", told) and re.search(r"Video: vp9.*yuv420p.*48x32.*20 fps", told)


@pytest.mark.parametrize("kind", ["mp4", "webm"])
def test_odd_sizes_are_padded_and_frames_survive(tmp_path, kind):
    path = video.write_video(tmp_path / f"odd.{kind}", clip(33, 47), fps=10)
    command = [video.find_ffmpeg(), "-loglevel", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    frames = np.frombuffer(raw, np.uint8).reshape(-1, 34, 48, 3)
    assert len(frames) == 10
    assert np.abs(frames[:, 16, 20].astype(int) - clip()[:, 0, 0].astype(int)).max() < 12


def test_gif(tmp_path):
    path = video.write_gif(tmp_path / "clip.gif", clip(), fps=20)
    with Image.open(path) as image:
        assert (image.size, getattr(image, "n_frames", 1), image.info["duration"]) == ((48, 32), 10, 50)


@pytest.mark.parametrize(
    "frames", [np.zeros((3, 4, 4)), np.zeros((0, 4, 4, 3), np.uint8), np.zeros((4, 4, 3), np.uint8)]
)
def test_bad_frames(tmp_path, frames):
    for write in (video.write_video, video.write_gif):
        with pytest.raises(UserError, match="expected frames"):
            write(tmp_path / "x", frames, 10)


def test_bad_rate(tmp_path):
    with pytest.raises(UserError, match="positive number of frames"):
        video.write_video(tmp_path / "x.mp4", clip(), 0)


def test_no_ffmpeg(monkeypatch, tmp_path):
    monkeypatch.delenv("FFMPEG", raising=False)
    monkeypatch.setattr(video.shutil, "which", lambda name: None)
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with pytest.raises(UserError, match="pip install imageio-ffmpeg"):
        video.write_video(tmp_path / "x.mp4", clip(), 10)
    monkeypatch.setenv("FFMPEG", "/no/such/ffmpeg")
    with pytest.raises(UserError, match="FFMPEG is set to /no/such/ffmpeg"):
        video.find_ffmpeg()


@needs_dev_full
def test_a_full_disk(monkeypatch, tmp_path):
    disk_of_ffmpeg(tmp_path, monkeypatch).touch()
    for kind in ("mp4", "webm"):
        with pytest.raises(UserError, match="the disk is full; free some space"):
            video.write_video(tmp_path / f"x.{kind}", clip(), 10)


def test_a_failing_ffmpeg_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("FFMPEG", "false")
    with pytest.raises(UserError, match="exit code 1"):
        video.write_video(tmp_path / "x.mp4", clip(), 10)
    assert list(tmp_path.iterdir()) == []
