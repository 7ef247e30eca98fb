"""What the machine has: room, memory, cores, a program for clips, a port for the label page."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

from ubp2.doctor.finding import Finding
from ubp2.errors import UserError
from ubp2.system import cache_folder

__all__ = ["cache", "cores", "disk", "ffmpeg", "memory", "port", "shared_memory"]

GB = 1e9
ROOM = 5 * GB  # a run of a million decisions takes some gigabytes
MEMORY = 3 * GB  # what compiling the preset cpu and its environments take, with something left for the system


def disk(name: str, folder: Path, room: float = ROOM) -> Finding:
    """Whether one can write there, and how much."""
    check, there = f"disk of {name}", _existing(folder)
    try:
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free
    except OSError as error:
        text = f"cannot write to {there}: {error.strerror}"
        return Finding(check, "problem", text, _elsewhere(name))
    text = f"{free / GB:.1f} GB free in {there}"
    if free < room / 50:
        return Finding(check, "problem", text, f"free some space, or {_elsewhere(name)}")
    if free < room:
        return Finding(check, "warning", text, f"long runs need more: free some space, or {_elsewhere(name)}")
    return Finding(check, "ok", text)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that there is and that one may look at."""
    folder = Path(os.path.expanduser(folder)).absolute()  # Path's own refuses a home of nobody
    return next(path for path in (folder, *folder.parents) if os.path.isdir(path))


def _elsewhere(name: str) -> str:
    return "set XDG_CACHE_HOME to another folder" if name == "the cache" else "choose another folder with --out"


def cache() -> Finding:
    """The folder of compiled programs and weights, by the rule of `system.cache_folder`; runs do without it."""
    try:
        found = disk("the cache", cache_folder(), ROOM / 5)
        return found._replace(state="warning") if found.state == "problem" else found
    except RuntimeError as error:  # there is no home folder
        return Finding("disk of the cache", "warning", str(error), _elsewhere("the cache"))


def memory() -> Finding:
    """Memory that is free now, less what a container may not take."""
    free = _free_memory()
    if free is None:
        return Finding("memory", "note", "this system does not say how much is free")
    text = f"{free / GB:.1f} GB free"
    if free < MEMORY:
        advice = "end other programs; train one seed at a time, with --preset cpu"
        return Finding("memory", "warning", text, advice)
    return Finding("memory", "ok", text)


def _free_memory() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    free = next((float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    return min((bytes for bytes in (free, _free_in_container()) if bytes is not None), default=None)


def _free_in_container(group: Path = Path("/sys/fs/cgroup")) -> float | None:
    """What the limit of a container leaves, if there is one; files that are cached can be dropped at any time."""
    try:
        most, now = (float((group / name).read_text()) for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # ValueError: "max", which is no limit
        return None
    return most - now + float(stat.get("inactive_file", 0))


def cores() -> Finding:
    """Cores that this process may use, which a scheduler or a container may have made fewer than there are."""
    many = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if many < 2:
        advice = "give it a second core: environments step while the agent learns"
        return Finding("cores", "warning", "1", advice)
    return Finding("cores", "ok", str(many))


def shared_memory(folder: Path = Path("/dev/shm")) -> Finding:
    """Where environments hand over what they see; containers often have little of it."""
    if not folder.is_dir():
        return Finding(
            "shared memory", "note", f"there is no {folder}; files in {tempfile.gettempdir()} take its place"
        )
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        text, advice = f"cannot write to {folder}: {error.strerror}", f"make {folder} writable: chmod 1777 {folder}"
        return Finding("shared memory", "problem", text, advice)
    text = f"{free / 1e6:.0f} MB free in {folder}"
    if free < 60e6:
        return Finding("shared memory", "warning", text, "in a container, start it with --shm-size 1g")
    return Finding("shared memory", "ok", text)


def ffmpeg() -> Finding:
    """The program that writes clips."""
    from ubp2.evaluation.video import find_ffmpeg

    try:
        return Finding("ffmpeg", "ok", find_ffmpeg())
    except UserError as error:
        what, _, advice = str(error).partition("; ")
        return Finding("ffmpeg", "warning", what, advice)


def port(number: int) -> Finding:
    """Whether the label page gets the port that its address has in the documentation."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", number))
        except (OSError, OverflowError) as error:
            text = f"{number} cannot be had: {getattr(error, 'strerror', None) or error}"
            return Finding("port", "note", text, "the label page takes the next free one, or name one with --port")
    return Finding("port", "ok", f"{number} is free for the label page")
