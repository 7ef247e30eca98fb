"""Functions of one's own that a configuration names: `module:function` as its agent or its query strategy."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ubp2.errors import UserError, did_you_mean
from ubp2.system import prepare_jax

__all__ = ["SETTINGS", "function", "imported", "is_named", "remedy"]


class Own(NamedTuple):
    """A setting that takes functions: what one is called, what it must be, and which function registers one."""

    called: str
    form: str
    arguments: int
    register: str


# Fields whose choices other programs may add to, by dotted name.
SETTINGS: Mapping[str, Own] = MappingProxyType(
    {
        "agent": Own("agent", "make(config, obs_dim, action_dim) -> Agent", 3, "ubp2.agents.registry.register"),
        "preferences.strategy": Own(
            "query strategy",
            "strategy(key, candidates, count) -> Chosen, as ubp2.preference.queries.ranked makes of a score",
            3,
            "ubp2.preference.queries.register",
        ),
    }
)


def is_named(name: object) -> bool:
    """Whether a setting of `SETTINGS` has `module:function`, and none of its choices."""
    return isinstance(name, str) and ":" in name


def remedy(setting: str) -> str:
    """What to do about a name that a setting of `SETTINGS` does not know."""
    return (
        f"One of your own is named as module:function, or registered first, by {SETTINGS[setting].register}, in the "
        f"program that trains or resumes"
    )


def function(setting: str, name: str) -> Callable[..., Any]:
    """The function that a setting of `SETTINGS` names as `module:function`."""
    own = SETTINGS[setting]
    found = imported(f"the {own.called} {name}", name, own.form)
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # one that does not say what it takes
        return found
    try:
        signature.bind(*range(own.arguments))
    except TypeError:
        raise UserError(f"the {own.called} {name} must be a function {own.form}, and it takes {signature}") from None
    return found


def imported(what: str, name: str, form: str) -> Callable[..., Any]:
    """The function `module:function`; what: how a mistake calls it, form: which function it must be."""
    module, _, path = name.rpartition(":")
    hint = ""
    prepare_jax()  # which the module may import, also where nothing is trained
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            hint = did_you_mean(part, dir(found))
            found = getattr(found, part)
    except Exception as error:  # the module is the user's own, and may raise anything
        plain = isinstance(error, (ImportError, AttributeError, ValueError))
        said = str(error) if plain else f"{type(error).__name__}: {error}"
        raise UserError(
            f"{what} cannot be imported ({said}).{hint} Expected is module:function, with the module where "
            f"`python -c 'import {module}'` finds it"
        ) from error
    if not callable(found):
        raise UserError(f"{what} must be a function {form}, got {type(found).__name__}")
    return found
