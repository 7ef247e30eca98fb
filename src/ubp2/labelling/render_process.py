"""The inside of the renderer: a process that simulates recorded episodes again and writes clips of them.

It holds one environment. A job is a block of JSON and two of numbers (actions, observations); the answer is a block of
JSON. The socket is the life line, as with environment workers, and an alarm ends a job that hangs when the parent is
gone. Nothing here may import jax.
"""

from __future__ import annotations

import errno
import json
import re
import signal
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ubp2.envs.base import Env
from ubp2.envs.worker_process import build, read_block, write_block
from ubp2.errors import UserError
from ubp2.evaluation.video import write_video
from ubp2.labelling.drawing import Scale, draw
from ubp2.vision import reels

__all__ = ["DRAWING", "KINDS", "VIEW", "Setup", "not_written", "serve", "simulate"]

KINDS = ("mp4", "webm")
VIEW, DRAWING = "view", "drawing"  # names for the one view of an environment without cameras, and for a drawing
_LARGEST = 640  # pixels a side; larger frames are made smaller
_FPS = 20.0  # where no environment says how fast time passes
_SHORTEST = 2.0  # seconds; a shorter clip is slowed down, because nobody can judge half a second
_SLOWEST = 0.2
# How far the observations of the second simulation may be from the recorded ones, relative to 1 and to their size:
# what cannot be seen. Another machine may round differently.
_TOLERANCE = 1e-2


class Setup(NamedTuple):
    """What all clips of a renderer share."""

    cameras: int  # how many at most, from the most telling on
    size: int  # pixels a side, where the environment lets one choose
    seconds: float  # limit of a clip
    camera: str | None = None  # the most telling one, if it is not the environment's first
    # Recorded observations are an encoder's: there is nothing to draw, and whether an episode comes out the same is
    # seen by its rewards [start + length, 1], which are sent in their place.
    features: bool = False


