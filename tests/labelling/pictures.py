"""Synthetic clips for the page: a disc that moves, the number of the frame as a bar, another tint for each camera."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from ubp2.evaluation.video import find_ffmpeg

__all__ = ["CAMERAS", "FPS", "FRAMES", "write_clips"]

FRAMES, FPS, SIZE = 30, 15, (240, 180)
CAMERAS = {"corner": (44, 62, 80), "topview": (58, 70, 40)}


def write_clips(folder: Path, count: int = 6) -> None:
    """Write `count` clips as FOLDER/N-CAMERA.webm and .mp4; what is there stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        for camera, tint in CAMERAS.items():
            if not (folder / f"{number}-{camera}.mp4").exists():
                _write(folder / f"{number}-{camera}", [_draw(number, frame, tint) for frame in range(FRAMES)])


def _draw(number: int, frame: int, tint: tuple[int, int, int]) -> bytes:
    width, height = SIZE
    image = Image.new("RGB", SIZE, tint)
    draw = ImageDraw.Draw(image)
    part = frame / (FRAMES - 1)
    x = 30 + (width - 60) * part * (0.4 + 0.1 * number)
    y = height / 2 - 40 * np.sin(part * np.pi * (1 + number % 3))
    draw.rectangle((width - 34, height / 2 - 18, width - 14, height / 2 + 18), outline=(240, 220, 120), width=3)
    draw.ellipse((x - 14, y - 14, x + 14, y + 14), fill=(230, 120, 60 + 25 * number))
    draw.rectangle((0, height - 8, int(width * part), height), fill=(255, 255, 255))
    return image.tobytes()


def _write(stem: Path, frames: list[bytes]) -> None:
    # fmt: off
    source = [find_ffmpeg(), "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24",
              "-s", "{}x{}".format(*SIZE), "-r", str(FPS), "-i", "-", "-an", "-pix_fmt", "yuv420p"]
    webm = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "0", "-crf", "32", "-g", "15"]
    mp4 = ["-c:v", "libx264", "-preset", "ultrafast", "-g", "15", "-movflags", "+faststart"]
    # fmt: on
    for kind, options in (("webm", webm), ("mp4", mp4)):
        subprocess.run([*source, *options, f"{stem}.{kind}"], input=b"".join(frames), check=True)
