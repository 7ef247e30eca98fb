"""The machine below: versions, the user's cache folder, and what must be set before jax is imported."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import itertools
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ubp2._version import __version__
from ubp2.errors import UserError

__all__ = [
    "cache_folder",
    "devices",
    "own_command",
    "prepare_jax",
    "provenance",
    "require_32_bits",
    "resident_megabytes",
    "seconds_since_start",
    "source",
    "versions",
]

_PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "gymnasium", "metaworld", "mujoco", "dm-control")


@functools.cache
def versions() -> dict[str, str]:
    """Versions that decide what a run computes; a package that is not installed is left out. Imports none of them."""
    found = {
        "ubp2": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache  # each seed of a run asks, and git takes its time
def source() -> dict[str, Any] | None:
    """Return commit and dirtiness of the source of this package; None if it is not a git checkout."""
    package = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an installed copy may lie inside somebody else's checkout
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--", "."))}
    except (OSError, subprocess.SubprocessError):
        return None


def own_command() -> str:
    """The command of this process without the value of --token: run folders are handed on."""
    told = [word if before != "--token" else "..." for before, word in itertools.pairwise(["", *sys.argv])]
    return shlex.join("--token=..." if word.startswith("--token=") else word for word in told)


def provenance() -> dict[str, Any]:
    """When, on how many cores and with what something was measured: what one needs to measure the same again."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": now, "cores": os.cpu_count(), "versions": versions(), "source": source()}


def cache_folder() -> Path:
    """Folder for what can be made again, by the XDG rule."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "ubp2"


def devices() -> list[str]:
    """Devices that jax sees. Imports jax."""
    prepare_jax()
    import jax

    return [f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()]


def resident_megabytes() -> float:
    """Memory that this process holds now; where the system does not say, the most it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (1e6 if sys.platform == "darwin" else 1e3)  # bytes there, kilobytes elsewhere


_LOADED = time.monotonic()


def seconds_since_start() -> float:
    """Seconds since this process was created; where the system does not say, since this module was loaded."""
    try:
        stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
        ticks = int(stat.rpartition(")")[2].split()[19])  # field 22; the name before it may hold anything
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return time.monotonic() - _LOADED


def prepare_jax() -> None:
    """Set what jax reads once, at import; whatever the user has set stays.

    No preallocation, so that several runs share a GPU. A persistent compilation cache, because compiling takes longer
    than a short run; in the user's own folder, since whoever can write to the cache can run code.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        folder = cache_folder() / "jax"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return
    if os.access(folder, os.W_OK):
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)


def require_32_bits() -> None:
    """Refuse a process whose jax makes arrays of 64 bits: programs and checkpoints have types. Imports jax."""
    import jax

    if jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise UserError(
            "ubp2 computes with 32 bits and jax is set to 64 (jax_enable_x64); leave JAX_ENABLE_X64 unset, or call "
            "jax.config.update('jax_enable_x64', False) first"
        )
