"""A drawing of the state, for episodes that cannot be shown: traces of the observation over time, with a cursor.

Two clips can be compared only on the same axes. So a `Scale` is made once a run, from episodes of its archive, and says
which entries of the observation are drawn and between which values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["UNSCALED", "Scale", "draw", "measure"]

ROWS = 12
_LABEL, _VALUE, _MARGIN = 46, 54, 10  # pixels: left of the traces, right of them, and around all
_PAPER, _FIELD, _INK, _FAINT = (250, 249, 246), (239, 241, 243), (38, 43, 51), (150, 157, 167)
_TRACE, _AHEAD, _CURSOR = (24, 98, 158), (176, 199, 217), (196, 72, 40)


class Scale(NamedTuple):
    """Which entries of the observation are drawn, and the values at the lower and the upper edge of their rows."""

    entries: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    obs_dim: int


UNSCALED = Scale((), (), (), 0)  # of observations that are never drawn


def measure(episodes: Sequence[np.ndarray], rows: int = ROWS) -> Scale:
    """Choose what to draw from observations [T, D] of several episodes.

    Entries that move most within an episode, in units of their whole range, come first; those that stand still or
    repeat another one (some environments observe the last step too) are left out while there are better ones.
    """
    everything = np.concatenate(episodes).astype(np.float64)
    low, high = everything.min(axis=0), everything.max(axis=0)
    span = np.where(high - low > 1e-6, high - low, np.inf)
    movement = np.mean([episode.std(axis=0) for episode in episodes], axis=0) / span
    unit = (everything - everything.mean(axis=0)) / span
    unit /= np.maximum(np.linalg.norm(unit, axis=0), 1e-12)
    chosen: list[int] = []
    for entry in np.argsort(-movement, kind="stable"):
        if len(chosen) == rows or not np.isfinite(span[entry]):
            break
        if all(abs(float(unit[:, entry] @ unit[:, other])) < 0.98 for other in chosen):
            chosen.append(int(entry))
    chosen = sorted(chosen or range(min(rows, low.size)))
    margin = np.maximum(0.15 * (high - low), 1e-3)
    return Scale(
        tuple(chosen),
        tuple(float(value) for value in (low - margin)[chosen]),
        tuple(float(value) for value in (high + margin)[chosen]),
        int(low.size),
    )


def draw(obs: np.ndarray, scale: Scale, size: int) -> np.ndarray:
    """Draw the observations [T, D] of a clip: [T, size, size, 3] uint8, one frame for each."""
    from PIL import Image, ImageDraw, ImageFont

    font: Any = ImageFont.load_default(size=11)
    shown = obs[:, list(scale.entries)].astype(np.float64)
    low, high = np.array(scale.low), np.array(scale.high)
    heights = np.clip((shown - low) / (high - low), 0.0, 1.0)  # [T, rows], 0 at the lower edge
    left, right = _LABEL, size - _VALUE
    across = left + (right - left) * np.arange(len(obs)) / max(1, len(obs) - 1)
    top, step = _MARGIN, (size - 2 * _MARGIN - 16) / len(scale.entries)

    base = Image.new("RGB", (size, size), _PAPER)
    pencil = ImageDraw.Draw(base)
    lines = []
    for row, entry in enumerate(scale.entries):
        upper, lower = top + row * step + 2, top + (row + 1) * step - 2
        pencil.rectangle((left, upper, right, lower), fill=_FIELD)
        pencil.text((_MARGIN, (upper + lower) / 2), f"obs {entry}", fill=_INK, font=font, anchor="lm")
        line = list(zip(across, lower - 2 - heights[:, row] * (lower - upper - 4), strict=True))
        pencil.line(line, fill=_AHEAD, width=1)
        lines.append(line)
    told = f"drawing of the state: {len(scale.entries)} of {scale.obs_dim} numbers"
    pencil.text((_MARGIN, size - _MARGIN), told, fill=_FAINT, font=font, anchor="lb")

    frames = []
    for now in range(len(obs)):
        frame = base.copy()
        pencil = ImageDraw.Draw(frame)
        pencil.line((across[now], top, across[now], top + step * len(lines)), fill=_CURSOR, width=1)
        for row, line in enumerate(lines):
            if now:
                pencil.line(line[: now + 1], fill=_TRACE, width=2)
            x, y = line[now]
            pencil.ellipse((x - 3, y - 3, x + 3, y + 3), fill=_CURSOR)
            middle = top + (row + 0.5) * step
            pencil.text((right + 6, middle), f"{shown[now, row]:.3g}", fill=_INK, font=font, anchor="lm")
        frames.append(np.asarray(frame))
    return np.stack(frames)