def serve(socket_fd: int) -> None:
    """Build the environment, say what it has, and make clips until the socket closes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # the parent's to handle: it closes the socket
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=socket_fd) as connection:
        try:
            setup, order = Setup(**json.loads(read_block(connection))), read_block(connection)
            env, why = _environment(order, setup)
            cameras = (_cameras(env, setup) or (VIEW,)) if env else (DRAWING,)
            write_block(connection, json.dumps({"cameras": _names(cameras)}).encode())
            while True:
                job = json.loads(read_block(connection))
                arrays = [np.frombuffer(read_block(connection), "<f4").reshape(job[name]) for name in ("action", "obs")]
                signal.setitimer(signal.ITIMER_REAL, 2 * setup.seconds)
                reply = _attempt(env, why, setup, job, *arrays)
                signal.setitimer(signal.ITIMER_REAL, 0)
                write_block(connection, json.dumps(reply).encode())
        except (EOFError, ConnectionError):
            return


def simulate(
    env: Env, seed: int, action: np.ndarray, start: int, cameras: Sequence[str | None], size: int | None
) -> tuple[dict[str | None, np.ndarray], np.ndarray, np.ndarray]:
    """Take the actions [start + length, A] again.

    Returns frames [length + 1, h, w, 3] by camera, observations [length + 1, D], and rewards [start + length, 1].
    """
    frames: dict[str | None, list[np.ndarray]] = {camera: [] for camera in cameras}
    obs, rewards = [env.reset(seed)], []
    for decision in range(len(action) + 1):
        if decision >= start:
            for camera in cameras:
                frames[camera].append(env.render(camera, size))
        if decision < len(action):
            outcome = env.step(action[decision])
            obs.append(outcome.obs)
            rewards.append([outcome.true_reward])
    return {camera: _stack(taken) for camera, taken in frames.items()}, np.stack(obs[start:]), np.array(rewards)


def _environment(order: bytes, setup: Setup) -> tuple[Env | None, str | None]:
    """The environment, or why there is none: then clips are drawings."""
    signal.setitimer(signal.ITIMER_REAL, 2 * setup.seconds)
    try:
        return (build(order), None) if order else (None, "the environment is not known here")
    except UserError as error:
        return None, str(error)
    except Exception as error:  # the user's own code may raise anything
        return None, f"the environment could not be built: {type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _attempt(
    env: Env | None, why: str | None, setup: Setup, job: dict[str, Any], action: np.ndarray, obs: np.ndarray
) -> dict[str, Any]:
    """Make one clip; errors of the disk and of ffmpeg are told, since neither another try nor a drawing helps."""
    try:
        shown, fps = dict[str, np.ndarray](), env.spec.fps if env else _FPS
        if job["kept"] is not None:
            frames, fps = reels.read(Path(job["kept"]), job["start"], job["length"])
            shown, why = {VIEW: frames}, None
        elif env is not None:
            shown, why = _look(env, setup, job, action, obs)
        if not shown and setup.features:
            return {"error": f"the clip cannot be shown: {why}"}
        if not shown:
            shown = {DRAWING: draw(obs, Scale(*job["scale"]), setup.size)}
        return _write(shown, Path(job["folder"]), fps, why)
    except UserError as error:
        return {"error": str(error).replace(f"{job['folder']}/", "")}  # folders of the server are nobody's business
    except OSError as error:
        return {"error": not_written(error), "detail": str(error)}


def not_written(error: OSError) -> str:
    """What an annotator is told of an error of the disk: it names no file of the server."""
    reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
    return f"the clip could not be written: {reason or type(error).__name__}"


def _look(
    env: Env, setup: Setup, job: dict[str, Any], action: np.ndarray, obs: np.ndarray
) -> tuple[dict[str, np.ndarray], str | None]:
    """The frames of each camera, or none and the reason why the episode cannot be shown."""
    cameras = _cameras(env, setup) or (None,)
    try:
        frames, seen, rewards = simulate(env, job["seed"], action, job["start"], cameras, setup.size)
    except UserError as error:
        return {}, str(error)
    except Exception as error:  # the user's own code may raise anything
        return {}, f"the environment raised {type(error).__name__}: {error}"
    if setup.features:
        seen = rewards if obs.any() else obs  # the double of a run, for a page elsewhere, is not told any
    if seen.shape != obs.shape or not np.allclose(seen, obs, rtol=_TOLERANCE, atol=_TOLERANCE):
        return {}, (
            "simulated again from its seed and actions, the episode comes out differently, so its frames would show "
            "something else; use the versions and settings of the simulator with which it was recorded, and make "
            "sure that reset(seed) decides everything random"
        )
    return {camera or VIEW: taken for camera, taken in frames.items()}, None


def _cameras(env: Env, setup: Setup) -> tuple[str, ...]:
    """Those that clips show, the most telling first."""
    first = [setup.camera] if setup.camera in env.cameras else []
    return tuple(dict.fromkeys([*first, *env.cameras]))[: setup.cameras]  # type: ignore[arg-type]


def _write(shown: dict[str, np.ndarray], folder: Path, real_fps: float, note: str | None) -> dict[str, Any]:
    """Write every camera in every kind, as <number of the camera>.<kind>."""
    count = len(next(iter(shown.values())))
    speed = min(max(count / (_SHORTEST * real_fps), _SLOWEST), 1.0)
    fps = max(1, round(real_fps * speed))
    for number, frames in enumerate(shown.values()):
        for kind in KINDS:
            write_video(folder / f"{number}.{kind}", frames, fps)
    return {"cameras": _names(shown), "frames": count, "fps": fps, "speed": fps / real_fps, "note": note}


def _names(cameras: Iterable[str]) -> list[str]:
    """Names that may stand in an address: letters, digits, '-' and '_', each once."""
    names: list[str] = []
    for number, camera in enumerate(cameras):
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", camera)[:40].strip("-") or f"camera-{number}"
        names.append(f"{name}-{number}" if name in names else name)
    return names


def _stack(frames: list[np.ndarray]) -> np.ndarray:
    """Frames as one array, made smaller where they are too large to be sent around."""
    if len({frame.shape for frame in frames}) != 1:
        raise UserError(f"the frames of one clip differ in size: {sorted({frame.shape[:2] for frame in frames})}")
    height, width = frames[0].shape[:2]
    if max(height, width) <= _LARGEST:
        return np.stack(frames)
    from PIL import Image

    shrink = _LARGEST / max(height, width)
    size = (max(2, round(width * shrink)), max(2, round(height * shrink)))
    return np.stack([np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BOX)) for frame in frames])
