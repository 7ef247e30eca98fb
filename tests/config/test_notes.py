"""Notes on configurations that can run although a setting has no effect."""

from __future__ import annotations

from typing import Any

import pytest

from ubp2.config.checking import notes
from ubp2.config.files import from_dict

STATE = {"model": {"reward_inputs": "state"}}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (STATE, True),
        ({}, False),
        ({**STATE, "optimism": {"autotune": False}}, False),
        ({**STATE, "optimism": {"reward": False}}, False),
        ({**STATE, "ablation": "0111"}, False),
        ({**STATE, "agent": "pebble"}, False),
    ],
)
def test_a_coefficient_that_cannot_move_is_told(settings: dict[str, Any], told: bool) -> None:
    """Eq. 2 has a gradient of 0 where both policies have the same reward uncertainty."""
    found = notes(from_dict({**settings}))
    assert len(found) == told and all(note.startswith("lambda_reward stays at 1: the reward reads") for note in found)
