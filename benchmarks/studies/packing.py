"""Which studies share a program, and how long it takes."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from studies.queue import NEEDS_CODE, Cell, Study, unknown_settings
from ubp2.config.files import leaves
from ubp2.config.resolving import is_model_free, resolve
from ubp2.config.schema import Config
from ubp2.config.switching import switched
from ubp2.errors import UserError

__all__ = ["MOST_STUDIES", "START", "Member", "Plan", "estimate", "measured", "pack", "plan_of", "program_key"]

DEVICE = "H200"
START = 90.0  # seconds: worker processes, compilation
# Milliseconds of a decision: 4.5 + 0.34 N for N members of `best` on an H200 with 16 cores, of which 48 took 20.9 (plan
# 9.3, update 14.4). Sizes scale it: N members of `paper` then take 4.5 + 1.2 N, and docs/reproduce.md has 4.5 + 1.08 N.
FIXED, A_MEMBER, PLAN_SHARE = 4.5, 0.34, 0.4
MODEL_FREE = (8.6, 0.22)  # docs/reproduce.md
STEP = 2.0  # milliseconds of the simulators in an evaluation
MARGIN = 0.9  # of the minutes that estimates may fill
MOST_STUDIES = 4  # two files a study, and eight files come back from a machine
EPISODE = {"ubp2": 100, "bpref": 500}  # decisions of Meta-World's protocols

# Without `ubp2.training.member_axis`: settings that members of one program may differ in.
_FREE_SECTIONS = ("teacher.", "optimism.", "checkpoint.")
_FREE = {
    *("seed", "env", "ablation", "agent", "evaluation.bonus", "evaluation.seed"),
    *(f"preferences.{name}" for name in ("per_session", "every", "first", "budget", "imported", "batch_size")),
    *(f"preferences.{name}" for name in ("strategy", "stop_accuracy", "center", "smoothing", "recent")),
    *(f"planner.{name}" for name in ("elites", "temperature", "min_std", "max_std")),
    *(f"training.{name}" for name in ("learning_rate", "encoder_scale", "grad_clip", "discount", "rho", "entropy")),
    *(f"training.{name}" for name in ("consistency_weight", "reward_weight", "value_weight", "value_target_rate")),
    *(f"model.{name}" for name in ("obs_floor", "obs_limit", "obs_tail")),
}


@dataclass(frozen=True)
class Member:
    """A run of a study; two studies that ask for the same run share its folder."""

    study: str
    cell: Cell
    seed: int
    folder: str


@dataclass
class Plan:
    """Studies to train together: their runs, the programs these need, and what did not fit."""

    studies: list[Study] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    configs: dict[str, Config] = field(default_factory=dict)
    """By folder."""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Names of studies, each with the reason."""

    def programs(self) -> list[list[Config]]:
        """The configurations by program."""
        groups: dict[Hashable, list[Config]] = {}
        for config in self.configs.values():
            groups.setdefault(program_key(config), []).append(config)
        return list(groups.values())

    def seconds(self, correction: float = 1.0) -> float:
        """The time of all programs, one after the other."""
        return correction * sum(estimate(program) for program in self.programs())

    def with_study(self, study: Study) -> Plan:
        """This plan and one more study."""
        configs, members = dict(self.configs), list(self.members)
        folders = {config: folder for folder, config in configs.items()}
        for cell, seed in study.runs():
            config = study.config(cell, seed)
            if config not in folders:
                folders[config] = _folder(study, cell, seed, configs)
                configs[folders[config]] = config
            members.append(Member(study.name, cell, seed, folders[config]))
        return Plan([*self.studies, study], members, configs, self.left_out)


def _folder(study: Study, cell: Cell, seed: int, taken: Collection[str]) -> str:
    """A folder of task, method and seed; methods whose names differ in signs alone are numbered."""
    task = cell.env.rpartition("/")[2]
    own = re.sub(r"[^A-Za-z0-9_.]+", "-", f"{task}-{cell.method}").strip("-.")
    names = (f"{study.name}/{own}{number}/s{seed}" for number in ("", *(f"-{n}" for n in range(2, 100))))
    return next(name for name in names if name not in taken)


def program_key(config: Config) -> Hashable:
    """Equal for runs that can be members of one program."""
    suite = config.env.partition("/")[0]
    if suite != "metaworld":  # sizes of others differ by task, and only the environment knows them
        return (config.env, _key(config))
    decisions = config.environment.episode_decisions or EPISODE[config.environment.protocol]
    return (suite, decisions, _key(resolve(config, decisions)))


