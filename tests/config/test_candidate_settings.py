"""Which candidates for questions a configuration may ask for."""

from __future__ import annotations

from typing import Any

import pytest

from ubp2.config.files import from_dict
from ubp2.config.resolving import resolve
from ubp2.errors import UserError


@pytest.mark.parametrize(
    ("preferences", "sentence"),
    [
        ({"candidate_episodes": 9}, "set --preferences.candidates-from to recent or local, or leave it out"),
        ({"candidates_from": "local", "recent": 0.5}, "preferences.candidates_from is local; leave one of them out"),
        ({"candidates_from": "recent", "candidate_episodes": 0}, "candidate_episodes must be at least 1, got 0"),
        (
            {"candidates_from": "local", "candidate_episodes": 1, "segment_length": 30},
            "two segments of 30 decisions do not fit side by side into one episode of 50",
        ),
        ({"segment_length": 50, "compat": "bpref-code"}, "bpref-code needs one more, but an episode of"),
        (
            {"candidates_from": "recent", "candidate_episodes": 1, "segment_length": 50},
            "the newest episode alone has one segment of 50 decisions, and nothing to compare it with",
        ),
        ({"strategy": "thompson"}, "thompson asks where reward members differ, and there is only one"),
    ],
)
def test_candidates_that_cannot_be_are_refused(preferences: dict[str, Any], sentence: str) -> None:
    config = from_dict({"preferences": preferences, "model": {"reward_members": 1}})
    with pytest.raises(UserError) as refused:
        resolve(config, 50)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(("source", "episodes"), [("replay", None), ("recent", 100), ("local", 5)])
def test_where_candidates_come_from_has_its_number_of_episodes(source: str, episodes: int | None) -> None:
    config = resolve(from_dict({"preferences": {"candidates_from": source}}), 50)
    assert config.preferences.candidate_episodes == episodes
    assert resolve(config, 50) == config
