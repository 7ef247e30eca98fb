"""A release as its users get it: the wheel holds the whole package and nothing else, and works outside the sources."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.release.conftest import ROOT, Built
from tests.release.venvs import json_in, make_venv, pip, run_in
from tests.training.helpers import tiny
from ubp2 import __version__
from ubp2.config.files import save_yaml

SOURCES = ROOT / "src"


def files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    """Every file of the sources, the label page and py.typed among them, byte for byte; no tests."""
    found = {name: data for name, data in files(built.wheel).items() if ".dist-info/" not in name}
    expected = {
        str(path.relative_to(SOURCES)): path.read_bytes()
        for path in SOURCES.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert set(found) == set(expected)
    assert found == expected
    assert {"ubp2/py.typed", "ubp2/labelling/static/index.html", "ubp2/labelling/static/style.css"} <= set(found)


def test_the_metadata_of_the_wheel(built: Built) -> None:
    found = files(built.wheel)
    (metadata,) = (data for name, data in found.items() if name.endswith(".dist-info/METADATA"))
    (scripts,) = (data for name, data in found.items() if name.endswith(".dist-info/entry_points.txt"))
    header = email.message_from_bytes(metadata)
    assert (header["Name"], header["Version"]) == ("ubp2", __version__)
    assert header["License-Expression"] == "MIT" and any(name.endswith("licenses/LICENSE") for name in found)
    assert header["Requires-Python"] == "<3.14,>=3.11"
    assert b"ubp2 = ubp2.__main__:run" in scripts
    assert "which of these two clips is better?" in header.get_payload()


def test_the_archive_holds_what_its_tests_need_and_nothing_else(built: Built) -> None:
    """What git has, or would take: files that lie about, such as runs, are none of it."""
    with tarfile.open(built.archive) as archive:
        names = {entry.name.partition("/")[2] for entry in archive if not entry.isdir()}
    command = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    ours = {name for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    left_out = {name.split("/")[0] for name in ours - names}
    assert left_out <= {".ci", ".pre-commit-config.yaml"}, left_out
    assert names - ours == {"PKG-INFO"}


def test_examples_leave_their_runs_outside_of_the_archive() -> None:
    """Whoever runs one in its own folder has them there, and hatchling packs what git does not ignore."""
    left = ["examples/runs/room/config.yaml", "examples/first-hour/policy.npz", "demo/clip.mp4", "runs/one/info.json"]
    done = subprocess.run(["git", "-C", ROOT, "check-ignore", *left], capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("not a git checkout")
    assert done.stdout.split() == left


def test_the_changelog_knows_the_version() -> None:
    """A version that is being worked on has its changes under Unreleased; a released one has a heading of its own."""
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    if ".dev" in __version__:
        assert __version__.partition(".dev")[0] not in headings
    else:
        assert __version__ in headings


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel of ubp2, and the present ones of all else."""
    folder = make_venv(tmp_path_factory.mktemp("installed") / "venv", lend=Path(sysconfig.get_path("purelib")))
    pip(folder, "--no-deps", "--no-index", built.wheel)
    return folder


def test_the_wheel_trains_outside_the_sources(installed: Path, tmp_path: Path) -> None:
    where = run_in(installed, "python", "-c", "import ubp2; print(ubp2.__file__)", cwd=tmp_path).stdout.strip()
    assert Path(where).is_relative_to(installed)
    assert run_in(installed, "ubp2", "--version").stdout == f"ubp2 {__version__}\n"
    save_yaml(tiny(), tmp_path / "tiny.yaml")
    trained = json_in(installed, "train", "--config", "tiny.yaml", "--out", "run", cwd=tmp_path)
    assert trained["finished"] and trained["decisions"] == 300


def test_the_same_version_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == __version__
    done = subprocess.run([sys.executable, "-m", "ubp2", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"ubp2 {__version__}\n"
