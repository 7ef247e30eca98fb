"""Choice of the OpenGL backend that MuJoCo renders with; it reads MUJOCO_GL once, when it is first imported."""

from __future__ import annotations

import ctypes.util
import os
import sys

from ubp2.errors import UserError

__all__ = ["choose_backend", "no_rendering"]


def choose_backend() -> None:
    """Set MUJOCO_GL to a backend that works without a display, unless the user has set it. Call before mujoco loads.

    OSMesa comes first although EGL may be faster: it renders the same pixels on every machine and asks nothing of
    a GPU whose memory jax has taken. EGL alone will not do (browsers bring it along): PyOpenGL cannot be imported
    without libOpenGL or GLES beside it, nor can mujoco then, and nobody could train.
    """
    if os.environ.get("MUJOCO_GL") or not sys.platform.startswith("linux"):
        return
    if ctypes.util.find_library("OSMesa"):
        os.environ["MUJOCO_GL"] = "osmesa"
    elif ctypes.util.find_library("EGL") and any(map(ctypes.util.find_library, ("OpenGL", "GLESv2"))):
        os.environ["MUJOCO_GL"] = "egl"
    else:
        os.environ["MUJOCO_GL"] = "disable"


def no_rendering(env_id: str, reason: object) -> UserError:
    """Build the error for an environment that runs but cannot be drawn on this machine."""
    backend = os.environ.get("MUJOCO_GL", "unset")
    return UserError(
        f"{env_id} cannot be rendered: no usable OpenGL library (MUJOCO_GL is {backend}: {reason}); "
        f"install one with `apt-get install libosmesa6` or `apt-get install libegl1 libopengl0`; everything else works "
        f"without"
    )
