"""What `ubp2 export` and `ubp2 push` take. Imports nothing heavy: their help is as instant as all help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ubp2.errors import UserError
from ubp2.terminal.flags import Json, Switch

__all__ = ["ENDINGS", "Export", "Format", "Push", "target"]

Format = Literal["numpy", "onnx"]
ENDINGS: dict[Format, str] = {"numpy": ".npz", "onnx": ".onnx"}


@dataclass(frozen=True)
class Export:
    """Write the policy of a run into one small file that needs no training code."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder."""
    out: Path | None = None
    """File to write; None: policy.npz or policy.onnx here. Beside an .npz goes numpy_policy.py, which loads it."""
    format: Format | None = None
    """numpy (.npz), or onnx (.onnx, needs ubp2[onnx]); None: what the ending of --out says."""
    json: Json = False


@dataclass(frozen=True)
class Push:
    """Publish a run on the Hugging Face Hub: model card, policy, configuration, metrics, curve."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder."""
    repo: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="REPO")]
    """Repository on the Hub, as owner/name."""
    dry_run: Switch = False
    """Write the folder, list what would be uploaded, and touch no network."""
    out: Path | None = None
    """Folder in which it is put together; None: hub/NAME."""
    private: Switch = False
    """Make the repository private, if it is made now."""
    with_labels: Switch = False
    """Add the answers to comparisons, with both segments of each, without the names of people and runs."""
    json: Json = False


def target(out: Path | None, format: Format | None) -> tuple[Format, Path]:
    """What to write, and where."""
    if out is None:
        kind: Format = format or "numpy"
        return kind, Path(f"policy{ENDINGS[kind]}")
    for kind, ending in ENDINGS.items():
        if out.suffix == ending and format in (None, kind):
            return kind, out
    wanted = " or ".join(f"{ending} ({kind})" for kind, ending in ENDINGS.items() if format in (None, kind))
    raise UserError(f"the file of the policy must end in {wanted}, got {out}")
