"""The start of a run: compile ahead in the background, and measure how long the user waits for the first decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ubp2.agents.base import Agent
from ubp2.terminal.progress import Progress
from ubp2.training.member_axis import Layout
from ubp2.training.programs import Programs
from ubp2.training.records import TERMS, Acted
from ubp2.types import Frame, Preferences

__all__ = ["Stopwatch", "empty_rows", "prepare"]


def empty_rows(layout: Layout) -> Preferences:
    """Rows of one session of a member without an answer, on the host; `judge` and `remember` take those of all."""
    preferences, sizes = layout.config.preferences, layout.sizes
    pairs, length = preferences.per_session, preferences.segment_length
    obs = np.zeros((pairs, length, sizes.obs_dim), np.float32)
    action = np.zeros((pairs, length, sizes.action_dim), np.float32)
    zeros = np.zeros(pairs, np.float32)
    return Preferences(obs, action, obs.copy(), action.copy(), zeros, zeros.copy(), np.int32(0))  # type: ignore


def prepare(programs: Programs, agent: Agent, layout: Layout) -> None:
    """Have everything that this run will call compiled in the background, in the order in which it will be needed."""
    config, spec, seeds = layout.config, layout.sizes, layout.size
    state, memory, carry = programs.init.outputs()
    programs.init.prepare()
    number, flag, real = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.int32, jnp.bool_, jnp.float32))

    def of(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((seeds, *shape), dtype)

    def acting(workers: int) -> tuple[Any, ...]:
        start = of(workers, *carry.shape[2:], dtype=carry.dtype)
        return state, start, of(workers, spec.obs_dim), of(workers, dtype=flag.dtype), real, number, number

    obs, action, counter = of(spec.obs_dim), of(spec.action_dim), of(dtype=jnp.int32)
    frame = Frame(obs, action, of(dtype=jnp.bool_), counter, counter)  # type: ignore[arg-type]
    programs.record.prepare(agent.seen(state), memory, frame, obs, of(dtype=jnp.bool_), of())
    programs.update.prepare(state, memory, number, number)
    programs.plan.prepare(*acting(1))
    if not config.ceiling:
        rows = jax.tree.map(lambda x: of(*x.shape, dtype=x.dtype), empty_rows(layout))
        programs.select.prepare(state, memory, counter, number, number)
        programs.judge.prepare(state, rows)
        programs.remember.prepare(memory.preferences, rows)
        programs.react.prepare(*acting(1))
        if agent.fit is not None:
            programs.fit.prepare(state, memory, of(dtype=jnp.bool_), number)
        if seeds > 1:
            acted = Acted(carry, of(1, spec.action_dim + TERMS + 1))  # type: ignore[arg-type]
            programs.pick.prepare(of(dtype=jnp.bool_), acted, acted)
    for name in config.evaluation.controllers:
        program = programs.eval_plan if name == "planner" else programs.eval_react
        program.prepare(*acting(config.evaluation.workers))
    length = spec.episode_decisions
    programs.predict_reward.prepare(state, of(length, spec.obs_dim), of(length, spec.action_dim))


class Stopwatch:
    """Seconds that the user has waited for the first decision and for the first plan; told once."""

    def __init__(self, progress: Progress, waited: Callable[[], float]) -> None:
        self._progress, self._waited = progress, waited
        self._measured: dict[str, float] = {}
        self._told: set[str] = set()

    def decided(self, planned: bool) -> None:
        """A decision was sent to the environments, by the planner or not."""
        if planned and "time/first_plan" not in self._measured:
            self._measured.setdefault("time/first_decision", self._waited())
            self._measured["time/first_plan"] = self._waited()
            first, plan = self._measured["time/first_decision"], self._measured["time/first_plan"]
            self._progress.note(f"first decision after {first:.1f} s; first plan after {plan:.1f} s")
        elif not self._measured:
            self._measured["time/first_decision"] = self._waited()

    def untold(self) -> dict[str, float]:
        """What has been measured since the last call: a training row takes it along."""
        new = {name: seconds for name, seconds in self._measured.items() if name not in self._told}
        self._told |= new.keys()
        return new
