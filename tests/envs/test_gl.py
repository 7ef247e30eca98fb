"""Which OpenGL is chosen for MuJoCo, by what the machine has."""

from __future__ import annotations

import ctypes.util
import os
import sys

import pytest

from ubp2.envs.gl import choose_backend


@pytest.mark.parametrize(
    ("libraries", "chosen"),
    [
        ({"OSMesa", "EGL", "OpenGL"}, "osmesa"),
        ({"EGL", "OpenGL"}, "egl"),
        ({"EGL", "GLESv2"}, "egl"),
        ({"EGL", "GL"}, "disable"),  # mujoco could not even be imported
        (set(), "disable"),
    ],
)
def test_the_backend_is_one_that_can_be_loaded(
    libraries: set[str], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: f"lib{name}.so.0" if name in libraries else None)
    monkeypatch.setenv("MUJOCO_GL", "")  # as good as unset
    choose_backend()
    assert os.environ["MUJOCO_GL"] == chosen
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    choose_backend()
    assert os.environ["MUJOCO_GL"] == "glfw"
