"""A search as its folder has it: what is searched, the trials with their settings, scores and states.

    DIR/tune.yaml                what was asked for, which stays what it is; only the number of trials may grow
    DIR/trial-003/cell.yaml      the configuration of a trial
    DIR/trial-003/seeds-0/       its run folder, or folders of several seeds
    DIR/trial-003/ended.json     that it was stopped early, and where
    DIR/best.yaml                the best settings so far, for `ubp2 train --config`

Everything is read from these files, so that whatever is killed goes on by the same command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from ubp2.config.files import from_dict, overridden, to_dict
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config, given
from ubp2.config.switching import check_asked
from ubp2.errors import UserError
from ubp2.evaluation.results import read_runs
from ubp2.experiments.cells import Cell, Group, check_config, write_config
from ubp2.experiments.tuning.space import Point, draw, read
from ubp2.storage import locks
from ubp2.storage.runs import write_json

__all__ = [
    "Score",
    "Study",
    "Trial",
    "best_config",
    "end_early",
    "ended",
    "ended_early",
    "last_score",
    "open_study",
    "scores",
    "settle",
    "trials",
    "write_configs",
    "written",
]

FILE = "tune.yaml"
_ENDED = "ended.json"
_LAST = 3  # evaluations that a score is the mean of: one, of some episodes, is too much a matter of luck
_EVALUATIONS = 10  # at least so many in a trial, so that there is something to stop it by


@dataclass(frozen=True)
class Study:
    """What was asked for."""

    config: Config  # what trials share, as the preset, the file and --set have it; not resolved
    space: Mapping[str, Any]
    trials: int
    seeds: int
    seed: int
    metric: str  # success or return
    reduction: float
    grace: int
    episode_decisions: int


class Trial(NamedTuple):
    """One setting that is tried: its number, what differs from the shared settings, and its runs."""

    number: int
    point: Point
    group: Group

    @property
    def name(self) -> str:
        return self.group.cell.method


class Score(NamedTuple):
    """How good a trial is at an evaluation: the mean over its seeds and its last evaluations."""

    decision: int
    score: float


def trials(study: Study, out: Path) -> list[Trial]:
    """Every trial with its configuration; a space from which nothing can run is told here."""
    shared = _shared(study)

    def resolved(point: Point) -> Config:
        config = overridden(shared, point)
        check_asked(config, point)
        return resolve(config, study.episode_decisions)

    found = []
    for number in range(study.trials):
        point = draw(study.space, study.seed, number, resolved)
        name = f"trial-{number:03d}"
        cell = Cell(study.config.env, name, resolved(point), study.seeds, out / name)
        found.append(Trial(number, point, Group(cell, study.seed, study.seeds)))
    return found


def _shared(study: Study) -> Config:
    """The settings of all trials: as many labels for each, and evaluations and checkpoints at the same decisions."""
    config = study.config
    resolved = resolve(config, study.episode_decisions)
    often = max(config.steps // _EVALUATIONS, 1)
    return overridden(
        config,
        {
            "preferences.budget": given(resolved.preferences.budget),
            "evaluation.every": min(config.evaluation.every or often, often),
            "checkpoint.every": min(config.checkpoint.every, often),
        },
    )


def settle(study: Study, out: Path) -> Study:
    """Remember what is asked for in a new folder; in one that has a search, go on with it or say what differs."""
    path = out / FILE
    if path.exists():
        before = open_study(out)
        changed = [name for name in asdict(study) if name != "trials" and getattr(before, name) != getattr(study, name)]
        if changed:
            told = "; ".join(f"{name}: {_short(before, name)} -> {_short(study, name)}" for name in changed)
            raise UserError(
                f"{out} holds a search that was asked for otherwise ({told}); choose another folder with --out, "
                f"or go on with it: ubp2 tune --resume {out}"
            )
        if study.trials <= before.trials:
            return before
    elif out.exists() and any(entry.name != "run.lock" for entry in out.iterdir()):
        raise UserError(f"{out} exists, is not empty and holds no search; choose another folder with --out")
    data = {**asdict(study), "config": to_dict(study.config), "space": dict(study.space)}
    partial = path.with_suffix(".tmp")
    partial.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    partial.replace(path)
    return study


def _short(study: Study, name: str) -> str:
    value = getattr(study, name)
    return "other settings" if isinstance(value, Config | Mapping) else str(value)


def open_study(out: Path) -> Study:
    """The search in a folder."""
    path = out / FILE
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        config = from_dict(data.pop("config"))
        return Study(config=config, space=read(data.pop("space"), config), **data)
    except FileNotFoundError:
        raise UserError(f"{out} holds no search of ubp2 tune: there is no {path}; check the path") from None
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError, UserError) as error:
        raise UserError(f"{path} is damaged ({' '.join(str(error).split())}); restore it, or begin anew") from None


def write_configs(found: list[Trial]) -> None:
    """Put every trial's configuration where the nodes of a cluster find it; one that is there must be the same."""
    for trial in found:
        check_config(trial.group.cell)
        write_config(trial.group.cell)


def scores(group: Group, metric: str) -> list[Score]:
    """The scores of a trial at the decisions at which all of its seeds were evaluated; what acts is what counts."""
    if not group.folder.is_dir():
        return []
    series = read_runs([group.folder], metric=metric).series
    if len(series) < group.seeds:
        return []
    own = [dict(zip(one.decision.tolist(), one.score.tolist(), strict=True)) for one in series]
    common = sorted(set.intersection(*(set(each) for each in own)))
    means = [float(np.mean([each[decision] for each in own])) for decision in common]
    return [Score(at, float(np.mean(means[max(i + 1 - _LAST, 0) : i + 1]))) for i, at in enumerate(common)]


def last_score(group: Group, metric: str) -> Score | None:
    """Where a trial stands; None before its first evaluation, or where its runs cannot be read."""
    try:
        return (scores(group, metric) or [None])[-1]
    except (UserError, OSError):
        return None


def end_early(folder: Path, at: Score) -> None:
    """Remember that the scheduler stopped a trial."""
    write_json(folder / _ENDED, at._asdict())


def ended_early(trial: Trial) -> bool:
    """Whether the scheduler stopped a trial, which is then not trained again."""
    return (trial.group.cell.folder / _ENDED).exists()


def ended(trial: Trial, metric: str) -> bool:
    """Whether there is nothing left to train: the trial was stopped early, or evaluated at its end."""
    last = last_score(trial.group, metric)
    return ended_early(trial) or (last is not None and last.decision >= trial.group.cell.config.steps)


def written(out: Path) -> bool:
    """Whether some process writes to a run of the search."""
    runs = (place.parent for depth in ("", "s*/") for place in out.glob(f"trial-*/seeds-*/{depth}{locks.LOCK}"))
    return any(locks.held(run) for run in runs)


def best_config(study: Study, trial: Trial) -> Config:
    """What a trial tried as settings for any run: nothing in it depends on how long a trial was."""
    return overridden(study.config, trial.point)
