"""The experiments of the paper: tasks, methods, seeds, and what was published about them.

A method is a set of settings over a preset, by dotted name as in flags. What the paper's text does not say is our
choice, and stands in `note`, which every report prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from ubp2.config.presets import PAPER_TASKS
from ubp2.errors import UserError, did_you_mean, unknown_name
from ubp2.experiments.published import ABLATION, CONSERVATIVE, HORIZON, MAIN, SELECTION, Table, at_horizon

__all__ = ["ALIASES", "EXPERIMENTS", "Acting", "Experiment", "Method", "chosen_methods", "chosen_tasks", "find"]

Column = Literal["average", "rank", "regret"]
Acting = Literal["acting", "planner"]


@dataclass(frozen=True)
class Method:
    """One row of a table: settings over the preset, and the share of the task's label budget that it gets."""

    name: str
    title: str
    settings: Mapping[str, Any]
    budget: float = 1.0


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    name: str
    title: str
    place: str  # in the paper
    tasks: tuple[str, ...]
    methods: tuple[Method, ...]
    seeds: int | None = None  # None: what the appendix gives each task
    published: Table = field(default_factory=dict)
    budget: int | None = None  # most labels on a task that is not in the paper's table of tasks
    columns: tuple[Column, ...] = ("average",)
    controller: Acting = "acting"  # whose success counts
    vary: tuple[str, ...] = ()  # settings of the protocol in which its methods differ on purpose
    note: str = ""

    def seeds_of(self, task: str) -> int:
        """Seeds that the paper gives a task; five where it does not say."""
        if self.seeds is not None:
            return self.seeds
        return PAPER_TASKS[task].seeds if task in PAPER_TASKS else 5


def _agents(*names: str) -> tuple[Method, ...]:
    return tuple(Method(name, name.upper(), {"agent": name}) for name in names)


def _horizons(*horizons: int) -> tuple[Method, ...]:
    return tuple(Method(f"horizon-{h}", f"horizon {h}", {"agent": "ubp2", "planner.horizon": h}) for h in horizons)


def _metaworld(*tasks: str) -> tuple[str, ...]:
    return tuple(f"metaworld/{task}" for task in tasks)


_FURTHER = _metaworld("coffee-button", "door-open", "door-unlock")
_HARD = _metaworld("door-open", "drawer-open", "sweep-into")

