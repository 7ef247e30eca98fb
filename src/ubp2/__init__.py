"""UBP2: learn what people want from which of two clips they prefer, planning optimistically over what is not yet known.

>>> import ubp2
>>> result = ubp2.train(ubp2.preset("demo"), out="my-run")  # doctest: +SKIP
>>> policy = ubp2.load(result.folder)  # doctest: +SKIP
>>> action = policy.act(obs)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ubp2._version import __version__
from ubp2.config.presets import preset
from ubp2.config.schema import Config
from ubp2.errors import UserError

if TYPE_CHECKING:
    from ubp2.api import Controller, PopulationResult, RunResult, evaluate, load, resume, train
    from ubp2.sharing.export import export

__all__ = [
    "Config",
    "Controller",
    "PopulationResult",
    "RunResult",
    "UserError",
    "__version__",
    "evaluate",
    "export",
    "load",
    "preset",
    "resume",
    "train",
]


_HEAVY = {
    **dict.fromkeys(["Controller", "PopulationResult", "RunResult", "evaluate", "load", "resume", "train"], "ubp2.api"),
    "export": "ubp2.sharing.export",
}


def __getattr__(name: str) -> Any:
    """Import jax only when something that needs it is asked for, so that `import ubp2` and --help stay instant."""
    if name not in _HEAVY:
        raise AttributeError(f"module 'ubp2' has no attribute '{name}'")
    from ubp2.system import prepare_jax

    prepare_jax()
    return getattr(importlib.import_module(_HEAVY[name]), name)
