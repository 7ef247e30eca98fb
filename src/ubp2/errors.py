"""Errors that a user can act on: what was expected, what came, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["UserError", "did_you_mean", "unknown_name"]


class UserError(Exception):
    """A mistake in the input or the machine, told in one sentence; the CLI prints it and exits with 2."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' for the nearest known names, or an empty string.

    Of dotted names, those that end in the whole word are the nearest: budget is preferences.budget.
    """
    known = list(known)
    ends = [full for full in known if full.endswith(f".{name}")]
    close = ends[:3] or difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Build the error for a name that is in no registry."""
    known = sorted(known)
    listing = ", ".join(known) if len(known) <= 24 else f"{', '.join(known[:8])}, ... ({len(known)} in all)"
    return UserError(f"unknown {kind} '{name}'.{did_you_mean(name, known)} Known: {listing}")
