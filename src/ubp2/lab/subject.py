"""What a laboratory works on: episodes with their true reward, divided once, and the configurations to try.

Episodes are divided, not states: neighbours in an episode are nearly alike, and a held-out state whose neighbour was
labelled would measure memory. All mistakes of the user come to light here, before jax is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ubp2.config.presets import preset
from ubp2.config.resolving import is_model_free
from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.lab import settings
from ubp2.lab.options import Reward, check
from ubp2.lab.settings import Settings
from ubp2.preference.teachers import TEACHERS
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.population import run_folders
from ubp2.storage.runs import Run
from ubp2.types import Episode

__all__ = ["Subject", "gather", "places", "split"]


class Subject(NamedTuple):
    """Episodes to label and to measure on, and the resolved configuration of each setting."""

    training: list[Episode]
    held_out: list[Episode]
    settings: Settings
    configs: dict[str, Config]


def gather(what: Reward) -> Subject:
    """Read and check everything that the options name."""
    check(what)
    asked = settings.gather(what.settings, what.set)
    env, episodes = _read(run_folders(what.data))
    configs = settings.configs(asked, preset(what.preset, env), max(len(episode.action) for episode in episodes))
    subject = Subject(*split(episodes, what.held_out, what.seed), asked, configs)
    _check_rewards(subject.held_out)
    for name, config in configs.items():
        _check_agent(name, config.agent)
        _check_teacher(name, config.teacher.name)
        _check_places(name, subject, config.preferences.segment_length, max(what.labels))
    return subject


def split(episodes: Sequence[Episode], held_out: float, seed: int) -> tuple[list[Episode], list[Episode]]:
    """Training and held-out episodes, each numbered from 0 in the order of the runs; at least one of each."""
    count = min(max(round(held_out * len(episodes)), 1), len(episodes) - 1)
    drawn = set(np.random.default_rng(seed).permutation(len(episodes))[:count].tolist())
    sides = [[e for i, e in enumerate(episodes) if (i in drawn) == held] for held in (False, True)]
    training, held = ([e._replace(index=i) for i, e in enumerate(side)] for side in sides)
    return training, held


def places(episodes: Sequence[Episode], length: int) -> int:
    """How many segments of `length` decisions the episodes hold."""
    return sum(max(len(episode.action) - length + 1, 0) for episode in episodes)


def _read(folders: Sequence[Path]) -> tuple[str, list[Episode]]:
    """The environment of the runs, and all their episodes."""
    runs = [Run.open(folder) for folder in folders]
    first, episodes = runs[0], []
    for run in runs:
        if run.config.env != first.config.env:
            raise UserError(
                f"the runs must be of one environment: {first.folder} is of {first.config.env}, "
                f"and {run.folder} of {run.config.env}; study each environment by itself"
            )
        own = _episodes(run)
        if not own:
            raise UserError(f"{run.folder} has no finished episode; train it further, or leave it out of --data")
        episodes += own
    shapes = {(episode.obs.shape[1], episode.action.shape[1]) for episode in episodes}
    if len(shapes) > 1:
        raise UserError(
            f"the episodes must have observations and actions of one size, got {sorted(shapes)}; "
            f"study runs of one environment protocol at a time"
        )
    if len(episodes) < 2:
        raise UserError("at least 2 episodes are needed, one to label and one to measure on, got 1; train further")
    return first.config.env, episodes


def _episodes(run: Run) -> list[Episode]:
    if not run.episodes.is_file():  # opening the archive would make the file
        return []
    with EpisodeArchive(run.episodes) as archive:
        return list(archive.iterate())


def _check_agent(name: str, agent: str) -> None:
    if is_model_free(agent):
        raise UserError(
            f"setting '{name}': the laboratory fits the reward of a world model, and {agent} learns its reward in "
            f"another way; take an agent that plans, such as --preset cpu"
        )


def _check_teacher(name: str, teacher: str) -> None:
    if teacher not in TEACHERS:
        raise UserError(
            f"setting '{name}': in the laboratory a scripted teacher answers, and teacher.name is {teacher}; "
            f"take one of {', '.join(TEACHERS)}"
        )


def _check_rewards(held_out: Sequence[Episode]) -> None:
    rewards = np.concatenate([episode.true_reward for episode in held_out])
    if np.ptp(rewards) == 0:
        raise UserError(
            f"the true reward is {rewards[0]:g} in all {len(rewards)} held-out states, so there is nothing to rank; "
            f"take longer runs, or another --seed"
        )


def _check_places(name: str, subject: Subject, length: int, labels: int) -> None:
    found = places(subject.training, length)
    if found < labels:
        raise UserError(
            f"setting '{name}': {labels} labels were asked for, and the {len(subject.training)} training episodes "
            f"hold only {found} segments of {length} decisions; lower --labels, or add runs to --data"
        )
    if not places(subject.held_out, length):
        raise UserError(
            f"setting '{name}': no held-out episode has the {length} decisions of a segment; "
            f"lower preferences.segment_length, or add runs to --data"
        )
