"""ubp2 bench train: decisions a second of a short real run, and where the time of a decision goes.

The loop holds no timers. Here its phases, its programs and its environments are wrapped from outside. Half of the
decisions run as they always do, so that waiting shows where it happens; in the other half every program is waited for
at once, so that the device's time shows where it belongs.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

from ubp2 import api, trainer
from ubp2.bench.options import Train
from ubp2.bench.report import Report, Row
from ubp2.bench.subject import base_config
from ubp2.bench.timing import memory_megabytes, worker_megabytes
from ubp2.config.schema import CheckpointConfig, Config, EvaluationConfig
from ubp2.envs.workers import make_vector
from ubp2.system import resident_megabytes
from ubp2.training import asking, compilation, loop

__all__ = ["measure"]

PARTS = {"_act": "act", "_actions": "act", "_learn": "update", "_record": "record", "_end_episodes": "episodes"}
SETTLING = 10  # decisions at the start of each measurement that do not count
WARM_UP = 50


class Meter:
    """Seconds of each part of each decision, with the phase of the run and whether programs were waited for."""

    def __init__(self, decisions: int) -> None:
        self._decisions = decisions
        self._seen: dict[str, int] = defaultdict(int)
        self._began = 0.0
        self._now: dict[str, float] = defaultdict(float)
        self._where: tuple[str, bool] | None = None
        self.rows: dict[tuple[str, bool], list[dict[str, float]]] = defaultdict(list)
        self.waiting = False
        self.memory: dict[str, float] = {}

    def begin(self, phase: str) -> None:
        """A decision begins, and with it the one before ends."""
        while phase != "warm-up" and compilation.busy():  # what still compiles takes turns with the loop
            time.sleep(0.05)
        now = time.perf_counter()
        if self._where is not None:
            self.rows[self._where].append(dict(self._now) | {"all": now - self._began})
        self._seen[phase] += 1
        self.waiting = phase != "warm-up" and self._seen[phase] > self._decisions + SETTLING
        self._began, self._where = now, (phase, self.waiting)
        self._now = defaultdict(float)

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, with its seconds added to a part of the decision."""

        def run(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self._now[name] += time.perf_counter() - start

        return run

    def program(self, name: str, program: Any) -> Any:
        """A program that is waited for in the second half of each phase."""

        def run(*arguments: Any) -> Any:
            return jax.block_until_ready(program(*arguments)) if self.waiting else program(*arguments)

        return _Wrapped(program, __call__=self.timed(f"device {name}", run))


class _Wrapped:
    """An object with some of its methods replaced."""

    def __init__(self, inner: Any, **methods: Callable[..., Any]) -> None:
        self._inner, self._methods = inner, methods

    def __call__(self, *arguments: Any) -> Any:
        return self._methods["__call__"](*arguments)

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._inner, name)


def measure(options: Train) -> Report:
    """A run for each number of seeds."""
    rows: list[Row] = []
    parts: list[Row] = []
    for seeds in options.seeds:
        meter = _run(_short(base_config(options, options.env), options.decisions), seeds, options.decisions)
        rows.append(_summary(options.env, seeds, meter))
        parts += [_parts(seeds, phase, meter) for phase in ("planning", "policy")]
    notes = [
        "decisions/s are of all seeds together; a session is one end of an episode with its questions",
        "parts are shares of the mean decision as it runs: act waits for the device, update only hands it its work",
        "program ms: median of the plan or the policy, the update and the record when each is waited for at once",
    ]
    return Report("train", {"train": rows, "parts of a decision": parts}, notes)


def _summary(env: str, seeds: int, meter: Meter) -> Row:
    summary: dict[str, Any] = {"env": env, "seeds": seeds}
    for phase in ("planning", "policy"):
        times = [row["all"] for row in meter.rows[phase, False][SETTLING:]]
        summary[f"{phase}_decisions_per_s"] = seeds * len(times) / sum(times)
        summary[f"{phase}_median_ms"] = 1e3 * float(np.median(times))
    summary["session_ms"] = 1e3 * meter.rows["planning", True][-1].get("episodes", 0.0)  # what ends the planning
    return summary | meter.memory


