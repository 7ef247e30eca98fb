"""The first thing in a label file: what the labels are about. Labels of another task are refused by what differs."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ubp2._version import __version__
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.preference.imported import Label

__all__ = ["FORMAT", "VERSION", "Header", "describe", "require_same"]

FORMAT = "ubp2-labels"
VERSION = 1
ARRAYS = "base64 (in Parquet: binary) of float32, little-endian, row by row: [segment_length, obs_dim or action_dim]"
_KINDS = {"env": str, "spec": dict | None, "anonymous": bool, "runs": list, "exported": str, "software": str}


@dataclasses.dataclass(frozen=True)
class Header:
    """What the labels of a file are about, and where they come from."""

    env: str
    environment: dict[str, Any]  # settings, as in the configuration
    spec: dict[str, Any] | None  # of the environment itself; None: unknown
    obs_dim: int
    action_dim: int
    segment_length: int
    counts: dict[str, int]
    anonymous: bool
    runs: list[str]
    exported: str
    software: str
    arrays: str = ARRAYS
    format: str = FORMAT
    version: int = VERSION

    def as_dict(self) -> dict[str, Any]:
        """As it is written: format and version first."""
        data = dataclasses.asdict(self)
        return {name: data.pop(name) for name in ("format", "version")} | data

    @classmethod
    def from_dict(cls, data: Any, path: Path) -> Header:
        """Read what `as_dict` gave; fields of later versions of the same format are passed over."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise UserError(
                f"{path} is not a label file: it does not begin with a header of format {FORMAT}; "
                f"make one with: ubp2 labels export RUN {path.name}"
            )
        version = data.get("version")
        if version != VERSION:
            raise UserError(
                f"{path} has version {version!r} of the format and this ubp2 reads {VERSION}; "
                f"read it with the ubp2 that wrote it ({data.get('software', 'unknown')}), or a newer one"
            )
        try:
            header = cls(**{field.name: data[field.name] for field in dataclasses.fields(cls)})
        except KeyError as error:
            raise UserError(f"{path}: the header lacks {error}; export the labels again") from None
        sizes = (header.obs_dim, header.action_dim, header.segment_length, header.counts, header.environment)
        kinds = (int, int, int, dict, dict)
        if not all(isinstance(size, kind) for size, kind in zip(sizes, kinds, strict=True)) or min(sizes[:3]) < 1:
            raise UserError(f"{path}: the header has sizes that are no whole numbers above 0; export the labels again")
        wrong = [name for name, kind in _KINDS.items() if not isinstance(getattr(header, name), kind)]
        if wrong:
            raise UserError(
                f"{path}: {', '.join(wrong)} of the header is not what was written; export the labels again"
            )
        try:
            _bounds(header.spec or {})
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{path}: the header has bounds of actions that are no numbers; export the labels again"
            ) from None
        return header


def describe(
    config: Config, spec: Mapping[str, Any] | None, labels: Sequence[Label], runs: list[str], *, anonymous: bool
) -> Header:
    """The header of these labels of runs of one configuration."""
    length, obs_dim = labels[0].query.left_obs.shape
    counts = {
        "records": len(labels),
        "labels": sum(each.weight > 0 for each in labels),
        "ties": sum(each.weight > 0 and each.label == 0.5 for each in labels),
        "skips": sum(each.weight == 0 for each in labels),
        "questions": len({each.fingerprint for each in labels}),
        "annotators": len({each.annotator for each in labels}),
    }
    return Header(
        env=config.env,
        environment=dataclasses.asdict(config.environment),
        spec=None if spec is None else dict(spec),
        obs_dim=obs_dim,
        action_dim=labels[0].query.left_action.shape[1],
        segment_length=length,
        counts=counts,
        anonymous=anonymous,
        runs=runs,
        exported=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        software=f"ubp2 {__version__}",
    )


def require_same(path: Path, header: Header, config: Config, spec: Mapping[str, Any] | None) -> None:
    """Refuse labels of another environment, other sizes or another segment length, with every difference.

    spec: of the environment here; None, or one that does not say, compares nothing. How long episodes are is left
    free: a segment of so many decisions is the same in a longer episode.
    """
    theirs = _facts(header.env, header.environment, {**(header.spec or {}), **_sizes(header)}, header.segment_length)
    own = dataclasses.asdict(config.environment)
    ours = _facts(config.env, own, spec or {}, config.preferences.segment_length)
    different = [
        name for name in theirs if theirs[name] is not None and ours[name] is not None and theirs[name] != ours[name]
    ]
    if not different:
        return
    said = "; ".join(f"{name} is {theirs[name]} in the file and {ours[name]} here" for name in different)
    advice = f"train on {header.env} as it was, or take labels of {config.env}"
    if different == ["preferences.segment_length"]:
        advice = f"train with --preferences.segment-length {header.segment_length}, or take other labels"
    raise UserError(f"the labels of {path} do not fit this run: {said}; {advice}")


def _sizes(header: Header) -> dict[str, int]:
    return {"obs_dim": header.obs_dim, "action_dim": header.action_dim}


def _facts(env: str, settings: Mapping[str, Any], spec: Mapping[str, Any], length: int) -> dict[str, Any]:
    """What must be the same for a label to mean the same; None: unknown."""
    return {
        "the environment": env,
        "environment.protocol": settings.get("protocol") if env.startswith("metaworld/") else None,
        "the size of observations": spec.get("obs_dim"),
        "the size of actions": spec.get("action_dim"),
        "the action repeat": spec.get("action_repeat"),
        "the bounds of actions": _bounds(spec),
        "preferences.segment_length": length,
    }


def _bounds(spec: Mapping[str, Any]) -> list[list[float]] | None:
    if "action_low" not in spec:
        return None
    return [list(map(float, spec[name])) for name in ("action_low", "action_high")]
