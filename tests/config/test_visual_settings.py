"""Settings of frames and encoders that fit no run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ubp2.config.files import from_dict
from ubp2.config.resolving import resolve
from ubp2.errors import UserError


@pytest.mark.parametrize(
    ("env", "visual", "sentence"),
    [
        (
            "toy/reach",
            {"pixels": 64},
            "visual.pixels would change nothing; leave it out, or learn from frames with --env toy-visual/reach",
        ),
        (
            "toy-visual/reach",
            {"encoder": "random-conv", "weights": "x.npz"},
            "the encoder random-conv takes no weights",
        ),
        ("toy-visual/reach", {"encoder": "mine:eye", "weights": "x.npz"}, "the encoder mine:eye takes no weights"),
        ("toy-visual/reach", {"encoder": "conv", "weights": "hub:facebook/dinov2-small"}, "and none of conv"),
        ("toy-visual/reach", {"encoder": "conv", "pixels": 20}, "visual.pixels must be at least 32"),
    ],
)
def test_settings_of_frames_that_change_nothing_are_refused(env: str, visual: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        resolve(from_dict({"env": env, "visual": visual}), 50)
