"""The Dockerfile, as far as that goes without Docker: linted, and each thing that it names is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.release.conftest import ROOT
from ubp2.labelling.options import PORT

LINES = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()


def instructions(name: str) -> list[str]:
    """The arguments of every instruction of this name."""
    return [line.partition(" ")[2].strip() for line in LINES if line.startswith(f"{name} ")]


def copied() -> list[str]:
    """What comes from the sources, not from an earlier stage."""
    return [source for line in instructions("COPY") if "--from" not in line for source in line.split()[:-1]]


def test_hadolint_has_nothing_to_say() -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not here; the extra dev brings it on Linux")
    done = subprocess.run([program, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_bases_are_pinned_and_nothing_is_fetched_unseen() -> None:
    (version,) = [line.removeprefix("PYTHON=") for line in instructions("ARG") if line.startswith("PYTHON=")]
    assert re.fullmatch(r"3\.1[123]\.\d+-slim-bookworm", version)
    assert {line.split()[0] for line in instructions("FROM")} == {"python:${PYTHON}"}
    assert not instructions("ADD")


def test_it_runs_as_an_ordinary_user_with_the_port_of_the_page() -> None:
    assert instructions("USER")[-1] == "1000"
    assert instructions("EXPOSE") == [str(PORT)]
    assert instructions("ENTRYPOINT") == ['["ubp2"]']


def test_the_wheel_is_built_from_what_is_copied(tmp_path: Path) -> None:
    """All that is copied is let through by .dockerignore, and is enough."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = {line.removeprefix("!") for line in rules if line.startswith("!")}
    assert set(copied()) == let_through and "*" in rules
    for source in copied():
        target = tmp_path / source
        target.parent.mkdir(parents=True, exist_ok=True)
        there = ROOT / source
        shutil.copytree(there, target) if there.is_dir() else shutil.copyfile(there, target)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "dist").glob("ubp2-*.whl"))


@pytest.mark.parametrize(("extras", "expected"), [("", False), ("gym", True), ("cuda,gym", True)])
def test_requirements_are_those_of_the_project(extras: str, expected: bool) -> None:
    command = [sys.executable, "scripts/requirements.py", extras]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert any(line.startswith("mujoco==") for line in lines)
    assert any(line.startswith("pygame") for line in lines) is expected
    assert any("cuda" in line for line in lines) is ("cuda" in extras)


def test_system_packages_exist() -> None:
    (line,) = [line for line in instructions("RUN") if "apt-get install" in line]
    names = line.partition("--no-install-recommends")[2].partition("&&")[0].split()
    assert names
    program = shutil.which("apt-cache")
    if program is None or "bookworm" not in Path("/etc/os-release").read_text():
        pytest.skip("not the system of the image")
    for name in names:
        known = subprocess.run([program, "show", name], capture_output=True, text=True)
        if not known.stdout and not list(Path("/var/lib/apt/lists").glob("*Packages*")):
            pytest.skip("the lists of packages have not been fetched")
        assert f"Package: {name}" in known.stdout
