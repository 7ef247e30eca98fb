"""What `make` does first: it finds a Python, and makes the environment again that is not whole or lies elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.release.conftest import ROOT

REAL = Path(sys.executable).resolve()
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `make` needs of this one, in a folder with a space in its name, and an environment that is up to date."""
    folder = tmp_path / "my checkout"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    venv.create(folder / ".venv", symlinks=True)  # its python alone: pip would take seconds
    config = folder / ".venv" / "pyvenv.cfg"
    if "command = " not in config.read_text():
        config.write_text(f"{config.read_text()}command = {REAL} -m venv {folder / '.venv'}\n")
    (folder / ".venv" / ".ready").touch()
    return folder


def sets_up(folder: Path) -> bool:
    """Whether `make lint` would install anything first."""
    done = subprocess.run(["make", "-n", "lint"], cwd=folder, capture_output=True, text=True, check=True)
    return "pip install" in done.stdout


def test_an_environment_is_made_again_where_it_would_be_wrong(checkout: Path) -> None:
    assert not sets_up(checkout)
    copied = shutil.copytree(checkout, checkout.with_name("copy"), symlinks=True)
    assert sets_up(copied), "it would test the sources of the first one"
    config = checkout / ".venv" / "pyvenv.cfg"
    as_it_was = config.read_text()
    config.write_text(as_it_was.replace(f"version = {VERSION}", "version = 3.9"))
    assert sets_up(checkout), "the Python below it has become another one"
    config.write_text(as_it_was)
    (checkout / ".venv" / "bin" / "python").unlink()
    assert sets_up(checkout)


def test_half_an_environment_is_made_again(checkout: Path) -> None:
    """pip is missing, as where its installation was interrupted."""
    (checkout / ".venv" / ".ready").unlink()
    log = checkout / "asked"
    python = program(checkout / "python", f'echo "$@" >> "{log}"\n[ "$2" = venv ] && exit 9\nexec "{REAL}" "$@"')
    environment = os.environ | {"PYTHON": str(python)}
    done = subprocess.run(["make", "lint"], cwd=checkout, capture_output=True, text=True, env=environment)
    assert done.returncode and "-m venv --clear .venv" in log.read_text().splitlines(), done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that is all of PATH: a shell, and an administrator."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "dirname", "env", "grep"):
        (folder / name).symlink_to(shutil.which(name) or name)
    program(folder / "id", "echo 0")
    return folder


def found(machine: Path) -> subprocess.CompletedProcess[str]:
    """scripts/python on this machine; a copy, which has no environment to remember anything in."""
    scripts = shutil.copytree(ROOT / "scripts", machine.parent / "scripts", dirs_exist_ok=True)
    return subprocess.run([scripts / "python"], env={"PATH": str(machine)}, capture_output=True, text=True)


def test_a_python_that_will_do_is_found_behind_one_that_is_too_old(machine: Path) -> None:
    program(machine / "python3", 'test "$1" = -V && echo "Python 3.10.12" || exit 1')
    done = found(machine)
    assert (done.returncode, done.stdout) == (1, "")
    assert "needs Python 3.11, 3.12 or 3.13 on PATH (found Python 3.10.12)" in done.stderr
    newer = program(machine / "python3.12", f'exec "{REAL}" "$@"')
    assert found(machine).stdout == f"{newer}\n"


def test_a_python_without_venv_gets_it_or_is_told_of(machine: Path) -> None:
    """Debian and Ubuntu have it in a package of its own."""
    there = machine / "venv-is-there"
    lame = f'case "$2" in *ensurepip*) [ -e "{there}" ] || exit 1;; esac\nexec "{REAL}" "$@"'
    python = program(machine / "python3", lame)
    done = found(machine)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot make virtual environments" in done.stderr and f"apt-get install python{VERSION}-venv" in done.stderr
    program(machine / "apt-get", f'case "$*" in "install "*python{VERSION}-venv) : > "{there}";; *) exit 1;; esac')
    done = found(machine)
    assert (done.returncode, done.stdout) == (0, f"{python}\n"), done.stderr


def test_a_package_that_is_not_to_be_had_is_asked_for_once(machine: Path) -> None:
    log = machine / "asked"
    program(machine / "apt-get", f'echo "$@" >> "{log}"; exit 100')
    (machine.parent / ".venv").mkdir()
    scripts = shutil.copytree(ROOT / "scripts", machine.parent / "scripts")
    for _ in range(2):
        done = subprocess.run([scripts / "browser"], env={"PATH": str(machine)}, capture_output=True, text=True)
        assert done.returncode == 0 and "the tests of the label page in a browser are skipped" in done.stdout
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["install", "update"]
