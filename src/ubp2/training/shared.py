"""Compiled programs that runs of one process share: a second run, an evaluation or a loaded policy compiles nothing.

Programs depend on the structure of a configuration alone; random keys and numbers are their arguments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ubp2.agents.base import Agent
from ubp2.system import require_32_bits
from ubp2.training.member_axis import Layout
from ubp2.training.programs import Programs, bound_to, make_programs

__all__ = ["Kept", "shared_programs"]

MOST = 8  # configurations


class Kept:
    """The programs of the last configurations that were asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: dict[str, Programs] = {}

    def get(self, key: str, make: Callable[[], Programs]) -> Programs:
        with self._lock:
            self._programs[key] = found = self._programs.pop(key, None) or make()
            while len(self._programs) > MOST:
                del self._programs[next(iter(self._programs))]
        return found


_KEPT = Kept()


def shared_programs(layout: Layout, agent: Agent) -> Programs:
    """`make_programs` for an agent as the registry makes it, with what an earlier run of this process has compiled.

    Programs with an agent or a query strategy of somebody's own are made anew: the code behind them may have changed.
    """
    require_32_bits()
    if layout.custom:
        return make_programs(layout, agent)
    found = _KEPT.get(layout.key(), lambda: make_programs(layout, agent))
    keys, settings = bound_to(layout)
    bound = {0: (), 1: (settings,), 2: (keys, settings)}
    fresh = {program: program.bind(*bound[len(program.bound)]) for program in found}
    return Programs(*(fresh[program] for program in found))
