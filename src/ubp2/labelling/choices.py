"""What an annotator can say of a pair, and what it means for the question behind it."""

from __future__ import annotations

from typing import Any, Literal

__all__ = ["CHOICES", "UNSURE", "Choice", "chosen", "label", "opinion"]

Choice = Literal["left", "right", "equal", "cant-tell"]
CHOICES: tuple[Choice, ...] = ("left", "right", "equal", "cant-tell")
UNSURE = 0.1  # a reward model within so much of 1/2 has no opinion


def label(choice: Choice, swapped: bool) -> tuple[float, float]:
    """P(left of the question preferred) and weight."""
    if choice == "cant-tell":
        return 0.5, 0.0
    if choice == "equal":
        return 0.5, 1.0
    return float((choice == "left") != swapped), 1.0


def chosen(label: float, weight: float, swapped: bool) -> Choice:
    """What was said, of the sides as shown: `label` turned round."""
    if weight == 0:
        return "cant-tell"
    if label == 0.5:
        return "equal"
    return "left" if (label > 0.5) != swapped else "right"


def opinion(left: float, swapped: bool, choice: Choice) -> dict[str, Any]:
    """What the reward model thinks of the sides as shown."""
    shown_left = 1 - left if swapped else left
    model = "unsure" if abs(shown_left - 0.5) <= UNSURE else "left" if shown_left > 0.5 else "right"
    return {"model": model, "agrees": choice == ("equal" if model == "unsure" else model)}
