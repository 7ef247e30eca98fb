"""python -m ubp2.bench [--json]: planning, learning and a whole decision on this machine.

Every line is a median over repetitions. The ratios compare two ways of computing the same numbers in the same run: all
ensemble members as one batched product against a Python loop over members.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ubp2.agents.registry import make_agent
from ubp2.configs import Config, EnvironmentConfig
from ubp2.envs.base import EnvSpec
from ubp2.envs.workers import make_vector
from ubp2.models.networks import MLP, apply_members
from ubp2.presets import preset
from ubp2.resolving import resolve
from ubp2.training.programs import Memory, Programs, make_programs
from ubp2.types import Frame

__all__ = ["main", "measure"]

OBS_DIM, ACTION_DIM = 39, 4


def milliseconds(run: Callable[[], Any], repetitions: int = 30) -> float:
    """Median wall time of `run` after two warm-up calls."""
    times = []
    for i in range(repetitions + 2):
        start = time.perf_counter()
        jax.block_until_ready(run())
        if i >= 2:
            times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def filled(programs: Programs, seeds: int) -> tuple[Any, Memory, jax.Array]:
    """Agents and memories with a few hundred random frames, and the carry of a first decision."""
    random = np.random.default_rng(0)
    state, data, carry = programs.init()
    for i in range(300):
        obs = random.normal(size=(seeds, OBS_DIM)).astype(np.float32)
        action = random.uniform(-1, 1, (seeds, ACTION_DIM)).astype(np.float32)
        no, zeros = np.zeros(seeds, bool), np.zeros(seeds, np.float32)
        counters = (np.full(seeds, i // 100, np.int32), np.full(seeds, i % 100, np.int32))
        state, data = programs.record(state, data, Frame(obs, action, no, *counters), obs, no, zeros)  # type: ignore
    return state, data, carry


def loop_over_members(members: MLP, x: jax.Array) -> jax.Array:
    """What `apply_members` computes, one member after the other."""
    count = members.weights[0].shape[0]
    return jnp.stack([jax.tree.map(lambda p, i=i: p[i], members)(x) for i in range(count)])


def measure(config: Config, seeds: int = 1) -> dict[str, float]:
    """Times in milliseconds and ratios for the sizes of one config; observations of 39 numbers, actions of 4."""
    config = resolve(config, 100)
    spec = EnvSpec("bench", OBS_DIM, ACTION_DIM, 100, 1, 10, False, (-1.0,) * ACTION_DIM, (1.0,) * ACTION_DIM)
    programs = make_programs(config, make_agent(config, OBS_DIM, ACTION_DIM), spec, range(seeds))
    state, data, carry = filled(programs, seeds)
    obs, first = np.zeros((seeds, 1, OBS_DIM), np.float32), np.zeros((seeds, 1), bool)
    now = obs, first, np.float32(1.0), np.int32(1), np.int32(0)
    plan = milliseconds(lambda: programs.plan(state, carry, *now).told)
    react = milliseconds(lambda: programs.react(state, carry, *now).told)
    dynamics = jax.tree.map(lambda x: x[0], state.model.dynamics)
    inputs = jnp.zeros((config.planner.samples, OBS_DIM + ACTION_DIM))
    batched, looped = jax.jit(apply_members), loop_over_members
    together = milliseconds(lambda: batched(dynamics, inputs))
    apart = milliseconds(lambda: looped(dynamics, inputs))

    def learn() -> Any:
        nonlocal state
        state, metrics = programs.update(state, data, np.int32(0), np.int32(0))
        return metrics

    update = milliseconds(learn)
    return {
        "plan_ms": plan,
        "policy_ms": react,
        "update_ms": update,
        "plan_over_policy": plan / react,
        "members_loop_over_batched": apart / together,
        "decisions_per_second_without_environment": 1e3 / (plan + update),
    }


def environments() -> dict[str, float]:
    """Microseconds a decision in a worker process, and the share of it that is the worker's hand-over."""
    results = {}
    for name in ("toy/reach", "metaworld/door-close"):
        times = {}
        for in_process in (True, False):
            envs = make_vector(name, EnvironmentConfig(in_process=in_process), 1)
            envs.reset(0, 0)
            action = np.zeros((1, envs.spec.action_dim), np.float32)

            def step(envs: Any = envs, action: np.ndarray = action) -> None:
                envs.send(action)
                envs.receive()

            times[in_process] = 1e3 * milliseconds(step, repetitions=40)
            envs.close()
        results[f"{name}_us"] = times[False]
        results[f"{name}_worker_over_inline"] = times[False] / times[True]
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--paper", action="store_true", help="also the paper's sizes (slow on a CPU)")
    args = parser.parse_args()
    sizes = {"cpu preset": preset("cpu", "metaworld/door-close")}
    if args.paper:
        sizes["paper preset"] = preset("paper", "metaworld/door-close")
    results: dict[str, Any] = {"device": jax.devices()[0].device_kind, "environments": environments()}
    results |= {name: measure(config) for name, config in sizes.items()}
    if args.json:
        print(json.dumps(results))
        return
    print(f"device: {results['device']}")
    for group, numbers in results.items():
        if isinstance(numbers, dict):
            print(group)
            for name, number in numbers.items():
                print(f"  {name:44} {number:10.2f}")


if __name__ == "__main__":
    main()
