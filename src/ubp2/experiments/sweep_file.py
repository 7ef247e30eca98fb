"""Sweeps as YAML files: tasks, methods, a grid of settings, seeds, and where they run (docs/sweeps.md).

A mistake is told with the file, the line, and the nearest name that there is.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ubp2.config import own
from ubp2.config.files import not_yaml, overridden
from ubp2.config.schema import Config
from ubp2.errors import UserError, did_you_mean, unknown_name
from ubp2.evaluation.protocol import SETTINGS
from ubp2.experiments import resources
from ubp2.experiments.catalogue import Experiment, Method
from ubp2.experiments.cells import PRESETS
from ubp2.experiments.options import flat
from ubp2.experiments.plans import How, Request

__all__ = ["FILE", "SweepFile", "read", "write"]

FILE = "sweep.yaml"  # in the folder of a sweep
_NAME = re.compile(r"[A-Za-z0-9][\w.+=-]*")
_AGENTS = typing.get_args(typing.get_type_hints(Config)["agent"])
_PLACES = ("local", "ray", "slurm")


@dataclass(frozen=True)
class SweepFile:
    """What a file says; `methods` and `grid` are settings by dotted name."""

    name: str
    tasks: tuple[str, ...]
    methods: Mapping[str, Mapping[str, Any]]
    preset: str = "cpu"
    steps: int | None = None
    seeds: int = 1
    together: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    out: str | None = None
    on: str = "local"
    address: str | None = None
    jobs: int | None = None
    retries: int | None = None
    clips: bool = False

    @property
    def folder(self) -> Path:
        """Where its runs are."""
        return Path(self.out) if self.out else Path("runs") / self.name

    def request(self) -> Request:
        """The cells that it asks for."""
        methods = tuple(_expanded(self.methods, self.grid))
        names = {name for method in methods for name in method.settings}
        vary = tuple(one for one in SETTINGS if any(one == name or one.startswith(f"{name}.") for name in names))
        experiment = Experiment(self.name, self.name, "", self.tasks, methods, seeds=self.seeds, vary=vary)
        return Request(
            experiment,
            self.tasks,
            methods,
            preset=self.preset,
            steps=self.steps,
            seeds=self.seeds,
            settings=self.settings,
            together=self.together,
            resources=self.resources,
        )

    def how(self, quiet: bool) -> How:
        """Where and how they are trained."""
        return How(self.on, self.address, self.jobs, self.retries, self.clips, quiet)


def read(path: Path) -> SweepFile:
    """Read and check a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the sweep {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        data, node = yaml.safe_load(text), yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise not_yaml(path, error) from None
    if not isinstance(data, dict) or node is None:
        raise UserError(f"{path} must be a table with the keys name, tasks, methods; docs/sweeps.md has an example")
    lines = dict(_lines(node))
    try:
        return _checked(data)
    except _Mistake as mistake:
        line = lines.get(mistake.place) or lines.get(mistake.place[:1])
        where = f"{path}, line {line}" if line else str(path)
        raise UserError(f"{where}: {mistake}") from None


def write(sweep: SweepFile, folder: Path) -> None:
    """Put the sweep into its folder, after which the folder is enough to go on with it."""
    data = {key: value for key, value in dataclasses.asdict(sweep).items() if value not in (None, {})}
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}
    plain["grid"] = {name: list(values) for name, values in sweep.grid.items()}
    partial = folder / f"{FILE}.tmp"
    partial.write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")
    partial.replace(folder / FILE)


class _Mistake(UserError):
    """A mistake and its place: the keys that lead to it."""

    def __init__(self, message: str, *place: Any) -> None:
        super().__init__(message)
        self.place = tuple(map(str, place))


