"""Memory of a run of a million decisions: one seed, the paper's networks, observations and actions as in Door Close.

    python benchmarks/memory.py [--decisions 1000000]

Learning is thinned out (one update in `--update-every` decisions), because memory does not depend on how often the
same program runs; replay, archive, labels, metrics and checkpoints are those of a whole run. The environment is a
random one without a simulator. Writes benchmarks/results/performance/memory.json, a row for each tenth of the run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import gymnasium
import numpy as np

import ubp2
from ubp2.bench.report import Report
from ubp2.storage.runs import read_metrics

OUT = Path(__file__).parent / "results" / "performance" / "memory.json"


class Noise(gymnasium.Env):
    """Observations of 39 random numbers, actions of 4, a reward that prefers small actions, 100 decisions."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (39,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._decision = 0
        return self._see(), {}

    def step(self, action):
        self._decision += 1
        return self._see(), -float(np.square(action).sum()), False, self._decision >= 100, {}

    def _see(self):
        return self.np_random.standard_normal(39, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--update-every", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    paper = ubp2.preset("paper", env="metaworld/door-close")
    config = dataclasses.replace(
        paper,
        env="noise",
        steps=args.decisions,
        environment=dataclasses.replace(paper.environment, in_process=True),
        training=dataclasses.replace(
            paper.training, update_every=args.update_every, warmup_updates=1, replay_capacity=1_000_000
        ),
        preferences=dataclasses.replace(paper.preferences, budget=24, per_session=12),  # then the policy acts: cheaper
        evaluation=dataclasses.replace(paper.evaluation, every=0, episodes=1, controllers=("policy",)),
        checkpoint=dataclasses.replace(paper.checkpoint, every=max(args.decisions // 10, 1)),
        planner=dataclasses.replace(paper.planner, samples=64, elites=8, iterations=1),
    )
    with tempfile.TemporaryDirectory() as folder:
        result = ubp2.train(config, env=Noise, out=Path(folder) / "run")
        rows = [row for row in read_metrics(result.folder) if "time/resident_megabytes" in row]
    every = max(len(rows) // 10, 1)
    over = [
        {"decisions": row["decision"], "resident_mb": round(row["time/resident_megabytes"])}
        for row in rows[every - 1 :: every]
    ]
    report = Report("memory", {"memory": over[-1:], "over the run": over}).data([])
    report["command"] = f"python benchmarks/memory.py --decisions {args.decisions} --update-every {args.update_every}"
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(over))


if __name__ == "__main__":
    main()