_ALL = (
    Experiment(
        name="table1",
        title="Main results",
        place="Table 1, curves of Figure 3",
        tasks=tuple(PAPER_TASKS),
        methods=_agents("ubp2", "mbp", "rune", "mrn"),
        published=MAIN,
        columns=("average", "rank"),
        note="The preset paper chooses the pairs of UBP2 by Algorithm 2, best by `promising`, cpu at random. "
        "Under best and cpu RUNE and MRN have other constants than published: 20 labels every 500 decisions, up to 50 "
        "epochs a fit in place of 10, 3e-4 in place of 1e-4 as the temperature's rate; under cpu smaller networks.",
    ),
    Experiment(
        name="table2",
        title="Component ablation",
        place="Table 2",
        tasks=tuple(PAPER_TASKS),
        methods=tuple(
            Method(switches, {"1111": "UBP2 1111", "0000": "MBP 0000"}.get(switches, switches), {"ablation": switches})
            for switches in ABLATION
        ),
        seeds=5,
        published=ABLATION,
        columns=("average", "regret"),
        note="Switches: reward, dynamics and value uncertainty, optimistic preference selection. "
        "1111 chooses pairs by Algorithm 2 in every preset. The paper's rows 1111 and 0000 are those of Table 1.",
    ),
    Experiment(
        name="fig-selection",
        title="Preference selection",
        place="Figure 4 (a)",
        tasks=_HARD,
        methods=tuple(
            Method(name, name, {"agent": "ubp2", "preferences.strategy": name})
            for name in ("optimistic", "disagreement", "entropy")
        ),
        seeds=5,
        published={"optimistic": {task: MAIN["ubp2"][task] for task in _HARD}, **SELECTION},
        note="The paper's text names Door Open and 'challenging manipulation tasks'; the other two are our choice, and "
        "five seeds as in its other ablations. Of its bars it prints one number, and UBP2's are those of Table 1.",
    ),
    Experiment(
        name="fig-horizon",
        title="Planning horizon",
        place="Figure 4 (b)",
        tasks=_FURTHER,
        methods=_horizons(7, 11),
        seeds=5,
        published=at_horizon("horizon-11", _FURTHER),
        note="The paper's text names no tasks; these are the three to which its appendix gives a horizon of 11, where "
        "UBP2's row of Table 1 is horizon 11. The numbers of horizon 7 are not printed. Five seeds are our choice.",
    ),
    Experiment(
        name="table-horizon",
        title="Planning horizon, further tasks",
        place="appendix, Table 7",
        tasks=tuple(HORIZON["horizon-7"]),
        methods=_horizons(7, 11),
        published=HORIZON,
        note="The caption does not say how many seeds; here those of the main table.",
    ),
    Experiment(
        name="fig-feedback",
        title="Reduced feedback",
        place="Figure 4 (c)",
        tasks=_metaworld("handle-press", "faucet-open"),
        methods=tuple(
            Method(f"budget-{percent}", f"{percent} % of the budget", {"agent": "ubp2"}, budget=percent / 100)
            for percent in (100, 50, 25)
        ),
        seeds=5,
        published={"budget-100": {task: MAIN["ubp2"][task] for task in _metaworld("handle-press", "faucet-open")}},
        vary=("preferences.budget",),
        note="The paper's text names neither the two tasks nor the budgets nor the seeds: they are our choice. "
        "Numbers of reduced budgets are not printed.",
    ),
    Experiment(
        name="fig-visual",
        title="Visual observations",
        place="appendix, Figure 5",
        tasks=("dmc-visual/walker-walk", "dmc-visual/cheetah-run"),
        methods=_agents("ubp2", "mbp", "pebble", "rune", "mrn"),
        seeds=5,
        budget=5000,
        note="Curves only: no number is printed. Frames are encoded by a frozen DINOv2-S, whose weights --set "
        "'visual.weights: ...' names; without them --set 'visual.encoder: conv'. "
        "Five seeds as its caption says; PEBBLE is our choice. PEBBLE, RUNE and MRN have networks and rates for "
        "Meta-World, not those that were published for DMControl.",
    ),
    Experiment(
        name="table-conservative",
        title="Conservative evaluation",
        place="appendix, Table 6",
        tasks=tuple(CONSERVATIVE["ubp2"]),
        methods=(
            Method("ubp2", "UBP2", {"agent": "ubp2"}),
            Method("conservative", "UBP2, conservative evaluation", {"agent": "ubp2", "evaluation.bonus": -1.0}),
        ),
        published=CONSERVATIVE,
        controller="planner",
        note="Success is that of the planner, since only plans have a bonus to turn round. The caption does not say "
        "how many seeds; here those of the main table. Both rows train the same agent from the same seeds, each for "
        "itself: they differ in the plans of the evaluation alone.",
    ),
)

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType({experiment.name: experiment for experiment in _ALL})
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "fig3": "table1",
        "fig-main": "table1",
        "table6": "table-conservative",
        "table7": "table-horizon",
        "fig4a": "fig-selection",
        "fig4b": "fig-horizon",
        "fig4c": "fig-feedback",
        "fig5": "fig-visual",
    }
)


def find(name: str) -> Experiment:
    """The experiment of this name, or of this place in the paper (fig4a)."""
    known = ALIASES.get(name, name)
    if known not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[known]


def chosen_tasks(experiment: Experiment, names: tuple[str, ...]) -> tuple[str, ...]:
    """The tasks of these names, all if there are none; an id with a suite may be of any other environment."""
    if not names:
        return experiment.tasks
    short = {task.partition("/")[2]: task for task in experiment.tasks}
    found = tuple(dict.fromkeys(name if "/" in name else short.get(name, "") for name in names))
    if "" in found:
        unknown = next(name for name in names if "/" not in name and name not in short)
        raise UserError(
            f"{experiment.name} has no task '{unknown}'.{did_you_mean(unknown, short)} Its tasks: {', '.join(short)}; "
            f"any other environment by its id, such as metaworld/reach"
        )
    return found


def chosen_methods(experiment: Experiment, names: tuple[str, ...]) -> tuple[Method, ...]:
    """The methods of these names, in the order of the experiment; all if there are none."""
    own = {method.name: method for method in experiment.methods}
    for name in names:
        if name not in own:
            raise unknown_name(f"method of {experiment.name}", name, own)
    return tuple(method for method in experiment.methods if not names or method.name in names)
