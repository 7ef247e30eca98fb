"""Everything outside the device that a population works with: its members, their environments and their files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from ubp2.config.schema import Config, given
from ubp2.envs.base import EnvSpec, Faulty, Lost, VectorEnv
from ubp2.errors import UserError
from ubp2.preference.store import LabelStore
from ubp2.preference.teachers import Teacher
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import Metrics, Run
from ubp2.terminal.progress import Progress
from ubp2.training.limits import TimeLimit
from ubp2.training.member_axis import Layout, Sizes

__all__ = ["Crew", "Member"]

T = TypeVar("T")


class Member(NamedTuple):
    """One run of a program: its configuration, environment and teacher, and its folder with the files in it."""

    run: Run
    archive: EpisodeArchive
    store: LabelStore
    metrics: Metrics
    spec: EnvSpec  # of its environment, as the agent is shown it
    teacher: Teacher | None = None  # one of the user's own; None: the scripted one of its configuration

    @property
    def config(self) -> Config:
        """The resolved configuration."""
        return self.run.config

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.run.config.seed

    @property
    def budget(self) -> int:
        """Labels that the run may ask for."""
        return given(self.run.config.preferences.budget)

    @property
    def capacity(self) -> int:
        """The most labels that it learns from: its budget, and those of other runs."""
        return max(self.budget + self.run.config.preferences.imported, 1)


@dataclass(frozen=True)
class Crew:
    """S members and what they share. A single run is the case S = 1.

    A member that fails (a dead simulator, a number that is not finite, a full disk) is left out from then on: its row
    of every array stays and is not read. Where none is left, the error of the first ends the program.
    """

    config: Config  # resolved, of the first member; read for what members share (`member_axis.clock_key`)
    members: list[Member]
    envs: VectorEnv  # one environment a member
    eval_envs: Callable[[], VectorEnv]  # `evaluation.workers` a member, made at the first call
    progress: Progress
    stopping: Callable[[], bool]  # a signal asked for the end
    waited: Callable[[], float]  # seconds since the user began to wait
    pool: ThreadPoolExecutor  # waits for the disk
    limit: TimeLimit = field(default_factory=TimeLimit)
    failed: dict[int, UserError] = field(default_factory=dict)  # why members were left out

    @cached_property
    def layout(self) -> Layout:
        """The structure that the programs of the members share."""
        return Layout.of([member.config for member in self.members], self.sizes)

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of every environment."""
        return Sizes.of(self.envs.spec)

    @cached_property
    def budgets(self) -> np.ndarray:
        """Labels that each member may ask for, [S]."""
        return np.array([member.budget for member in self.members], np.int64)

    @property
    def alive(self) -> np.ndarray:
        """Which members [S] have not failed."""
        return np.array([i not in self.failed for i in range(self.size)], bool)

    @property
    def working(self) -> list[int]:
        """The members that have not failed, by number."""
        return [i for i in range(self.size) if i not in self.failed]

    def name(self, i: int) -> str:
        """A member as a person is told: by seed where members differ in nothing else."""
        seeds = self.size == 1 or all(
            name == f"s{each.seed}" for name, each in zip(self._names, self.members, strict=True)
        )
        return f"seed {self.members[i].seed}" if seeds else self._names[i]

    @cached_property
    def _names(self) -> list[str]:
        """Run folders without what they have in common."""
        parts = [member.run.folder.parts for member in self.members]
        common = 0
        while all(len(own) > common + 1 and own[common] == parts[0][common] for own in parts):
            common += 1
        return ["/".join(own[common:]) for own in parts]

    def fail(self, i: int, error: UserError) -> None:
        """Leave a member out from now on; raises where nobody is left."""
        if i in self.failed:
            return
        self.failed[i] = error
        if len(self.failed) == self.size:
            raise next(iter(self.failed.values()))
        with suppress(UserError):  # a full disk may be why
            self.members[i].run.note({"failed": str(error)})  # a resume goes on with it apart from the others
        self.progress.note(f"{self.name(i)} stops here, the others go on: {error}")

    def blame(self, i: int, make: Callable[[], UserError]) -> None:
        """`fail` with an error whose making may meet a full disk."""
        try:
            error = make()
        except UserError as other:
            error = other
        self.fail(i, error)

    def attempt(self, i: int, function: Callable[[], T]) -> T | None:
        """`function` on behalf of a member, who fails with it."""
        try:
            return function()
        except UserError as error:
            self.fail(i, error)
            return None

    @property
    def size(self) -> int:
        """How many members there are, S."""
        return len(self.members)

    @property
    def people(self) -> bool:
        """Whether people answer, when they do, and not a function at once."""
        first = self.members[0]
        return first.teacher is None and first.config.teacher.name == "human"

    def headline(self) -> str:
        """What is trained, how long, and where, for whoever has just started it."""
        config, folder = self.config, self.members[0].run.folder
        envs, agents = (set(values) for values in self._kinds())
        env = config.env if len(envs) == 1 else f"{len(envs)} tasks"
        agent = config.agent if len(agents) == 1 else f"{len(agents)} agents"
        seeds = {member.seed for member in self.members}
        equal = self.size == len(seeds)
        runs = "" if self.size == 1 else f", {self.size} {'seeds' if equal else 'runs'}"
        least, most = self.budgets.min(), self.budgets.max()
        labels = f"{least:,} labels" if least == most else f"{least:,} to {most:,} labels"
        labels = "the true reward" if config.ceiling else labels
        place = folder if self.size == 1 else folder.parents[len(self._names[0].split("/")) - 1]
        return f"{env}, {agent}{runs}: {config.steps:,} decisions, {labels}, in {place}"

    def _kinds(self) -> tuple[list[str], list[str]]:
        return [member.config.env for member in self.members], [member.config.agent for member in self.members]

    def replace(self, lost: Lost) -> list[int]:
        """Have other processes in the place of lost ones, unless the run is to stop before they stand.

        Returns the members that go on; one whose environment is lost again and again fails.
        """
        try:
            self.envs.revive(lost)
        except Faulty as error:
            for each in error.all:
                self.fail(each.index, each)
        except Lost:
            if not self.stopping():
                raise
        return [i for i in lost.indices if i not in self.failed]

    def each(self, function: Callable[[int], T], members: Iterable[int]) -> dict[int, T]:
        """`function` of each of these members, several at a time: what it does is mostly to wait for the disk.

        Those that raise a `UserError` fail, and are not in the outcome.
        """

        def tried(i: int) -> T | UserError:
            try:
                return function(i)
            except UserError as error:
                return error

        todo = [i for i in members if i not in self.failed]
        done = [tried(todo[0])] if len(todo) == 1 else list(self.pool.map(tried, todo))
        for i, outcome in zip(todo, done, strict=True):
            if isinstance(outcome, UserError):
                self.fail(i, outcome)
        return {i: outcome for i, outcome in zip(todo, done, strict=True) if not isinstance(outcome, UserError)}
