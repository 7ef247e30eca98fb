"""ubp2 bench plan: what a plan costs, against the arithmetic in it and against the simple way of computing it."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from ubp2.agents.registry import make_agent
from ubp2.bench import agreement, flops, growth, kernels
from ubp2.bench.options import Plan
from ubp2.bench.report import Report, Row
from ubp2.bench.straightforward import member_by_member
from ubp2.bench.subject import ACTION_DIM, OBS_DIM, Subject, sized, subject, with_model
from ubp2.bench.timing import compile_all, jit, medians, memory_megabytes, product_rate
from ubp2.models.networks import compute_type
from ubp2.training.seeds import lift

__all__ = ["measure"]


def measure(options: Plan) -> Report:
    """A row for each number of seeds; with --grow and --profile further tables."""
    config = sized(options)
    subjects = {seeds: subject(config, seeds) for seeds in sorted(set(options.seeds))}
    first = next(iter(subjects.values()))
    work: dict[Any, Any] = {}
    for seeds, own in subjects.items():  # traced one after the other: the simple version replaces functions meanwhile
        work["simple", seeds] = _lower_simple(own).compile
    work |= {("scores", name): compile_ for name, compile_ in agreement.lower_all(first).items()}
    work = {("plan", s): partial(own.programs.plan, own.state, *own.acting) for s, own in subjects.items()} | work
    compiled = compile_all(work)
    rate = product_rate(compute_type(config.model))
    rows = [
        _row(own, compiled["plan", s][0], compiled["simple", s][1], rate, options.repetitions)
        for s, own in subjects.items()
    ]
    scored = {name[1]: result for name, (_, result) in compiled.items() if name[0] == "scores"}
    report = Report("plan", {"plan": rows, "agreement": [agreement.compare(first, scored)]})
    report.notes += [
        f"space {config.model.space}, products in {compute_type(config.model).__name__}, large product "
        f"{rate / 1e12:.3g} TFLOP/s; speed-up over one network after the other in float32",
        f"elites of bfloat16 and float32 over {agreement.STATES} states; largest difference of scores to that "
        f"version, in standard deviations of the scores; compilation takes less where jax's cache has the program",
    ]
    if options.grow:
        report.tables["growth"] = growth.measure(config, options.repetitions)
    if options.profile:
        kernels.profile(report, lambda: first.programs.plan(first.state, *first.acting).decided)
    return report


def _simple_arguments(own: Subject) -> tuple[Any, ...]:
    carry, obs, *_ = own.acting
    return own.state, carry[:, 0], obs[:, 0], jax.numpy.ones(()), jax.random.split(jax.random.key(0), own.seeds)


def _lower_simple(own: Subject) -> Any:
    agent = make_agent(with_model(own.config, precision="float32"), OBS_DIM, ACTION_DIM)
    with member_by_member():
        return jit(lift(agent.plan, own.seeds, (0, 0, 0, None, 0))).lower(*_simple_arguments(own))


def _row(own: Subject, compile_seconds: float, simple: Any, rate: float, repetitions: int) -> Row:
    arguments = _simple_arguments(own)
    both = [lambda: own.programs.plan(own.state, *own.acting).decided, lambda: simple(*arguments).action]
    seconds, slow = medians(both, repetitions)
    operations = own.seeds * flops.plan(own.config, OBS_DIM, ACTION_DIM)
    return {
        "seeds": own.seeds,
        "ms": 1e3 * seconds,
        "plans_per_s": own.seeds / seconds,
        "gflop_a_plan": operations / own.seeds / 1e9,
        "tflop_per_s": operations / seconds / 1e12,
        "share_of_product_rate": operations / seconds / rate,
        "speed_up": slow / seconds,
        "compile_s": compile_seconds,
        "memory_mb": memory_megabytes(),
    }
