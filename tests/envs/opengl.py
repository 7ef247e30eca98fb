"""Where nothing can be drawn, and only there, are the tests that draw skipped."""

from __future__ import annotations

import os

import pytest

__all__ = ["needs_opengl"]

# tests/conftest.py has chosen by now; "disable" is what it takes where it finds no library
needs_opengl = pytest.mark.skipif(
    os.environ.get("MUJOCO_GL") == "disable", reason="no OpenGL library is installed; scripts/gl says which"
)
