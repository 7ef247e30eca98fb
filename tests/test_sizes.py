"""No file grows until nobody reads it: a longer one says why it is one file."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 350  # lines
REASON = "# Long because "
FOLDERS = ("src", "tests", "benchmarks", "scripts", "examples")


def test_a_long_file_says_why() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert Path(__file__) in files
    long = {path: len(_lines(path)) for path in files if len(_lines(path)) > MOST and not _reason(path)}
    told = [f"{path.relative_to(ROOT)} has {count} lines" for path, count in long.items()]
    assert not told, f"{'; '.join(told)}: split them, or write one line '{REASON}...' into each"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _reason(path: Path) -> bool:
    return any(line.startswith(REASON) and len(line) > len(REASON) + 20 for line in _lines(path))