def _lines(node: yaml.Node, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """(keys that lead to it, line) of everything in a file, lists by number."""
    yield place, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            own = (*place, str(key.value))
            yield from _lines(value, own)
            yield own, key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _lines(value, (*place, str(number)))


def _checked(data: Mapping[str, Any]) -> SweepFile:
    known = {one.name: one for one in dataclasses.fields(SweepFile)}
    for key in data:
        if key not in known:
            raise _Mistake(f"unknown key '{key}'.{did_you_mean(str(key), known)} Known: {', '.join(known)}", key)
    for key in ("name", "tasks", "methods"):
        if not data.get(key):
            raise _Mistake(f"{key} is missing; a sweep has a name, tasks and methods")
    values: dict[str, Any] = {key: value for key, value in data.items() if value is not None}
    for key, value in values.items():
        _check_plain(key, value)
    values["tasks"] = _tasks(values["tasks"])
    values["methods"] = _methods(values["methods"])
    values["settings"] = _settings(values.get("settings", {}), "settings")
    values["grid"] = _grid(values.get("grid", {}))
    _check_places(values)
    list(_expanded(values["methods"], values["grid"]))  # its mistakes are the file's
    try:
        values["resources"] = resources.checked(values.get("resources", {}))
    except UserError as error:
        raise _Mistake(str(error), "resources") from None
    return SweepFile(**values)


def _check_plain(key: str, value: Any) -> None:
    """Numbers and names."""
    if key in ("steps", "seeds", "together", "jobs", "retries"):
        least = 0 if key == "retries" else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _Mistake(f"{key} must be a whole number, at least {least}, got {value!r}", key)
    elif key in ("name", "preset", "out", "address", "on") and not isinstance(value, str):
        raise _Mistake(f"{key} must be text, got {value!r}", key)
    elif key == "clips" and not isinstance(value, bool):
        raise _Mistake(f"clips must be true or false, got {value!r}", key)
    if key == "name" and not _NAME.fullmatch(str(value)):
        raise _Mistake(f"name must be fit for a folder (letters, digits and . + = - _), got '{value}'", key)
    if key == "preset" and value not in PRESETS:
        raise _Mistake(str(unknown_name("preset of a sweep", str(value), PRESETS)), key)
    if key == "on" and value not in _PLACES:
        raise _Mistake(str(unknown_name("place to run on", str(value), _PLACES)), key)


def _tasks(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(task, str) for task in value):
        raise _Mistake(f"tasks must be a list of environment ids such as [toy/reach], got {value!r}", "tasks")
    return tuple(dict.fromkeys(value))


def _methods(value: Any) -> dict[str, dict[str, Any]]:
    """Agents by name, or names of one's own with their settings."""
    if isinstance(value, list):
        for number, agent in enumerate(value):
            if agent not in _AGENTS and not own.is_named(agent):
                sentence = f"{unknown_name('agent', str(agent), _AGENTS)}. {own.remedy('agent')}"
                raise _Mistake(sentence, "methods", number)
        return {_folder_words(agent): {"agent": agent} for agent in value}
    if not isinstance(value, Mapping):
        raise _Mistake(f"methods must be a list of agents, or a table of settings by name, got {value!r}", "methods")
    found = {}
    for name, settings in value.items():
        if not _NAME.fullmatch(str(name)):
            raise _Mistake(f"a method's name must be fit for a folder, got '{name}'", "methods", name)
        default = {"agent": name} if name in _AGENTS else {}
        found[str(name)] = {**default, **_settings({} if settings is None else settings, "methods", name)}
    return found


def _settings(value: Any, *place: Any) -> dict[str, Any]:
    """Settings by dotted name; each is tried on the default configuration."""
    if not isinstance(value, Mapping):
        raise _Mistake(f"{'.'.join(map(str, place))} must be a table of settings, got {value!r}", *place)
    found: dict[str, Any] = {}
    for name, wanted in value.items():
        if name in ("seed", "env"):
            raise _Mistake(f"{name} is no setting of a sweep; it has seeds and tasks", *place, name)
        try:
            overridden(Config(), {str(name): wanted})
        except UserError as error:
            raise _Mistake(str(error), *place, name) from None
        found.update(flat(str(name), wanted))
    return found


def _grid(value: Any) -> dict[str, tuple[Any, ...]]:
    """Values of each setting that are combined with those of all others."""
    if not isinstance(value, Mapping):
        raise _Mistake(f"grid must be a table such as {{planner.horizon: [3, 5]}}, got {value!r}", "grid")
    for name, values in value.items():
        if not isinstance(values, list) or not values:
            raise _Mistake(f"grid.{name} must be a list of values, got {values!r}", "grid", name)
        for one in values:
            _settings({name: one}, "grid")
    return {str(name): tuple(values) for name, values in value.items()}


def _check_places(values: Mapping[str, Any]) -> None:
    """A setting that stands in two places would leave open which counts; the environment is that of all cells."""
    names = {
        "the file itself": {"steps"} & set(values),
        "settings": set(values["settings"]),
        "methods": {name for settings in values["methods"].values() for name in settings},
        "grid": {key for name, each in values["grid"].items() for one in each for key, _ in flat(name, one)},
    }
    for first, second in itertools.combinations(names, 2):
        both = names[first] & names[second]
        if both:
            raise _Mistake(f"{min(both)} stands in {first} and in {second}; leave it in one of them", second, min(both))
    for place in ("methods", "grid"):
        for name in sorted(names[place]):
            if name.startswith("environment.") and name in SETTINGS:
                raise _Mistake(
                    f"{name} changes the task, which all methods share; it stands in settings, and other values of it "
                    f"are sweeps of their own, whose runs ubp2 report --vary {name} shows together",
                    place,
                    name,
                )


def _expanded(methods: Mapping[str, Mapping[str, Any]], grid: Mapping[str, tuple[Any, ...]]) -> Iterator[Method]:
    """Every method with every combination of the grid, named after what it is."""
    ends = [name.rpartition(".")[2] for name in grid]
    called = {name: end if ends.count(end) == 1 else name for name, end in zip(grid, ends, strict=True)}
    taken: set[str] = set()
    for method, settings in methods.items():
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            parts = [f"{called[name]}={_folder_words(value)}" for name, value in chosen.items()]
            name = "+".join([method, *parts])
            if name in taken:
                raise _Mistake(f"two combinations would have the same folder, {name}; leave one of them out", "grid")
            taken.add(name)
            yield Method(name, ", ".join([method, *parts]), {**settings, **chosen})


def _folder_words(value: Any) -> str:
    return re.sub(r"[^\w.-]+", "-", str(value)).rstrip("-")
