"""Recorded episodes as something to label: a folder that looks like a run, with questions and without a trainer.

Episodes come from run folders, or from .npz files with `obs` [T+1, D] and `action` [T, A], whose clips are drawn. The
pairs are drawn at random, once: the same command again serves the same questions. What people answer goes where all
labels go, and `ubp2 labels export` hands it to `ubp2 train --labels`.
"""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ubp2.config.schema import Config
from ubp2.errors import UserError
from ubp2.labelling import transfer
from ubp2.preference.store import LabelStore
from ubp2.storage import population
from ubp2.storage.archive import EpisodeArchive
from ubp2.storage.runs import Run
from ubp2.types import Episode, Query

__all__ = ["prepare"]

NAME = "dataset"  # environment of episodes that no environment made


def prepare(sources: Sequence[Path], out: Path, *, pairs: int, length: int, seed: int = 0) -> Path:
    """Make the folder with `pairs` questions about segments of `length` decisions; the same again changes nothing."""
    if pairs < 1 or length < 1:
        raise UserError(f"--pairs and --length must be at least 1, got {pairs} and {length}")
    made_of = {"dataset": [str(source.resolve()) for source in sources], "pairs": pairs, "length": length}
    if (out / "config.yaml").exists():
        _require_same(out, made_of)
        return out
    found = [_config(source) for source in sources]
    config = next((own for own in found if own is not None), Config(env=NAME))
    others = sorted({own.env for own in found if own is not None} - {config.env})
    if others:
        raise UserError(f"a dataset is of one environment, got {config.env} and {', '.join(others)}; label them apart")
    preferences = dataclasses.replace(config.preferences, segment_length=length, budget=pairs)
    teacher = dataclasses.replace(config.teacher, name="human")
    config = dataclasses.replace(config, preferences=preferences, teacher=teacher)
    custom = () if any(own is not None for own in found) else ("environment",)
    with Run.create(out, config, custom=custom) as run, _removed_on_error(out):
        with EpisodeArchive(run.episodes) as archive:
            for index, episode in enumerate(_alike(sources)):
                archive.append(episode._replace(index=index))
            questions = _questions(archive, pairs, length, seed)
        with LabelStore(run.labels) as store:
            store.ask(0, 0, questions, "uniform")
        run.note({"dataset": made_of})  # last: without it the folder is no dataset
    return out


def _require_same(out: Path, made_of: dict[str, Any]) -> None:
    """Refuse a folder that another command made: its questions are others."""
    known = Run.open(out).info().get("dataset")
    serve = f"name another folder, or serve its questions as they are: ubp2 label {shlex.quote(str(out))}"
    if known is None:
        raise UserError(f"{out} is a run that does not say which dataset it was made of; {serve}")
    different = [
        f"--{name} was {_words(known[name])} and is {_words(made_of[name])}"
        for name in made_of
        if known[name] != made_of[name]
    ]
    if different:
        raise UserError(f"{out} holds another dataset: {'; '.join(different)}; {serve}")


def _words(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


def _alike(sources: Sequence[Path]) -> Iterator[Episode]:
    """The episodes of all sources, which must be of one size to be compared."""
    sizes: dict[tuple[int, int], Path] = {}
    for source in sources:
        for episode in _episodes(source):
            sizes.setdefault((episode.obs.shape[1], episode.action.shape[1]), source)
            if len(sizes) > 1:
                said = " and ".join(f"{of} has {d} and {a}" for (d, a), of in sizes.items())
                raise UserError(f"observations and actions of a dataset have one size each: {said}; label them apart")
            yield episode


@contextmanager
def _removed_on_error(folder: Path) -> Iterator[None]:
    """Half a dataset would be served as a whole one the next time."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _config(source: Path) -> Config | None:
    """The configuration of a run folder; None: a file of episodes."""
    if source.suffix == ".npz":
        return None
    runs = [Run.open(member) for member in population.members(source)]
    transfer.require_one_task(source, runs)
    return runs[0].config


def _episodes(source: Path) -> Iterator[Episode]:
    if source.suffix != ".npz":
        for member in population.members(source):
            with EpisodeArchive(Run.open(member).episodes) as archive:
                yield from archive.iterate()
        return
    try:
        with np.load(source, allow_pickle=False) as arrays:
            obs, action = (np.asarray(arrays[name], np.float32) for name in ("obs", "action"))
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{source} must hold the arrays obs [T+1, D] and action [T, A]: {error}") from None
    if obs.ndim != 2 or action.ndim != 2 or len(obs) != len(action) + 1:
        raise UserError(f"{source}: obs must be [T+1, D] and action [T, A], got {obs.shape} and {action.shape}")
    for name, array in (("obs", obs), ("action", action)):
        if not np.isfinite(array).all():  # a file of such labels would be refused, after people have answered
            step = int(np.argwhere(~np.isfinite(array))[0, 0])
            raise UserError(f"{source}: {name}[{step}] has a value that is no finite number; cut the episode before it")
    blank = np.zeros(len(action))
    yield Episode(0, 0, obs, action, blank.astype(np.float64), blank.astype(np.bool_), terminated=False)


def _questions(archive: EpisodeArchive, pairs: int, length: int, seed: int) -> list[Query]:
    """Pairs of different segments, drawn uniformly over all places where one fits."""
    episodes = list(archive.iterate())
    places = [(e.index, start) for e in episodes for start in range(len(e.action) - length + 1)]
    if len(places) < 2:
        raise UserError(
            f"there are {len(episodes)} episodes, and no two segments of {length} decisions in them; lower --length"
        )
    draw = np.random.default_rng(seed)

    def side(place: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        index, start = place
        return episodes[index].obs[start : start + length], episodes[index].action[start : start + length]

    questions = []
    for _ in range(pairs):
        left, right = (places[i] for i in draw.choice(len(places), 2, replace=False))
        questions.append(Query(*side(left), *side(right), *left, *right, score=float("nan")))
    return questions
