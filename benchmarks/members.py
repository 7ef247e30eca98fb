"""Does it cost anything that the members of a program differ? Decisions a second of 50 unlike members and of 50 equal.

    python benchmarks/members.py --members 50 --decisions 1500 --out FILE.json

Both populations train with their simulators, with the sizes of a preset (best unless told). Equal members are seeds of
one configuration on Door Close. Unlike ones are the paper's ten tasks; every second one differs in its label budget,
questions a session, schedule, strategy, teacher, learning rate and bonuses. The rate counts decisions of all members
from the end of the warm-up on, and leaves out the time that is spent in evaluations.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "src"))
os.environ.setdefault("MUJOCO_GL", "disable")

WARMUP = 300
SETTLING = 150  # decisions after the warm-up that do not count


def base(preset: str, env: str, seed: int, decisions: int):
    """A short run with the sizes of a preset, without a long warm-up or an evaluation before its end."""
    from ubp2 import preset as make
    from ubp2.config.schema import CheckpointConfig

    config = make(preset, env)
    training = dataclasses.replace(config.training, warmup=WARMUP, warmup_updates=1, replay_capacity=10_000)
    evaluation = dataclasses.replace(config.evaluation, every=0, episodes=1, controllers=("policy",))
    preferences = dataclasses.replace(config.preferences, every=400, budget=500)
    return dataclasses.replace(
        config,
        seed=seed,
        steps=WARMUP + SETTLING + decisions,
        training=training,
        evaluation=evaluation,
        preferences=preferences,
        checkpoint=CheckpointConfig(every=10**9),
    )


def unlike(config, number: int):
    """Settings of its own for every second member."""
    if number % 2:
        return config
    preferences = dataclasses.replace(
        config.preferences,
        budget=200 + 40 * number,
        per_session=(10, 15, 20)[number % 3],
        every=300 + 10 * (number % 7),
        strategy=("promising", "uniform", "optimistic")[number % 3],
    )
    optimism = dataclasses.replace(config.optimism, reward=number % 4 == 0, lambda_dynamics=1.0 + number % 5)
    teacher = dataclasses.replace(config.teacher, name=("oracle", "noisy", "mistake")[number % 3])
    training = dataclasses.replace(config.training, learning_rate=3e-4 * (1 + number % 3) / 2)
    return dataclasses.replace(config, preferences=preferences, optimism=optimism, teacher=teacher, training=training)


def measure(configs: dict) -> dict:
    """Train them in a folder that goes away; the rate after the warm-up."""
    import ubp2
    from ubp2.training.limits import TimeLimit

    times: list[float] = []
    decided = TimeLimit.decided

    def noted(self: TimeLimit) -> None:
        times.append(time.monotonic())
        decided(self)

    TimeLimit.decided = noted
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = ubp2.train(configs, out=Path(folder) / "runs")
    finally:
        TimeLimit.decided = decided
    counted = times[WARMUP + SETTLING :]
    rate = len(configs) * (len(counted) - 1) / (counted[-1] - counted[0])
    return {"members": len(configs), "decisions_per_second": round(rate, 1), "finished": result.finished}


def main() -> None:
    """Print both rates and their ratio as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--decisions", type=int, default=1500, help="counted decisions of each member")
    parser.add_argument("--preset", default="best")
    parser.add_argument("--out", type=Path, help="file for the JSON")
    args = parser.parse_args()

    import jax

    from ubp2.config.presets import PAPER_TASKS

    tasks = list(PAPER_TASKS)
    equal = {f"s{i}": base(args.preset, "metaworld/door-close", i, args.decisions) for i in range(args.members)}
    mixed = {
        f"m{i}": unlike(base(args.preset, tasks[i % len(tasks)], i // len(tasks), args.decisions), i)
        for i in range(args.members)
    }
    found = {"preset": args.preset, "device": jax.devices()[0].device_kind, "cores": os.cpu_count()}
    found |= {"equal": measure(equal), "unlike": measure(mixed)}
    rates = [found[name]["decisions_per_second"] for name in ("unlike", "equal")]
    found["ratio"] = round(rates[0] / rates[1], 3)
    text = json.dumps(found, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
