"""What to say to a person who named something that is no run."""

from __future__ import annotations

from pathlib import Path

from ubp2.errors import UserError, did_you_mean

__all__ = ["is_run", "no_run"]

_NAMED = 3  # of the runs inside, in a sentence


def is_run(folder: Path) -> bool:
    """Whether a run was begun there."""
    return (folder / "config.yaml").is_file() and (folder / "info.json").is_file()


def no_run(folder: Path) -> UserError:
    """The error for a path that is no run folder: what it is instead, and what may have been meant."""
    start = f"{folder} is not a run folder"
    if folder.is_file():
        return UserError(f"{start} but a file; name the folder that ubp2 train wrote")
    if not folder.exists():
        beside = [str(path) for path in _folders(folder.parent)]
        return UserError(f"{start}: there is nothing of that name; check the path.{did_you_mean(str(folder), beside)}")
    inside = [str(path) for path in _folders(folder) if is_run(path)]
    if inside:
        more = f" and {len(inside) - _NAMED} more" if len(inside) > _NAMED else ""
        return UserError(f"{start}, but it holds {', '.join(inside[:_NAMED])}{more}; name one of them")
    return UserError(f"{start}: it has no config.yaml or no info.json; check the path")


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
