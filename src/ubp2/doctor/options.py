"""What `ubp2 doctor` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ubp2.labelling.options import PORT
from ubp2.terminal.flags import Json

__all__ = ["Doctor"]


@dataclass(frozen=True)
class Doctor:
    """Check this machine: versions, devices, rendering, disk and memory; says what to do about what is broken."""

    out: Path = Path("runs")
    """Folder that runs will be written to; whether there is room is asked there."""
    port: int = PORT
    """Port of the label page."""
    patience: float = 90.0
    """Seconds after which a check that hangs counts as failed."""
    json: Json = False
