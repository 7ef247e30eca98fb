"""UBP2: learn what people want from which of two clips they prefer, planning optimistically over what is not yet known.

>>> import ubp2
>>> result = ubp2.train(ubp2.preset("demo"), out="my-run")  # doctest: +SKIP
>>> policy = ubp2.load(result.folder)  # doctest: +SKIP
>>> action = policy.act(obs)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ubp2._version import __version__
from ubp2.config.presets import preset
from ubp2.config.schema import Config
from ubp2.errors import UserError

if TYPE_CHECKING:
    from ubp2.api import Controller, PopulationResult, RunResult, evaluate, load, resume, train

__all__ = [
    "Config",
    "Controller",
    "PopulationResult",
    "RunResult",
    "UserError",
    "__version__",
    "evaluate",
    "load",
    "preset",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import jax only when something that needs it is asked for, so that `import ubp2` and --help stay instant."""
    if name in {"Controller", "PopulationResult", "RunResult", "evaluate", "load", "resume", "train"}:
        from ubp2.system import prepare_jax

        prepare_jax()
        from ubp2 import api

        return getattr(api, name)
    raise AttributeError(f"module 'ubp2' has no attribute '{name}'")
