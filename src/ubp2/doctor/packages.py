"""Versions that are installed against those that are asked for, read from the metadata of the packages themselves.

A pip that was told to install something else afterwards leaves pairs that do not fit, mujoco and metaworld above all,
and whose failures look like anything but that. Nothing is imported here.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ubp2.doctor.finding import Finding

__all__ = ["conflicts", "extras", "python", "required"]

# Whose requirements are looked at, where they are installed: those whose pins have been seen to be broken.
OWNERS = ("ubp2", "metaworld", "dm-control", "gymnasium", "jax", "jaxlib", "jax-cuda12-plugin", "ray")
FOR = {
    "cuda": "training on an NVIDIA GPU",
    "dmc": "environments dmc/...",
    "gym": "clips of Gymnasium's classic control",
    "hub": "ubp2 push",
    "onnx": "ubp2 export --format onnx",
    "parquet": "labels as Parquet files",
    "ray": "ubp2 tune, and sweeps over several machines",
    "visual": "published weights of DINOv2",
}
BUILDERS = ("dev", "docs")  # extras for those who change ubp2


def python() -> Finding:
    """The interpreter, against what the package asks for."""
    have, wanted = platform.python_version(), _python_wanted()
    if wanted is not None and not SpecifierSet(wanted).contains(have):
        advice = f"make a virtual environment with a Python {wanted}, and install ubp2 there"
        return Finding("python", "problem", f"{have}; ubp2 needs {wanted}", advice)
    return Finding("python", "ok", f"{have} in {sys.prefix}")


def _python_wanted() -> str | None:
    try:
        return metadata.metadata("ubp2")["Requires-Python"]
    except metadata.PackageNotFoundError:
        return None


def required() -> list[Finding]:
    """All requirements of ubp2 and of those below it whose versions matter."""
    requirements = {owner: lines for owner in OWNERS if (lines := _requires(owner)) is not None}
    if "ubp2" not in requirements:
        text = "ubp2 runs from its sources without being installed, so its requirements are not known"
        found = [Finding("packages", "warning", text, "install it: pip install -e . where its pyproject.toml is")]
    else:
        found = []
    broken = list(conflicts(requirements))
    return found + (broken or [Finding("packages", "ok", f"what {', '.join(requirements)} require is there")])


def conflicts(requirements: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """A problem for each requirement (as a wheel's metadata has it, extras left out) that is not met."""
    for owner, lines in requirements.items():
        for wanted in map(Requirement, lines):
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            have = _version(wanted.name)
            if have is None or not wanted.specifier.contains(have, prereleases=True):
                text = f"{owner} needs {wanted.name}{wanted.specifier}, and {have or 'none'} is installed"
                yield Finding("packages", "problem", text, f"pip install '{wanted.name}{wanted.specifier}'")


def extras() -> list[Finding]:
    """Each extra of ubp2: there, absent, or there in a version that it cannot use."""
    lines = [Requirement(line) for line in _requires("ubp2") or ()]
    names = metadata.metadata("ubp2").get_all("Provides-Extra") or [] if lines else []
    return [_extra(name, lines) for name in sorted(names) if name not in BUILDERS]


def _extra(name: str, lines: Iterable[Requirement]) -> Finding:
    check, use = f"extra {name}", FOR.get(name, "")
    wanted = [part for line in lines if _belongs(line, name) for part in _expanded(line)]
    have = {line.name: _version(line.name) for line in wanted}
    if not wanted:
        return Finding(check, "note", "adds nothing on this system or this Python")
    absent = [package for package, version in have.items() if version is None]
    if absent:
        return Finding(check, "note", f"{', '.join(absent)} not installed", f"for {use}: pip install 'ubp2[{name}]'")
    wrong = [line for line in wanted if not line.specifier.contains(have[line.name] or "", prereleases=True)]
    if wrong:
        text = ", ".join(f"{line.name} {have[line.name]} is not {line.specifier}" for line in wrong)
        return Finding(check, "warning", text, f"pip install 'ubp2[{name}]'")
    return Finding(check, "ok", ", ".join(f"{package} {version}" for package, version in have.items()))


def _belongs(line: Requirement, extra: str) -> bool:
    """Whether this requirement is there because of the extra, on this machine."""
    return (
        line.marker is not None and line.marker.evaluate({"extra": extra}) and not line.marker.evaluate({"extra": ""})
    )


def _expanded(line: Requirement) -> list[Requirement]:
    """What `jax[cuda12]` asks for beyond jax, which is there anyway; a requirement without an extra is itself."""
    own = [Requirement(part) for part in _requires(line.name) or ()]
    return [line, *(part for part in own if any(_belongs(part, extra) for extra in line.extras))]


def _requires(package: str) -> list[str] | None:
    try:
        return metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
