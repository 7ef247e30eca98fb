"""The runs that benchmarks/faults.py does its worst to: small ones, each trained by a process that can be killed."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.experiments.sweeps import command, parent
from tests.training.helpers import assert_same_run, environment, tiny
from tests.training.test_people import Person
from ubp2.config.files import save_yaml
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.storage import population

STEPS = 800


def subject(**changes: Any) -> Config:
    """A run of some twenty seconds, with environments in processes of their own."""
    settings: dict[str, Any] = {
        "steps": STEPS,
        "environment": {"in_process": False, "episode_decisions": 20, "patience": 5.0},
        "preferences": {"budget": 60},
        "checkpoint": {"every": 100},
        "evaluation": {"every": 300},
    }
    for section, values in changes.items():
        settings[section] = (
            {**settings[section], **values} if isinstance(values, dict) and section in settings else values
        )
    return tiny(**settings)


SUBJECTS: dict[str, tuple[Config, int]] = {
    "one seed": (subject(), 1),
    "three seeds": (subject(seed=10), 3),
    "pebble": (subject(agent="pebble", seed=20), 1),
    "people": (subject(teacher={"name": "human", "serve": False}, seed=30), 1),
}


class Training:
    """`ubp2 train` of a subject, or `--resume` of its folder, in a process of its own."""

    def __init__(self, config: Config, seeds: int, folder: Path, limit: int | None = None) -> None:
        self.folder = folder
        begun = _is_run(folder, seeds)
        if not begun and folder.is_dir():
            shutil.rmtree(folder)  # killed while it was made
        save_yaml(config, folder.with_suffix(".yaml"))
        new = ["--config", str(folder.with_suffix(".yaml")), "--seeds", str(seeds), "--out", str(folder)]
        arguments = ["--resume", str(folder)] if begun else new
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ubp2", "train", "--quiet", *arguments],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )

    def ends(self) -> tuple[int, str]:
        """Exit code and the last of what it said."""
        said = self.process.communicate(timeout=600)[1].decode(errors="replace")
        return self.process.returncode, said[-500:]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def workers(self) -> list[int]:
        """Its environment processes."""
        own = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(pid) == self.process.pid]
        return [pid for pid in own if any("worker_process" in word for word in command(pid))]


def _is_run(folder: Path, seeds: int) -> bool:
    try:
        members = population.members(folder)
    except UserError:
        return False
    return len(members) == seeds and all((member / "config.yaml").exists() for member in members)


def checkpoints(folder: Path) -> Iterator[Path]:
    """The manifests of all that a run, or several seeds, have saved."""
    yield from folder.glob("checkpoints/[0-9]*/manifest.json")
    yield from folder.glob("s*/checkpoints/[0-9]*/manifest.json")


@contextmanager
def taught(config: Config, folder: Path) -> Iterator[None]:
    """Somebody answers what the run asks, whether it lives or not."""
    person = Person(folder) if config.teacher.name == "human" else None
    if person:
        person.start()
    try:
        yield
    finally:
        if person:
            person.done.set()
            person.join()


def run_out(config: Config, seeds: int, folder: Path) -> None:
    """Train to the end in peace."""
    with taught(config, folder):
        code, said = Training(config, seeds, folder).ends()
    assert code == 0, said


def equal(one: Path, other: Path) -> str | None:
    """None, or what differs."""
    try:
        for a, b in zip(population.members(one), population.members(other), strict=True):
            assert_same_run(a, b)
    except AssertionError as error:
        return f"differs: {str(error)[:300]}"
    return None
