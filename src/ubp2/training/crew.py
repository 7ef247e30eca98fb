"""Everything outside the device that a population works with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ubp2.config.schema import Config, given
from ubp2.envs.base import Lost, VectorEnv
from ubp2.preference.store import LabelStore
from ubp2.preference.teachers import Teacher
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import Metrics, Run
from ubp2.terminal.progress import Progress

__all__ = ["Crew", "Member"]

T = TypeVar("T")


class Member(NamedTuple):
    """What one seed has of its own: a run folder and the files in it."""

    run: Run
    archive: EpisodeArchive
    store: LabelStore
    metrics: Metrics

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.run.config.seed


@dataclass(frozen=True)
class Crew:
    """S members and what they share. A single run is the case S = 1."""

    config: Config  # resolved; that of the first member, from which the others differ in the seed alone
    members: list[Member]
    envs: VectorEnv  # one environment a member
    eval_envs: Callable[[], VectorEnv]  # `evaluation.workers` a member, made at the first call
    teacher: Teacher | None  # one of the user's own; None: the scripted one of the config
    progress: Progress
    stopping: Callable[[], bool]  # a signal asked for the end
    waited: Callable[[], float]  # seconds since the user began to wait
    pool: ThreadPoolExecutor  # waits for the disk

    @property
    def size(self) -> int:
        """How many members there are, S."""
        return len(self.members)

    @property
    def people(self) -> bool:
        """Whether people answer, when they do, and not a function at once."""
        return self.teacher is None and self.config.teacher.name == "human"

    def headline(self) -> str:
        """What is trained, how long, and where, for whoever has just started it."""
        config, folder = self.config, self.members[0].run.folder
        seeds, place = (f", {self.size} seeds", folder.parent) if self.size > 1 else ("", folder)
        labels = "the true reward" if config.ceiling else f"{given(config.preferences.budget):,} labels"
        return f"{config.env}, {config.agent}{seeds}: {config.steps:,} decisions, {labels}, in {place}"

    def replace(self, lost: Lost) -> None:
        """Have other processes in the place of lost ones, unless the run is to stop before they stand."""
        try:
            self.envs.revive(lost)
        except Lost:
            if not self.stopping():
                raise

    def each(self, function: Callable[[int], T], seeds: Iterable[int]) -> dict[int, T]:
        """`function` of each of these members, several at a time: what it does is mostly to wait for the disk."""
        seeds = list(seeds)
        if len(seeds) == 1:
            return {seeds[0]: function(seeds[0])}
        return dict(zip(seeds, self.pool.map(function, seeds), strict=True))
