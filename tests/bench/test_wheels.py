"""The wheels that travel to a machine without a network are those that training needs (`benchmarks/study.py pack`)."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.bench.scripts import BENCHMARKS, load

CONSTRAINTS = BENCHMARKS.parent / "constraints.txt"

# Imports everything that training imports, and builds a simulator, where only the packed distributions can be found.
_ALONE = """
import importlib.metadata, sys
from packaging.utils import canonicalize_name
allowed = set(sys.argv[1].split())
owners = importlib.metadata.packages_distributions()
class Only:
    def find_spec(self, name, path=None, target=None):
        own = {canonicalize_name(each) for each in owners.get(name.partition(".")[0], ())}
        if own and not own & allowed and name.partition(".")[0] not in sys.modules:
            raise ModuleNotFoundError(f"{name} is not packed", name=name)
sys.meta_path.insert(0, Only())
import ubp2.api, ubp2.terminal.cli
from ubp2.storage.runs import Metrics
from ubp2.envs.registry import make
from ubp2.config.schema import EnvironmentConfig
with Metrics(sys.argv[2]) as metrics:
    metrics.write("eval", 1, {"a": 1.0})
make("metaworld/door-close", EnvironmentConfig()).reset(0)
"""


@pytest.fixture
def wheels() -> ModuleType:
    return load("studies.wheels")


def test_training_imports_nothing_but_what_is_packed(wheels: ModuleType, tmp_path: Path) -> None:
    packed = " ".join(["ubp2", *(name for part in wheels.NEEDED.values() for name in part)])
    command = [sys.executable, "-c", _ALONE, packed, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={"MUJOCO_GL": "disable", "PYTHONPATH": _source()}
    )
    assert done.returncode == 0, done.stderr


def _source() -> str:
    return str(BENCHMARKS.parent / "src")


def test_versions_are_those_of_the_constraints(wheels: ModuleType) -> None:
    wanted = {python: wheels.pinned(CONSTRAINTS, python, "linux_x86_64", ()) for python in ("3.11", "3.12", "3.13")}
    assert "mujoco==3.3.0" in wanted["3.12"]
    assert len(set(wanted["3.11"]) - set(wanted["3.12"])) > 0, "jax has another version for 3.11"
    assert all("==" in requirement for each in wanted.values() for requirement in each)
    without = wheels.pinned(CONSTRAINTS, "3.12", "linux_x86_64", ["JAX", "numpy"])
    assert {each.split("==")[0] for each in wanted["3.12"]} - {each.split("==")[0] for each in without} == {
        "jax",
        "numpy",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"python": "3"}, "--python must be a version such as 3.12, got '3'"),
        ({"platform": "windows"}, "unknown platform 'windows'. Known: linux_x86_64, linux_aarch64"),
        ({"limit": 1.0}, "the wheels have 2.0 MiB, more than the limit of 1; the largest are big 2.0."),
        ({"python": "3.12", "fails": True}, "pip found no wheels for Python 3.12 on linux_x86_64: ERROR: none"),
    ],
)
def test_a_pack_that_cannot_be_made_leaves_nothing(
    wheels: ModuleType, changes: dict, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = changes.pop("fails", False)

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        (Path(command[command.index("--dest") + 1]) / "big-1-py3-none-any.whl").write_bytes(bytes(2**21))
        return subprocess.CompletedProcess(command, int(fails), "", "ERROR: none" if fails else "")

    monkeypatch.setattr(wheels.subprocess, "run", pip)
    settings = {"python": "3.12", "platform": "linux_x86_64", "have": wheels.HAVE, "limit": 64.0}
    with pytest.raises(wheels.PackError) as error:
        wheels.fetch(tmp_path / "wheels", CONSTRAINTS, **{**settings, **changes})
    assert message in str(error.value)
    assert not (tmp_path / "wheels").exists()
    if "limit" in changes:
        assert wheels.fetch(tmp_path / "wheels", CONSTRAINTS, **settings) == 2.0
        with pytest.raises(wheels.PackError, match="is not empty"):
            wheels.fetch(tmp_path / "wheels", CONSTRAINTS, **settings)


def test_wheels_are_unzipped_into_one_folder(wheels: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(wheels.PackError, match="has no wheels"):
        wheels.unpack(tmp_path, tmp_path / "site")
    with zipfile.ZipFile(tmp_path / "one-1-py3-none-any.whl", "w") as archive:
        archive.writestr("one/__init__.py", "")
        archive.writestr("one-1.data/purelib/two.py", "")
    assert wheels.unpack(tmp_path, tmp_path / "site") == 1
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == ["one", "two.py"]
    assert wheels.use(tmp_path / "site").endswith(f"src:{tmp_path / 'site'}")