def _parts(seeds: int, phase: str, meter: Meter) -> Row:
    free, waited = meter.rows[phase, False][SETTLING:], meter.rows[phase, True][:-1]
    total = sum(row["all"] for row in free)
    names = ("act", "environment", "update", "record", "episodes")
    shares = {name: sum(row.get(name, 0.0) for row in free) / total for name in names}
    acting = "device plan" if phase == "planning" else "device policy"

    def median(name: str) -> float:
        return 1e3 * float(np.median([row.get(name, 0.0) for row in waited]))

    return {
        "seeds": seeds,
        "phase": phase,
        "mean_ms": 1e3 * total / len(free),
        **shares,
        "rest": 1.0 - sum(shares.values()),
        "act_program_ms": median(acting),
        "update_program_ms": median("device update"),
        "record_program_ms": median("device record"),
    }


def _short(config: Config, decisions: int) -> Config:
    """The same sizes with one session of questions, after the measurements of planning, and nothing in between."""
    envs = make_vector(config.env, config.environment, 1)
    length = envs.spec.episode_decisions
    envs.close()
    each = 2 * (decisions + SETTLING)
    warmup = -(-WARM_UP // length) * length  # whole episodes: what the first end of one loads is not the rate of a run
    episodes = -(-(warmup + each) // length)
    preferences = dataclasses.replace(
        config.preferences,
        every=episodes * length,
        budget=config.preferences.per_session,
        segment_length=min(config.preferences.segment_length, length),
    )
    training = dataclasses.replace(config.training, warmup=warmup, warmup_updates=1)
    steps = episodes * length + each + 1
    controllers = EvaluationConfig(every=0, episodes=1, controllers=("policy",))
    return dataclasses.replace(
        config,
        steps=steps,
        preferences=preferences,
        training=training,
        evaluation=controllers,
        checkpoint=CheckpointConfig(every=2 * steps),
    )


def _run(config: Config, seeds: int, decisions: int) -> Meter:
    """Train in a folder that goes away."""
    meter = Meter(decisions)
    with tempfile.TemporaryDirectory() as folder, _watched(meter):
        api.train(config, seeds=seeds, out=Path(folder) / "run", progress=False)
    return meter


@contextmanager
def _watched(meter: Meter) -> Iterator[None]:
    """Wrap the loop's phases, programs and environments."""
    act, shared_programs, make_envs, show = loop._act, loop.shared_programs, trainer.environment, trainer.see

    def begin(crew: Any, programs: Any, state: Any) -> Any:
        meter.begin(asking.phase(crew, state.counters))
        return meter.timed("act", act)(crew, programs, state)

    def programs(*arguments: Any) -> Any:
        made = shared_programs(*arguments)
        named = {"plan": "plan", "react": "policy", "update": "update", "record": "record"}
        return made._replace(**{name: meter.program(told, getattr(made, name)) for name, told in named.items()})

    @contextmanager
    def environment(*arguments: Any) -> Iterator[Any]:
        with make_envs(*arguments) as envs:
            yield envs
            memory = (resident_megabytes(), worker_megabytes(), memory_megabytes())
            meter.memory = dict(zip(("resident_mb", "workers_mb", "device_mb"), memory, strict=True))

    def see(*arguments: Any) -> Any:
        envs = show(*arguments)
        return _Wrapped(
            envs, send=meter.timed("environment", envs.send), receive=meter.timed("environment", envs.receive)
        )

    parts: dict[str, Any] = {name: meter.timed(part, getattr(loop, name)) for name, part in PARTS.items()} | {
        "_act": begin
    }
    with (
        mock.patch.multiple(loop, shared_programs=programs, **parts),
        mock.patch.multiple(trainer, environment=environment, see=see),
    ):
        yield
