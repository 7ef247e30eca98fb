"""Trials under Ray Tune: it places them, feeds their scores to ASHA, stops the worse, and retries what fails.

A trial is one actor that trains a group of seeds with `ubp2 train` in a process, as every experiment does, and reports
what its run folders say. Nothing of Tune's own record of an experiment is read again: it holds no rungs of ASHA, so
that a restored search would judge by the trials to come alone. A search that goes on tells ASHA the scores of trials
that have ended from their run folders, and other trials report all of their scores from the first on.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from ray import tune
from ray.tune import schedulers

from ubp2.config.files import load_yaml
from ubp2.errors import UserError
from ubp2.experiments.cells import CONFIG, Cell, Group
from ubp2.experiments.execution import Outcome, Workers
from ubp2.experiments.programs import Program
from ubp2.experiments.tuning import study as studies
from ubp2.experiments.tuning.study import Score, Study, Trial
from ubp2.terminal.progress import say

__all__ = ["Resources", "search"]

STOP = "stop"  # a file in the folder of a search, which ends it on whatever machine it runs
_RECORD = "ray"  # where Tune writes its own record
_POLL = 0.3  # seconds between looks at the run folders
_SHARE = 20  # looks take at most this part of the time

# Tune leaves Ctrl-C to us, writes no curves beside those of the runs, and says nothing of its own.
_QUIET = {"TUNE_DISABLE_SIGINT_HANDLER": "1", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_AIR_NEW_OUTPUT": "0"}


class Resources(NamedTuple):
    """What a trial needs, and how often it is tried again."""

    cpus: float
    gpus: float
    jobs: int | None
    retries: int


def search(study: Study, out: Path, found: Sequence[Trial], resources: Resources) -> dict[str, str]:
    """Train the trials that have not ended; returns the reasons of those that failed, by name.

    Everything that a cluster needs of the command lies in `out`.
    """
    ended = [trial for trial in found if studies.ended(trial, study.metric)]
    missing = [trial for trial in found if trial not in ended]
    os.environ.update(_QUIET)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what fails is told at the end, in fewer words
    shutil.rmtree(out / _RECORD, ignore_errors=True)
    tuner = tune.Tuner(
        tune.with_resources(_Training, {"CPU": resources.cpus, "GPU": resources.gpus}),
        param_space={
            "here": os.getcwd(),
            "out": str(out),
            "metric": study.metric,
            "first": study.seed,
            "seeds": study.seeds,
            "trial": tune.grid_search([trial.name for trial in missing]),
        },
        tune_config=tune.TuneConfig(
            scheduler=_scheduler(study, ended),
            max_concurrent_trials=resources.jobs,
            trial_dirname_creator=lambda trial: trial.config["trial"],
        ),
        run_config=tune.RunConfig(
            name="search",
            storage_path=str(out / _RECORD),
            stop=_Stopper(str(out)),
            callbacks=[_Told(str(out), study.config.steps, study.metric, len(found), len(ended))],
            failure_config=tune.FailureConfig(max_failures=resources.retries),
            verbose=0,
        ),
    )
    grid = tuner.fit()
    return {each.config["trial"]: _reason(each.error) for each in grid if each.error and each.config}


def stopping(out: Path) -> bool:
    """Whether the search in a folder was asked to stop."""
    return (out / STOP).exists()


def _scheduler(study: Study, ended: Sequence[Trial]) -> schedulers.ASHAScheduler:
    """ASHA over decisions, which knows the scores of the trials that have ended."""
    asha = schedulers.ASHAScheduler(
        time_attr="decision",
        metric="score",
        mode="max",
        max_t=study.config.steps,
        grace_period=study.grace,
        reduction_factor=study.reduction,
    )
    for trial in ended:
        known: Any = SimpleNamespace(trial_id=trial.name)  # all that ASHA looks at
        asha.on_trial_add(None, known)  # type: ignore[arg-type]
        for score in studies.scores(trial.group, study.metric):
            asha.on_trial_result(None, known, score._asdict())  # type: ignore[arg-type]
    return asha


def _reason(error: BaseException) -> str:
    """The cause of a failure without the frames of Ray."""
    cause = getattr(error, "cause", None) or error
    lines = [line for line in str(cause).splitlines() if line.strip()]
    return "\n".join(lines[-10:])


class _Stopper(tune.Stopper):
    """Ends the search when the file `stop` is there and all runs have left: Tune gives them only seconds."""

    def __init__(self, out: str) -> None:
        self._out = Path(out)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return stopping(self._out) and not studies.written(self._out)


class _Told(tune.Callback):
    """Says what becomes of trials, and remembers those that were stopped early."""

    def __init__(self, out: str, steps: int, metric: str, total: int, ended: int) -> None:
        self._out, self._steps, self._metric = Path(out), steps, metric
        self._total, self._ended = total, ended

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        if result["decision"] and not stopping(self._out):
            say(f"{trial.config['trial']}: {self._metric} {result['score']:.3g} at {self._at(result)}")

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        name, result = trial.config["trial"], trial.last_result or {}
        if stopping(self._out) or "decision" not in result:
            return
        self._ended += 1
        early = result["decision"] < self._steps
        if early:
            studies.end_early(self._out / name, Score(result["decision"], result["score"]))
        what = f"stopped early at {self._at(result)}" if early else "finished"
        say(f"[{self._ended}/{self._total}] {name}: {what}, {self._metric} {result['score']:.3g}")

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        say(f"{trial.config['trial']}: failed or lost its node, tried again from its last checkpoint")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        self._ended += 1
        say(f"[{self._ended}/{self._total}] {trial.config['trial']}: failed")

    def _at(self, result: dict[str, Any]) -> str:
        return f"{result['decision']:,} of {self._steps:,}"


class _Training(tune.Trainable):
    """One trial: a child process trains, and every step of Tune is one evaluation in its run folders."""

    def setup(self, config: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # Tune has gone to a folder of its own; modules of users lie in theirs
            os.chdir(config["here"])
        self._out, self._metric = Path(config["out"]), config["metric"]
        folder = self._out / config["trial"]
        own = load_yaml(folder / CONFIG)
        self._group = Group(
            Cell(own.env, config["trial"], own, config["seeds"], folder), config["first"], config["seeds"]
        )
        self._last = Score(0, math.nan)
        self._looked = 0.0  # seconds that the last look took
        self._outcomes: list[Outcome] = []
        self._over = threading.Event()
        self._workers = Workers(1, 0, lambda _: None)
        self._thread = threading.Thread(target=self._train)
        self._thread.start()

    def step(self) -> dict[str, Any]:
        """Wait for the next evaluation; the last one counts when the run has ended in order."""
        while not stopping(self._out):
            over = self._over.is_set()
            new = [score for score in self._scores() if score.decision > self._last.decision]
            if new and (over or new[0].decision < self._group.cell.config.steps):
                self._last = new[0]
                return self._last._asdict()
            if over:
                raise RuntimeError(self._complaint())
            self._over.wait(max(_POLL, _SHARE * self._looked))
        self.cleanup()
        return {**self._last._asdict(), "done": True}

    def cleanup(self) -> None:
        """Let the run write a checkpoint and leave, before somebody else gets its cores."""
        self._workers.stop()
        self._thread.join()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Runs keep their checkpoints themselves."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Runs go on from their own checkpoints."""

    def _train(self) -> None:
        try:
            self._outcomes.extend(self._workers.run([Program((self._group,))], clips=False))
        finally:
            self._over.set()

    def _scores(self) -> list[Score]:
        start = time.monotonic()
        try:
            return studies.scores(self._group, self._metric)
        except (UserError, OSError):  # a folder that is being made
            return []
        finally:
            self._looked = time.monotonic() - start

    def _complaint(self) -> str:
        (outcome,) = self._outcomes or [Outcome(self._group, "failed", reason="its process could not be started")]
        if outcome.state == "finished":
            return f"{self._group.cell.method} ended without an evaluation of its {self._metric}"
        return outcome.reason or f"{self._group.cell.method} was stopped from outside"
