"""Wheels that training needs, for machines without a network: fetch them here, unzip them there.

Uses the standard library alone when it unzips: what it brings is not there yet.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

__all__ = ["HAVE", "NEEDED", "PackError", "fetch", "pinned", "unpack", "use"]

# What `ubp2 train` on Meta-World imports when nothing is rendered; `pack` adds no dependencies of its own. Left out on
# purpose: matplotlib, rich, starlette, uvicorn, pillow, imageio-ffmpeg, PyOpenGL and etils, which only pictures, pages
# and the command line's colours use.
NEEDED: Mapping[str, tuple[str, ...]] = {
    "the simulator": ("metaworld", "mujoco", "gymnasium", "farama-notifications", "imageio", "glfw", "cloudpickle"),
    "the configuration": ("pyyaml", "tyro", "docstring-parser", "typeguard", "typing-extensions"),
    "metrics": ("tensorboardx", "protobuf", "packaging"),
    "learning": ("equinox", "jaxtyping", "wadler-lindig", "optax", "absl-py"),
    "arrays": ("jax", "jaxlib", "ml-dtypes", "opt-einsum", "numpy", "scipy"),
}
HAVE = ("jax", "jaxlib", "ml-dtypes", "opt-einsum", "numpy", "scipy")  # jax alone makes all six
LIMIT = 64.0  # MiB
PLATFORMS = {"linux_x86_64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")}
PLATFORMS |= {"linux_aarch64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64", "any")}


class PackError(Exception):
    """A pack that cannot be made or unzipped, in a sentence."""


def fetch(folder: Path, constraints: Path, *, python: str, platform: str, have: Collection[str], limit: float) -> float:
    """Download the wheels into an empty folder; returns their size in MiB, which must not exceed `limit`."""
    if platform not in PLATFORMS:
        raise PackError(f"unknown platform '{platform}'. Known: {', '.join(PLATFORMS)}")
    if folder.exists() and any(folder.iterdir()):
        raise PackError(f"{folder} is not empty; name a new folder for the wheels")
    wanted = pinned(constraints, python, platform, have)
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", python, "--implementation", "cp", "--dest", scratch]
        command += [word for tag in PLATFORMS[platform] for word in ("--platform", tag)]
        done = subprocess.run([*command, *wanted], capture_output=True, text=True)
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.startswith("ERROR")][-1:] or ["no reason given"]
            raise PackError(f"pip found no wheels for Python {python} on {platform}: {last[0]}")
        wheels = sorted(Path(scratch).glob("*.whl"), key=lambda wheel: -wheel.stat().st_size)
        size = sum(wheel.stat().st_size for wheel in wheels) / 2**20
        if size > limit:
            largest = ", ".join(
                f"{wheel.name.split('-')[0]} {wheel.stat().st_size / 2**20:.1f}" for wheel in wheels[:5]
            )
            raise PackError(
                f"the wheels have {size:.1f} MiB, more than the limit of {limit:g}; the largest are {largest}. Name "
                f"what the machine has with --have, or raise --limit"
            )
        folder.mkdir(parents=True, exist_ok=True)
        for wheel in wheels:
            shutil.move(wheel, folder / wheel.name)
    return size


def pinned(constraints: Path, python: str, platform: str, have: Collection[str]) -> list[str]:
    """Requirements with the exact versions of the constraints for that Python and platform."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    if not re.fullmatch(r"3\.\d+", python):
        raise PackError(f"--python must be a version such as 3.12, got '{python}'")
    about = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    about |= {"platform_machine": platform.partition("_")[2], "platform_system": "Linux"}
    versions: dict[str, str] = {}
    for line in constraints.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(about):
                versions[canonicalize_name(requirement.name)] = str(requirement.specifier)
    there = {canonicalize_name(name) for name in have}
    names = [name for part in NEEDED.values() for name in part if name not in there]
    unpinned = [name for name in names if name not in versions]
    if unpinned:
        raise PackError(f"{constraints} has no version of {', '.join(unpinned)} for Python {python}")
    return [f"{name}{versions[name]}" for name in names]


def unpack(folder: Path, site: Path) -> int:
    """Unzip every wheel of `folder` into one folder; returns how many there were."""
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise PackError(f"{folder} has no wheels; make them with: python benchmarks/study.py pack --out {folder}")
    site.mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    for data in site.glob("*.data"):
        for part in ("purelib", "platlib"):  # the rest, scripts and headers, is of no use here
            if (data / part).is_dir():
                shutil.copytree(data / part, site, dirs_exist_ok=True)
        shutil.rmtree(data)
    return len(wheels)


def use(site: Path) -> str:
    """The line that makes a shell find the unzipped wheels and this checkout."""
    source = Path(__file__).resolve().parents[2] / "src"
    return f"export MUJOCO_GL=disable PYTHONPATH={source}:{site.resolve()}"
