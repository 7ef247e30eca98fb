"""Plans: the cells that are wanted, what is there of them, what the rest costs, and what each program needs to run.

`ubp2 reproduce` and `ubp2 sweep` ask for one in different words; from here on they are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ubp2.config import own
from ubp2.config.files import differences, overridden
from ubp2.config.schema import Config
from ubp2.envs.base import EnvSpec
from ubp2.envs.visual import base_id, is_visual
from ubp2.errors import UserError
from ubp2.experiments import costs, resources
from ubp2.experiments.catalogue import Experiment, Method
from ubp2.experiments.cells import Cell, Group, cells, groups
from ubp2.experiments.clock import Clock
from ubp2.experiments.execution import label, program_label
from ubp2.experiments.programs import Program, pack
from ubp2.experiments.resources import Part, Resources, Shape, most_together

__all__ = ["How", "Plan", "Request", "describe", "plan", "require_functions", "spec_of"]


_REACTING = ("sac", "pebble", "rune", "mrn", "surf")  # those that others have registered may read anything


@dataclass(frozen=True)
class Request:
    """What is wanted, whoever asks."""

    experiment: Experiment
    tasks: tuple[str, ...]
    methods: tuple[Method, ...]
    preset: str
    steps: int | None = None
    seeds: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    together: int | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)  # in place of what is computed


@dataclass(frozen=True)
class How:
    """Where and how it is trained."""

    on: str = "local"
    address: str | None = None
    jobs: int | None = None  # at once; None: one here, on a cluster as many as it takes
    retries: int | None = None
    clips: bool = True
    quiet: bool = False
    clock: Clock | None = None  # None: it may take as long as it takes

    @property
    def tries_again(self) -> int:
        """Retries, if nobody has said how many: on a cluster a node that is lost counts, too."""
        return (10 if self.on == "ray" else 2) if self.retries is None else self.retries

    def check(self) -> None:
        """Refuse numbers that mean nothing."""
        if self.jobs is not None and self.jobs < 1:
            raise UserError(f"--jobs must be at least 1, got {self.jobs}")
        if self.retries is not None and self.retries < 0:
            raise UserError(f"--retries must not be negative, got {self.retries}")


@dataclass(frozen=True)
class Plan:
    """Everything that is to be done, and where; costs and resources stand beside their programs."""

    experiment: Experiment
    methods: tuple[Method, ...]
    cells: list[Cell]
    programs: list[Program]
    costs: list[costs.Cost]
    resources: list[Resources]
    out: Path

    @property
    def groups(self) -> list[Group]:
        """The groups of all programs, in the order of the cells."""
        order = {cell.folder: number for number, cell in enumerate(self.cells)}
        found = [group for program in self.programs for group in program.groups]
        return sorted(found, key=lambda group: (order.get(group.cell.folder, 0), group.first))

    @property
    def missing(self) -> list[Program]:
        """Programs that are not finished."""
        return [program for program in self.programs if not program.finished]

    def needs(self, program: Program) -> Resources:
        """The resources of one of its programs, or of a part of one."""
        return self.resources[[own.number for own in self.programs].index(program.number)]


def planned_cells(request: Request, out: Path = Path()) -> tuple[list[Cell], dict[str, EnvSpec]]:
    """The cells with their configurations, checked, and the spec of each task."""
    if request.together is not None and request.together < 1:
        raise UserError(f"--together must be at least 1, got {request.together}")
    specs = {task: _spec(task, request.settings) for task in request.tasks}
    made = cells(
        request.experiment,
        request.tasks,
        request.methods,
        preset=request.preset,
        steps=request.steps,
        seeds=request.seeds,
        settings=request.settings,
        episode_decisions={task: spec.episode_decisions for task, spec in specs.items()},
        out=out,
    )
    _check_apart(made)
    return made, specs


def _check_apart(made: Sequence[Cell]) -> None:
    """Refuse two cells of a task that would train the same under two names; what was begun before goes on."""
    seen: dict[Config, Cell] = {}
    for cell in made:
        other = seen.setdefault(_read(cell.config), cell)
        if other is not cell and not (other.folder.exists() and cell.folder.exists()):
            names = sorted(line.partition(":")[0] for line in differences(other.config, cell.config))
            why = f"they differ in {', '.join(names)} alone, which {cell.config.agent} does not read" if names else ""
            raise UserError(
                f"{other.method} and {cell.method} on {cell.task} would train the same twice: "
                f"{why or 'their settings are equal'}; leave one of them out"
            )


def _read(config: Config) -> Config:
    """The configuration as far as its agent reads it: without a planner there are no plans, and no bonus on them."""
    plain = Config()
    if config.agent in ("ubp2", "mbp"):
        return replace(config, sac=plain.sac)
    if config.agent in _REACTING:
        return replace(config, planner=plain.planner, optimism=plain.optimism)
    return config


def plan(request: Request, how: How, out: Path, *, fixed: bool = False) -> Plan:
    """List the runs that are in `out` and those that are missing; fixed: in the programs that were planned before."""
    how.check()
    made, specs = planned_cells(request, out)
    gpu = on_gpu(request.preset, how)
    shapes = {task: Shape(spec.obs_dim, spec.action_dim) for task, spec in specs.items()}

    beside = how.jobs or 1 if how.on == "local" else 1  # programs that share a device

    def most(cell: Cell) -> int:
        return request.together or (most_together(cell.config, shapes[cell.task], beside) if gpu else 1)

    found = pack(made, specs, out, most, fixed=fixed)
    seen = costs.rates_seen(found)
    price, needs = [], []
    for program in found:
        length = specs[program.groups[0].cell.task].episode_decisions
        price.append(costs.estimate_together(program.groups, request.preset, length, seen))
        parts = [Part(group.cell.config, group.seeds, shapes[group.cell.task]) for group in program.groups]
        needs.append(resources.overriding(resources.needed_together(parts, gpu=gpu), request.resources))
    return Plan(request.experiment, request.methods, made, found, price, needs, out)


def require_functions(made: Plan) -> None:
    """Refuse a query strategy module:function that is none; agents were looked up for their configurations."""
    for name in {cell.config.preferences.strategy for cell in made.cells}:
        if own.is_named(name):
            own.function("preferences.strategy", name)


def on_gpu(preset: str, how: How) -> bool:
    """Whether groups train on a GPU: here, where there is one; on a cluster, with presets that are made for one."""
    return costs.device_kind() == "gpu" if how.on == "local" else preset not in ("cpu", "demo")


def _spec(task: str, settings: Mapping[str, Any]) -> EnvSpec:
    """Sizes and episode length of a task under these settings."""
    those = {name: value for name, value in settings.items() if name.split(".")[0] in ("environment", "visual")}
    return spec_of(overridden(Config(env=task), those))


def spec_of(config: Config) -> EnvSpec:
    """Sizes and episode length from the environment itself: a task that does not exist is told here."""
    from ubp2.envs.registry import make

    env = make(base_id(config.env), replace(config.environment, in_process=True))  # who plans may not be able to render
    env.close()
    if not is_visual(config.env):
        return env.spec
    return env.spec._replace(id=config.env, obs_dim=costs.FEATURES * config.visual.frames)


def refreshed(made: Plan) -> Plan:
    """The same plan with what its groups have done since."""
    found = {group.folder: group for cell in made.cells for group in groups(cell)}

    def now(program: Program) -> Program:
        return replace(program, groups=tuple(found.get(group.folder, group) for group in program.groups))

    return replace(made, programs=[now(program) for program in made.programs])


def describe(made: Plan) -> str:
    """The plan as a person reads it: what is there, what is left, what it needs and costs."""
    asked = made.experiment
    place = f" ({asked.place})" if asked.place else ""
    cells = f"{len(made.cells)} cell{'s' if len(made.cells) > 1 else ''}"
    lines = [f"{asked.title}{place}: {cells} in {made.out}"]
    rows = [(row[0], _stands(*row)) for row in zip(made.programs, made.costs, made.resources, strict=True)]
    alike = [list(same) for _, same in itertools.groupby(rows, _alike)]
    names = [program_label([program for program, _ in same]) for same in alike]
    width = max(map(len, names))
    for name, same in zip(names, alike, strict=True):
        program, stands = same[0]
        lines.append(f"  {name:{width}}  {stands}{' each' * (len(same) > 1 and stands != 'finished')}")
        if len(program.groups) > 1:
            lines += [f"    {label(group)}" + _come(group) for group in program.groups]
    return "\n".join([*lines, _left(made)])


def _alike(row: tuple[Program, str]) -> tuple[object, ...]:
    """Programs that make one line: those of one cell that stand alike."""
    program, stands = row
    place = program.groups[0].cell.folder
    return (program.number,) if len(program.groups) > 1 else (place, stands)


def _stands(program: Program, cost: costs.Cost, needs: Resources) -> str:
    """Where one program stands; what it needs and costs if it is not finished."""
    if program.finished:
        return "finished"
    group = program.groups[0]
    many = len(program.groups) > 1
    state = f"at {group.decision:,} of {group.cell.config.steps:,}" if group.decision and not many else "to do"
    time = "" if cost.seconds is None else f"  about {costs.duration(cost.seconds)}"
    return f"{state}  {needs.words()}{time}"


def _come(group: Group) -> str:
    """How far a group of several has come."""
    if group.finished:
        return ", finished"
    return f", at {group.decision:,} of {group.cell.config.steps:,}" if group.decision else ""


def _left(made: Plan) -> str:
    """The sums over what is not finished."""
    left = [cost for program, cost in zip(made.programs, made.costs, strict=True) if not program.finished]
    if not left:
        return "nothing is missing"
    seconds = [cost.seconds for cost in left if cost.seconds is not None]
    unknown = len(seconds) < len(left)
    size = sum(cost.megabytes for cost in left)
    disk = f"{size / 1000:,.0f} GB" if size >= 10_000 else f"{size:,.0f} MB"
    total = (
        f"about {costs.duration(sum(seconds))} one after the other"
        + (f" for {len(seconds)} of {len(left)} programs; of the others nobody has measured the rate" * unknown)
        if seconds
        else "for a time that nobody has measured on such a machine with this preset"
    )
    basis = (
        "as seen here"
        if all(cost.measured for cost in left)
        else "by rates measured on one machine (docs/reproduce.md)"
    )
    return (
        f"left: {sum(cost.decisions for cost in left):,} decisions, {sum(cost.labels for cost in left):,} labels, "
        f"{disk}, {total}" + (f", {basis}" if seconds else "")
    )