def _key(config: Config) -> Hashable:
    try:
        from ubp2.training import member_axis  # type: ignore[attr-defined]
    except ImportError:
        return _fallback_key(config)
    return (member_axis.program_key(config), member_axis.clock_key(config))


def _fallback_key(config: Config) -> Hashable:
    config = switched(config)
    agent = "ubp2" if config.agent == "mbp" else config.agent
    kept = [(name, value) for name, value in leaves(config) if name not in _FREE]
    return (agent, *((name, value) for name, value in kept if not name.startswith(_FREE_SECTIONS)))


def estimate(configs: Sequence[Config]) -> float:
    """Seconds that one program of these members takes on an H200 with 16 cores."""
    first, members = configs[0], len(configs)
    if is_model_free(first.agent):
        plan, policy = 0.0, MODEL_FREE[0] + MODEL_FREE[1] * members
    else:
        planner, width = first.planner, first.model.width / 256
        plans = width * planner.samples * planner.iterations * planner.horizon / (256 * 4 * 7)
        horizon = planner.horizon if first.training.horizon is None else first.training.horizon
        updates = width * first.training.batch_size * horizon / (256 * 7) / first.training.update_every
        plan = A_MEMBER * members * PLAN_SHARE * plans
        policy = FIXED + A_MEMBER * members * (1 - PLAN_SHARE) * updates
    evaluation = first.evaluation
    rounds = max(first.steps // evaluation.every, 1) if evaluation.every else 1
    episode = first.environment.episode_decisions or EPISODE[first.environment.protocol]
    looks = rounds * evaluation.episodes * episode / evaluation.workers
    looked = sum(FIXED + STEP + (name == "planner") * plan for name in evaluation.controllers)
    return START + (first.steps * (plan + policy) + looks * looked) / 1e3


def measured(abouts: Sequence[Mapping]) -> float:
    """Factor on estimates: the median of measured over estimated times, of studies that an H200 ran in one go."""
    timings = [about["timing"] for about in abouts if about.get("timing") and DEVICE in about["device"]]
    ratios = [timing["seconds"] / timing["estimated"] for timing in timings if timing["estimated"] > 0]
    return statistics.median(ratios) if ratios else 1.0


def plan_of(studies: Sequence[Study]) -> Plan:
    """All runs of these studies, however long they take."""
    plan = Plan()
    for study in studies:
        if not study.cells:
            raise UserError(f"study {study.name} needs code first: {'; '.join(_needs(study))}")
        plan = plan.with_study(study)
    return plan


def pack(studies: Sequence[Study], minutes: float, correction: float = 1.0, most: int = MOST_STUDIES) -> Plan:
    """The first study of the queue that fits into the time, and those after it that fit into its programs."""
    plan, left_out, shortest = Plan(), [], None
    for study in studies:
        reason = _unfit(study)
        if reason is None and len(plan.studies) == most:
            reason = f"{most} studies are packed, two files each"
        if reason is None:
            wider = plan.with_study(study)
            needed = wider.seconds(correction) / 60
            if plan.studies and len(wider.programs()) > len(plan.programs()):
                reason = f"its sizes or its clock differ from {plan.studies[0].name}"
            elif needed > MARGIN * minutes:
                before = f" with {', '.join(each.name for each in plan.studies)}" if plan.studies else ""
                reason = f"takes about {needed:.0f} minutes{before}, of {MARGIN * minutes:.0f} to plan with"
                shortest = min(shortest or (needed, study.name), (needed, study.name))
            else:
                plan = wider
        if reason is not None:
            left_out.append((study.name, reason))
    if not plan.studies:
        if shortest is None:
            raise UserError("no study of the queue is open and can run; `study.py list` says how each stands")
        raise UserError(
            f"no open study fits into {minutes:g} minutes; the shortest is {shortest[1]}, about {shortest[0]:.0f}. "
            f"Give more --minutes or --calls, or train it as far as it gets: study.py run {shortest[1]}"
        )
    return dataclasses.replace(plan, left_out=left_out)


def _unfit(study: Study) -> str | None:
    """Why a study is not for `next`; None: it is."""
    if study.status == NEEDS_CODE or not study.cells:
        return f"needs code: {'; '.join(_needs(study))}"
    if study.status in ("done", "running"):
        return f"is {study.status}"
    unknown = unknown_settings(study)
    if unknown:
        return f"this checkout has no setting {', '.join(unknown)}"
    return None


def _needs(study: Study) -> list[str]:
    return list(dict.fromkeys(f"{cell.method}: {cell.needs}" for cell in study.waiting)) or [
        "the queue does not say what"
    ]
