"""Print what ubp2 and the named extras require, a line each, read from pyproject.toml: requirements.py gym,ray

An image installs them before ubp2 itself, so that a change of the sources leaves its largest layer as it is.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(project: Path, extras: list[str]) -> list[str]:
    """The requirements of the package, then those of each extra; an unknown one is a KeyError that names it."""
    found = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    optional = found["optional-dependencies"]
    return [*found["dependencies"], *(line for extra in extras for line in optional[extra])]


if __name__ == "__main__":
    wanted = [name.strip() for word in sys.argv[1:] for name in word.split(",") if name.strip()]
    print("\n".join(requirements(Path("pyproject.toml"), wanted)))
