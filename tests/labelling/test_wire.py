"""Names as people of all scripts spell them."""

from __future__ import annotations

import pytest

from ubp2.labelling import wire
from ubp2.labelling.security import Refused


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("  Ann   Lee ", "Ann Lee"),
        ("Zoe\u0308", "Zo\u00eb"),
        (
            "\u0645\u06cc\u200c\u0631\u0627",
            "\u0645\u06cc\u200c\u0631\u0627",
        ),  # Persian, with the joiner that it is spelled with
        ("\u0dc1\u0dca\u200d\u0dbb\u0dd3", "\u0dc1\u0dca\u200d\u0dbb\u0dd3"),  # Sinhala
        ("\u200f\u05d3\u05e0\u05d4\u200e", "\u05d3\u05e0\u05d4"),  # Hebrew, pasted with marks of its direction
        ("Ann\u200d \u200c", "Ann"),
    ],
)
def test_a_name_is_spelled_one_way(given: str, name: str) -> None:
    assert wire.annotator({"annotator": given}) == name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("\u200c", "1 to 40 letters, figures or signs, got 0"),
        ("a" * 41, "got 41"),
        ("Ann\u202eeel", r"nobody can see \(U\+202E\)"),
        ("Ann\u200b", r"U\+200B"),
        ("ora\u200fcle", "a scripted teacher"),
    ],
)
def test_a_name_that_is_refused_is_told_why(given: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        wire.annotator({"annotator": given})
