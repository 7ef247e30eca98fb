"""Virtual environments that hold ubp2 from a wheel, and commands in them, far from the sources."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

__all__ = ["json_in", "make_venv", "pip", "run_in"]


def make_venv(folder: Path, lend: Path | None = None) -> Path:
    """A new environment; `lend`: a site-packages folder whose packages it sees behind its own.

    A plain path in a .pth file: the .pth files of the folder that is lent are not read, so that a package that is
    installed there in editable form stays invisible.
    """
    venv.create(folder, with_pip=True, symlinks=True)
    if lend is not None:
        (site_packages(folder) / "lent.pth").write_text(f"{lend}\n")
    return folder


def site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def pip(folder: Path, *arguments: str | Path) -> None:
    """`pip install ...` in this environment."""
    run_in(folder, "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def run_in(
    folder: Path, program: str, *arguments: str | Path, cwd: Path | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """A program of the environment, with nothing of the sources on its path; its end must be `code`."""
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(folder / "bin" / program), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd or folder, env=outside, capture_output=True, text=True, timeout=1800)
    assert done.returncode == code, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def json_in(folder: Path, *arguments: str | Path, cwd: Path | None = None) -> dict[str, Any]:
    """What `ubp2 ... --json` answers in the environment."""
    return json.loads(run_in(folder, "python", "-m", "ubp2", *arguments, "--json", cwd=cwd).stdout)
