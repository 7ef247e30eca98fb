"""Clips: H.264 that browsers play, WebM for those built without it, and GIF for pages that show nothing else."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import subprocess
from pathlib import Path

import numpy as np

from ubp2.errors import UserError

__all__ = ["find_ffmpeg", "write_gif", "write_video"]

# fmt: off
_H264 = (
    "-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p", "-movflags", "+faststart",
    "-f", "mp4",
)
_VP9 = (
    "-c:v", "libvpx-vp9", "-b:v", "0", "-crf", "30", "-deadline", "realtime", "-cpu-used", "6", "-row-mt", "1",
    "-pix_fmt", "yuv420p", "-f", "webm",
)
# fmt: on


def write_video(path: str | Path, frames: np.ndarray, fps: float) -> Path:
    """Write frames [T, h, w, 3] uint8: VP9 where the name ends in .webm, else an MP4 that plays before it is loaded.

    Odd sizes are padded by a row. The file appears under its name only when it is complete.
    """
    path, frames = Path(path), _check(frames, fps)
    height, width = frames.shape[1:3]
    frames = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    size = f"{frames.shape[2]}x{frames.shape[1]}"
    codec, program = _VP9 if path.suffix == ".webm" else _H264, find_ffmpeg()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial(path)
    # fmt: off
    command = [
        program, "-loglevel", "error", "-y",
        "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"{fps:g}", "-i", "-",
        "-an", *codec, str(partial),
    ]
    # fmt: on
    try:
        done = subprocess.run(command, input=np.ascontiguousarray(frames).data, capture_output=True, check=False)
        if done.returncode != 0:
            told = done.stderr.decode(errors="replace").strip()
            if os.strerror(errno.ENOSPC) in told:
                raise UserError(f"cannot write {path}: the disk is full; free some space")
            raise UserError(
                f"{program} could not write {path} (exit code {done.returncode}): {told[-500:]}; "
                f"an ffmpeg with {codec[1]} is needed"
            )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def write_gif(path: str | Path, frames: np.ndarray, fps: float) -> Path:
    """Write frames [T, h, w, 3] uint8 as a GIF that repeats for ever."""
    from PIL import Image

    path, frames = Path(path), _check(frames, fps)
    # One palette for all frames, so that still parts do not flicker.
    strip = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 16)]))
    palette = strip.quantize(256, dither=Image.Dither.NONE)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial(path)
    try:
        # The format counts in hundredths of a second, and viewers slow anything below two down.
        images[0].save(
            partial,
            format="GIF",
            save_all=True,
            append_images=images[1:],
            duration=max(20, round(100 / fps) * 10),
            loop=0,
        )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def find_ffmpeg() -> str:
    """Return the ffmpeg to call: $FFMPEG, the one on PATH, or the one that imageio-ffmpeg brings."""
    chosen = os.environ.get("FFMPEG")
    if chosen:
        found = shutil.which(chosen)
        if found is None:
            raise UserError(f"FFMPEG is set to {chosen}, which is no program; correct or unset it")
        return found
    found = shutil.which("ffmpeg")
    if found is not None:
        return found
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise UserError(
            "no ffmpeg to write a video with; run `pip install imageio-ffmpeg` or `apt-get install ffmpeg`, "
            "or set FFMPEG to its path"
        ) from None


def _check(frames: np.ndarray, fps: float) -> np.ndarray:
    frames = np.asarray(frames)
    if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8 or 0 in frames.shape:
        raise UserError(f"expected frames [T, h, w, 3] of uint8, got shape {frames.shape} of {frames.dtype}")
    if not fps > 0:
        raise UserError(f"expected a positive number of frames a second, got {fps}")
    return frames


def _partial(path: Path) -> Path:
    """A name of its own beside the target: a rename is atomic only within one file system."""
    return path.with_name(f".{path.stem}-{secrets.token_hex(4)}.part")
